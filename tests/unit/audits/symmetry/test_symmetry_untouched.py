"""An audit leaves the model, the inputs and every global state exactly as they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from assay import symmetry as sym
from assay.errors import InputError

SPEC = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_model_is_left_bitwise_as_it_was_found(training, dtype):
    model = network().to(dtype).train(training)
    model[0].eval()  # a mixed mode must survive too
    seen: list[str] = []
    model[6].register_forward_hook(lambda *_: seen.append("called"))
    model(torch.randn(4, 1, 6, 6, dtype=dtype)).sum().backward()
    model[6].weight.requires_grad_(False)
    before = _everything(model)
    x = torch.randn(4, 1, 6, 6, dtype=dtype)
    kept = x.clone()
    sym.audit_symmetry(model, x, SPEC)
    assert _everything(model) == before
    assert torch.equal(x, kept) and not x.requires_grad


def test_global_random_states_and_the_default_dtype_are_left_alone():
    model = network()
    states = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_default_dtype())
    sym.audit_symmetry(model, torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0)), SPEC)
    after = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_default_dtype())
    assert torch.equal(states[0], after[0]) and states[1:] == after[1:]
    assert torch.is_grad_enabled()


def test_states_are_restored_when_the_model_raises():
    class Raises(nn.Module):
        def forward(self, x):
            torch.rand(3)
            raise RuntimeError("no")

    state = torch.get_rng_state()
    with pytest.raises(InputError, match="Raises said RuntimeError: no"):
        sym.audit_symmetry(Raises(), torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0)), SPEC)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_writes_into_its_input_does_no_harm():
    class Writes(nn.Module):
        def forward(self, x):
            return x.mul_(2).sum((1, 2, 3))

    x = torch.randn(4, 1, 6, 6)
    kept = x.clone()
    finding = sym.audit_symmetry(Writes(), x, SPEC, skip=["gradients", "differences", "training"])
    assert torch.equal(x, kept) and not any(check.label == "BROKEN" for check in finding.checks)


def test_a_model_that_caches_a_tensor_with_a_graph_can_be_audited():
    class Caches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            self.last = x * self.scale
            return self.last.square().sum((1, 2, 3))

    model = Caches()
    model(torch.randn(4, 1, 6, 6))
    cached = model.last
    assert sym.audit_symmetry(model, torch.randn(4, 1, 6, 6), SPEC).passed
    assert model.last is cached


def _everything(model: nn.Module) -> list[object]:
    state: list[object] = []
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        state.append(
            (name, value.data_ptr(), value.dtype, value.requires_grad, value.detach().clone().numpy().tobytes())
        )
        state.append(None if value.grad is None else value.grad.numpy().tobytes())
    for module in model.modules():
        state.append((module.training, list(module._forward_hooks), list(module._forward_pre_hooks)))
        state.append((list(module._backward_hooks), list(vars(module))))
    return state
