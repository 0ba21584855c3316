"""Each of the three gradient tests catches what the other two miss; robustness catches what is still asleep."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import symmetry as sym
from assay.results import Verdict

SPEC = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())


def points(n=6):
    return torch.randn(n, 4, 3, generator=torch.Generator().manual_seed(5))


def label(finding, name):
    return next(check.label for check in finding.checks if check.name == name)


class Scaling(nn.Module):
    """x times a function of its norm; ``how`` chooses the defect of the backward pass."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how, self.net = how, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        norm = x.square().sum(-1, keepdim=True)
        if self.how == "detach":
            norm = norm.detach()
        y = x * self.net(norm)
        if self.how == "component":
            y = torch.cat([y[..., :1].detach(), y[..., 1:]], dim=-1)
        return Doubled.apply(y) if self.how == "double" else y


class Doubled(torch.autograd.Function):
    """The identity with twice its gradient: wrong, and perfectly equivariant."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def test_a_clean_model_passes_all_three():
    finding = sym.audit_symmetry(Scaling(), points(), SPEC, transforms=6)
    assert finding.passed, finding.reason
    names = ("input gradients", "parameter gradients", "finite differences: inputs", "finite differences: parameters")
    assert [label(finding, name) for name in names] == ["EXACT"] * 4


def test_a_detached_component_is_caught_by_the_input_gradient():
    finding = sym.audit_symmetry(Scaling("component"), points(), SPEC, transforms=6)
    assert label(finding, "rotation: output") == "EXACT"
    assert label(finding, "input gradients") == "BROKEN" and finding.verdict is Verdict.FAIL
    assert any(issue.title == "The backward pass breaks the symmetry" for issue in finding.issues)


@pytest.mark.parametrize("how", ["double", "detach"])
def test_a_wrong_but_equivariant_backward_is_caught_by_finite_differences_alone(how):
    finding = sym.audit_symmetry(Scaling(how), points(), SPEC, transforms=6)
    assert label(finding, "rotation: output") == "EXACT" and label(finding, "input gradients") == "EXACT"
    assert label(finding, "parameter gradients") == "EXACT"
    assert label(finding, "finite differences: inputs") == "BROKEN" and finding.verdict is Verdict.FAIL
    assert any(issue.title == "Gradient is not the derivative" for issue in finding.issues)


class SelfEdges(nn.Module):
    """Distances with the self-edges left in: finite, with a gradient that is not."""

    def forward(self, x):
        return (x[:, :, None] - x[:, None]).square().sum(-1).sqrt().sum((1, 2))


def test_a_gradient_that_is_not_finite_is_never_passed():
    spec = sym.Symmetry(sym.E(3), inputs=sym.point(), outputs=sym.invariant())
    finding = sym.audit_symmetry(SelfEdges(), points(), spec, transforms=4)
    assert finding.verdict is Verdict.FAIL and "not finite" in finding.reason
    assert finding.issues[0].title == "The gradient is not finite"


class Latent(nn.Module):
    """A bias on vectors that is still zero, or a positional table that is."""

    def __init__(self, *, table: bool = False) -> None:
        super().__init__()
        self.scaling = Scaling()
        self.bias = nn.Parameter(torch.zeros(4, 1) if table else torch.zeros(3))

    def forward(self, x):
        return self.scaling(x) + self.bias * (1 if self.bias.shape == (3,) else x)


@pytest.mark.parametrize("table", [False, True])
def test_a_defect_that_is_still_zero_is_named_by_its_parameter(table):
    group = sym.S() if table else sym.SO(3)
    rep = sym.permuted(1) if table else sym.vector()
    finding = sym.audit_symmetry(
        Latent(table=table), points(), sym.Symmetry(group, inputs=rep, outputs=rep), transforms=6
    )
    assert finding.verdict is Verdict.PARTIAL
    assert label(finding, "parameter gradients") == "BROKEN"
    assert label(finding, "jittered weights") == "BROKEN" and label(finding, "after 5 training steps") == "BROKEN"
    issue = next(i for i in finding.issues if i.title.startswith("Latent"))
    assert issue.location == "bias" and "zero now" in issue.cause


class ForceField(nn.Module):
    """Energy of pair distances, forces by autograd or by a head of their own."""

    def __init__(self, forces: str = "gradient") -> None:
        super().__init__()
        self.net, self.forces = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), forces

    def forward(self, pos):
        with torch.enable_grad():
            pos = pos if pos.requires_grad else pos.detach().requires_grad_(True)
            apart = pos[:, :, None] - pos[:, None]
            weight = self.net(apart.square().sum(-1, keepdim=True))
            energy = weight.sum((1, 2, 3))
            (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        forces = {"gradient": -slope, "sign": slope, "head": (apart * weight).sum(2)}[self.forces]
        return {"energy": energy, "forces": forces}


FORCES = sym.Symmetry(
    sym.E(3) * sym.S(),
    inputs={"pos": sym.point() @ sym.permuted(1)},
    outputs={"energy": sym.invariant(), "forces": sym.vector() @ sym.permuted(1)},
)


@pytest.mark.parametrize(
    ("how", "verdict"), [("gradient", Verdict.PASS), ("head", Verdict.FAIL), ("sign", Verdict.FAIL)]
)
def test_forces_that_are_not_the_gradient_of_the_energy_are_caught(how, verdict):
    finding = sym.audit_symmetry(ForceField(how), {"pos": points(4)}, FORCES, transforms=4)
    assert finding.verdict is verdict, finding.reason
    check = next(c for c in finding.checks if c.name == "finite differences: forces = -d energy / d pos")
    assert check.label == ("EXACT" if how == "gradient" else "BROKEN")
    assert ("sign is wrong" in check.reason) == (how == "sign")


def test_train_mode_is_tested_apart():
    """Batch statistics of single components hold at initialisation in evaluation mode and break in train mode."""
    model = nn.BatchNorm1d(3, affine=False)
    finding = sym.audit_symmetry(model, torch.randn(16, 3) * torch.tensor([1.0, 2.0, 3.0]), SPEC, transforms=6)
    assert label(finding, "rotation: output") in ("EXACT", "FLOAT-LIMITED")
    assert label(finding, "train mode") == "BROKEN" and finding.verdict is Verdict.PARTIAL
    assert any(issue.title == "Breaks in train mode" for issue in finding.issues)


def test_dropout_in_train_mode_is_not_a_defect():
    model = nn.Sequential(Scaling(), nn.Dropout(0.5))
    finding = sym.audit_symmetry(model, points(), SPEC, transforms=6)
    assert label(finding, "train mode") == "EXACT"
