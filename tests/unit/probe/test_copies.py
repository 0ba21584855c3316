"""Copies of awkward models: complex weights, TorchScript inside, tensors with a graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.probe.copies import duplicate, native_dtype


class Awkward(nn.Module):
    """A complex weight, a buffer made from a weight, constants in lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn(3))
        self.register_buffer("derived", self.scale * 2)
        self.tables = [self.scale * 3, torch.ones(3)]
        self.named = {"one": torch.ones(3), "count": torch.arange(3)}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.phase + self.derived + self.tables[0] + self.named["one"]


def test_a_float64_copy_keeps_the_imaginary_part_of_weights() -> None:
    model = Awkward()
    twin = duplicate(model, dtype=torch.float64)
    assert twin.phase.dtype == torch.complex128
    assert torch.equal(twin.phase.detach().to(torch.complex64), model.phase.detach())


def test_tensors_with_a_graph_do_not_stop_a_copy_and_every_constant_is_cast() -> None:
    twin = duplicate(Awkward(), dtype=torch.float64)
    floats = [twin.derived, *twin.tables, twin.named["one"]]
    assert all(value.dtype == torch.float64 and value.is_leaf for value in floats)
    assert twin.named["count"].dtype == torch.int64
    assert twin(torch.ones(3, dtype=torch.float64)).dtype == torch.complex128


def test_the_original_keeps_its_lists_and_dtypes() -> None:
    model = Awkward()
    before = (model.tables, model.named, model.tables[0])
    duplicate(model, dtype=torch.float64)
    assert (model.tables, model.named, model.tables[0]) == before
    assert model.tables[0].dtype == torch.float32 and not model.tables[0].is_leaf


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_module_with_torchscript_inside_is_copied_in_float64() -> None:
    inner = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    twin = duplicate(nn.Sequential(nn.Linear(3, 3), inner), dtype=torch.float64)
    assert twin(torch.ones(1, 3, dtype=torch.float64)).dtype == torch.float64
    assert next(inner.parameters()).dtype == torch.float32


def test_the_precision_of_a_complex_model_is_that_of_its_parts() -> None:
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(2, dtype=torch.complex128))
    assert native_dtype(model, []) == torch.float64
