"""Wrong groups, wrong sizes and models in use: what goes wrong around an audit is said, and nothing is left behind."""

from __future__ import annotations

import pytest
import torch
from planted_symmetry.families.egnn import EGNN
from planted_symmetry.plant import healthy
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.groups.continuous import Rotations
from assay.errors import InputError
from assay.results import Verdict
from assay.seeding import torch_generator

QUICK = {"transforms": 4, "skip": ("gradients", "differences", "jitter", "train-mode", "training")}


class WrongInverse(Rotations):
    """Not a group: what it calls the inverse is the element itself."""

    def inverse(self, elements: sym.Elements) -> sym.Elements:
        return elements


class WrongIdentity(Rotations):
    """Not a group: what it calls the identity is a reflection."""

    def identity(self, n: int = 1) -> sym.Elements:
        return sym.Elements({"linear": torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)).repeat(n, 1, 1)})


@pytest.mark.parametrize("group", [WrongInverse(3, reflections=False), WrongIdentity(3, reflections=False)])
def test_a_group_that_is_not_one_is_an_error_of_the_test_and_no_model_is_blamed(group) -> None:
    spec = sym.Symmetry(group, inputs=sym.vector(), outputs=sym.vector())
    finding = sym.audit_symmetry(nn.Identity(), torch.randn(4, 3), spec, **QUICK)
    assert finding.verdict is Verdict.ERROR
    assert finding.issues[0].title == "Your test is wrong"


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3)])
def test_an_input_of_size_zero_along_any_axis_is_refused(shape) -> None:
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    with pytest.raises(InputError, match="at least one entry"):
        sym.audit_symmetry(nn.Identity(), torch.zeros(shape), spec, **QUICK)


def test_an_output_that_cannot_carry_its_representation_is_refused() -> None:
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    with pytest.raises(InputError, match="3 components"):
        sym.audit_symmetry(nn.Linear(3, 4), torch.randn(4, 3), spec, **QUICK)


class NanNearAxis(nn.Module):
    """Fine at most inputs, NaN where a component is negative and large: one row in a few."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[..., :1] < -1.5, x * float("nan"), x)


def test_nan_at_some_inputs_only_is_never_a_pass() -> None:
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    x = torch.randn(16, 3, generator=torch_generator(0, "nan"))
    x = x[x[:, 0] > -1.5]  # finite at every given input, not at all rotated ones
    finding = sym.audit_symmetry(NanNearAxis(), x, spec, **QUICK)
    assert finding.verdict is Verdict.FAIL and "NaN" in finding.reason


def test_a_model_in_the_middle_of_training_is_left_as_it_was() -> None:
    model = healthy(EGNN, 0).train()
    model.blocks[0].mix.eval()
    model.embed.weight.requires_grad_(False)
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, float(number)) if number % 2 else None
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    modes = [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    state = torch.get_rng_state()
    sym.audit_symmetry(model, EGNN.sample, EGNN.symmetry, inputs=4, transforms=2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert modes == [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(parameter.grad, grad)
    assert not model.embed.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), state)
