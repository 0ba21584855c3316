"""Small facts of the probe: each was once changed by a line without any test noticing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.probe.blocks import _is_matrix_layer, discover_blocks
from assay.probe.calling import default_call
from assay.probe.copies import duplicate
from assay.probe.stream import tapped
from assay.probe.subject import drawn, prepare_probe


class Named(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a - b


class Open(nn.Module):
    def forward(self, **values: Tensor) -> Tensor:
        return values["a"] - values["b"]


class Whole(nn.Module):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["a"] - batch["b"]


@pytest.mark.parametrize("model", [Named(), Open(), Whole()])
def test_a_dict_is_given_by_name_where_names_are_known_and_whole_where_they_are_not(model: nn.Module) -> None:
    value = {"a": torch.tensor(3.0), "b": torch.tensor(1.0)}
    assert float(default_call(model, value, 0)) == 2.0


def test_constants_in_a_list_are_copied_in_the_precision_of_the_copy_beside_what_is_no_tensor() -> None:
    class Holds(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.parts = [torch.ones(2), "a word", 3]

    copy: Any = duplicate(Holds(), dtype=torch.float64)
    assert copy.parts[0].dtype == torch.float64 and copy.parts[1:] == ["a word", 3]


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


def test_a_visitor_that_returns_nothing_changes_nothing_and_one_that_returns_a_tensor_does() -> None:
    model, x = Chain(), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    blocks, plain = discover_blocks(model, x), model(x)
    seen: list[int] = []
    with tapped(model, blocks, lambda depth, h: seen.append(depth)):
        assert torch.equal(model(x), plain)
    assert seen == [0, 1, 2, 3]
    for place in range(4):
        with tapped(model, blocks, lambda depth, h, place=place: torch.zeros_like(h) if depth == place else None):  # type: ignore[misc]
            assert not torch.equal(model(x), plain)


def test_a_visitor_that_returns_nothing_leaves_the_tuple_of_a_block_alone() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return torch.tanh(self.inner(x)), 7

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Pair() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x, _ = block(x)
            return x

    model, x = Pairs(), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    blocks, plain = discover_blocks(model, x), model(x)
    with tapped(model, blocks, lambda depth, h: None):
        assert torch.equal(model(x), plain)


def test_a_layer_of_scales_is_no_matrix_layer() -> None:
    assert _is_matrix_layer(nn.Linear(3, 2)) and not _is_matrix_layer(nn.LayerNorm(3))


def test_inputs_are_fed_with_gradients_only_where_these_are_asked_for() -> None:
    probe = prepare_probe(nn.Linear(3, 2), torch.randn(4, 3), seed=0, inputs=4)
    leaves = probe.cases[0]
    (plain,), (tracked,) = (probe.fed(leaves, probe.low, torch.float32, **how) for how in ({}, {"grad": True}))
    assert not plain.requires_grad and tracked.requires_grad
    assert not any(out.requires_grad for out in probe.run(leaves, probe.low, torch.float32))


def test_only_what_has_edges_and_turns_into_a_dict_is_a_graph_of_another_library() -> None:
    graph = SimpleNamespace(edge_index=torch.zeros(2, 3), to_dict=dict)
    with pytest.raises(InputError):
        drawn(graph, 4, 0)
    for half in (SimpleNamespace(edge_index=torch.zeros(2, 3)), SimpleNamespace(to_dict=dict)):
        assert drawn(half, 4, 0)[0] is half


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + torch.tanh(self.inner(x))
        return out


class Stage(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.change, self.block = nn.Linear(4, 4), block

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(torch.relu(self.change(x)))
        return out


def test_blocks_of_which_one_lies_outside_the_stages_are_not_the_finer_reading_of_them() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Residual()
            self.stages = nn.ModuleList(Stage(Residual()) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for stage in self.stages:
                x = stage(x)
            return x

    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert discover_blocks(Wide(), x).names == ("stages.0", "stages.1", "stages.2")
