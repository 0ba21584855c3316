"""NaN, constants, ignored inputs, wrong tests, noise and coupled batches: each gets its own clear answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import symmetry as sym
from assay.errors import InputError
from assay.results import Verdict

ROTATED = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
INVARIANT = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
QUICK = {"transforms": 6, "skip": ["gradients", "differences", "jitter", "train-mode", "training"]}


def cloud(n=8):
    return torch.randn(n, 5, 3, generator=torch.Generator().manual_seed(0))


class Of(nn.Module):
    """A module made of a function."""

    def __init__(self, function, **modules) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args):
        return self.function(self, *args)


def check(finding, name):
    return next(one for one in finding.checks if one.name == name)


def test_nan_is_a_failure_that_names_the_module():
    model = Of(lambda m, x: m.root(x.norm(dim=-1) - 100), root=Of(lambda m, x: x.sqrt()))
    finding = sym.audit_symmetry(model, cloud(), INVARIANT, **QUICK)
    assert finding.verdict is Verdict.FAIL and "first made by root" in finding.reason
    assert check(finding, "end to end").label == "UNTESTED"


def test_nan_at_transformed_inputs_only_is_a_failure():
    model = Of(lambda m, x: torch.where(x[:, :1] == x[:, :1].round(), x, x / 0 * 0))
    finding = sym.audit_symmetry(model, torch.eye(3)[None].repeat(4, 1, 1), ROTATED, **QUICK)
    assert finding.verdict is Verdict.FAIL and "NaN" in finding.reason


def test_forces_that_become_nan_on_other_edges_are_not_called_vacuous():
    """Edges drawn at random join atoms to themselves, where the derivative of a distance is NaN: it reads them."""

    def forces(m, inputs):
        pos, (i, j) = inputs["pos"].detach().requires_grad_(), inputs["edge_index"]
        with torch.enable_grad():
            energy = torch.exp(-(pos[i] - pos[j]).norm(dim=-1)).sum()
            return {"energy": energy[None], "forces": -torch.autograd.grad(energy, pos)[0]}

    pos, edges = cloud(1)[0], torch.combinations(torch.arange(5)).T
    graph = {"pos": pos, "edge_index": torch.cat([edges, edges.flip(0)], dim=1)}
    finding = sym.molecule(Of(forces), graph, **QUICK)
    assert not [one.name for one in finding.checks if one.label in ("VACUOUS", "BROKEN")]
    assert check(finding, "permutation of edges: forces").label == "EXACT"


def test_a_constant_output_is_vacuous():
    finding = sym.audit_symmetry(Of(lambda m, x: torch.ones(len(x)) + 0 * x.sum((1, 2))), cloud(), INVARIANT, **QUICK)
    assert check(finding, "sensitivity").label == "VACUOUS"
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_an_input_that_is_ignored_is_vacuous_and_named():
    spec = sym.Symmetry(sym.SO(3), inputs=(sym.vector(), sym.vector()), outputs=sym.invariant())
    finding = sym.audit_symmetry(Ignores(), (cloud(), cloud()), spec, **QUICK)
    assert check(finding, "sensitivity").label == "VACUOUS" and "velocity" in check(finding, "sensitivity").reason
    assert finding.verdict is Verdict.INCONCLUSIVE


class Ignores(nn.Module):
    def forward(self, position, velocity):
        return position.norm(dim=-1)


def test_a_generator_that_moves_no_input_is_vacuous():
    spec = sym.Symmetry(sym.SE(3), inputs=sym.vector(), outputs=sym.vector())
    finding = sym.audit_symmetry(nn.Identity(), cloud(), spec, **QUICK)
    assert check(finding, "translation: output").label == "VACUOUS"
    assert finding.verdict is Verdict.PARTIAL


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (torch.zeros(0, 3), "at least one entry"),
        (torch.tensor([[1.0, float("nan"), 0.0]]), "finite inputs"),
        (torch.zeros(4, 5), "3 components along axis -1"),
        ([], "at least one input"),
        ("text", "hold tensors"),
    ],
)
def test_inputs_that_cannot_be_audited_are_errors(sample, message):
    with pytest.raises(InputError, match=message):
        sym.audit_symmetry(nn.Identity(), sample, ROTATED)


def test_a_representation_that_is_none_is_an_error_of_the_test():
    twice = sym.custom(lambda g, x: 2 * x, name="twice")
    finding = sym.audit_symmetry(nn.Identity(), cloud(), sym.Symmetry(sym.SO(3), inputs=twice, outputs=twice))
    assert finding.verdict is Verdict.ERROR and "your test is wrong" in finding.reason


def test_shifts_and_rotations_make_a_semidirect_product():
    spec = sym.Symmetry(sym.C(4) * sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.invariant())
    finding = sym.audit_symmetry(Of(lambda m, x: x.sum((-1, -2))), torch.randn(4, 1, 6, 6), spec)
    assert finding.verdict is Verdict.PASS, finding.reason


def test_a_wrong_output_type_is_recognised():
    spec = sym.Symmetry(sym.O(3), inputs=(sym.vector(), sym.vector()), outputs=sym.vector())
    model = Of(lambda m, a, b: torch.linalg.cross(a, b))
    finding = sym.audit_symmetry(model, (cloud(), cloud(8).flip(0)), spec, **QUICK)
    assert finding.verdict is Verdict.FAIL
    assert finding.issues[0].title == "Your test may be wrong" and "pseudovector" in finding.issues[0].cause


class Periodic(nn.Module):
    """Energy of positions in a cell: depends on fractional coordinates."""

    def forward(self, pos, cell):
        fractional = torch.linalg.solve(cell.transpose(-1, -2), pos.transpose(-1, -2))
        return fractional.cos().sum((-1, -2))


def test_a_forgotten_cell_is_recognised():
    cell = torch.eye(3) + 0.2 * torch.randn(8, 3, 3, generator=torch.Generator().manual_seed(2))
    spec = sym.Symmetry(sym.SO(3), inputs=(sym.vector(), sym.invariant()), outputs=sym.invariant())
    finding = sym.audit_symmetry(Periodic(), (cloud(), cell), spec, **QUICK)
    assert finding.verdict is Verdict.FAIL
    assert "input cell was not transformed" in finding.reason
    right = sym.Symmetry(sym.SO(3), inputs=(sym.vector(), sym.vector()), outputs=sym.invariant())
    assert sym.audit_symmetry(Periodic(), (cloud(), cell), right, transforms=6).passed


def test_noise_in_evaluation_mode_is_reported_and_never_passed():
    finding = sym.audit_symmetry(Of(lambda m, x: x + 0.1 * torch.randn_like(x)), cloud(), ROTATED, **QUICK)
    assert finding.verdict is Verdict.INCONCLUSIVE and "stochastic" in finding.reason
    assert finding.issues[0].title == "The model is stochastic"


class Seeded(nn.Module):
    def forward(self, x, generator=None):
        return x * (1 + torch.rand(1, generator=generator).to(x))


def test_a_generator_argument_makes_a_stochastic_model_testable():
    assert sym.audit_symmetry(Seeded(), cloud(), ROTATED, transforms=6).passed


def test_a_batch_that_is_mixed_is_reported():
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False, track_running_stats=False))
    spec = sym.Symmetry(sym.S(3), inputs=sym.permuted(1), outputs=sym.permuted(1))
    loose = sym.audit_symmetry(model, torch.randn(8, 3), spec, **QUICK)
    assert loose.verdict is Verdict.PARTIAL and check(loose, "batch coupling").verdict is Verdict.PARTIAL
    strict = sym.Symmetry(sym.S(3), inputs=sym.permuted(1), outputs=sym.permuted(1), batch=0)
    assert sym.audit_symmetry(model, torch.randn(8, 3), strict, **QUICK).verdict is Verdict.FAIL


def test_atoms_along_axis_zero_are_one_input_when_declared_so():
    pairs = Of(lambda m, p: (p[:, None] - p[None]).sum(1))
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector(), batch=None)
    finding = sym.audit_symmetry(pairs, torch.randn(6, 3), spec, transforms=6)
    assert finding.passed, finding.reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sym.Symmetry(sym.SO(3), inputs=sym.permuted(1), outputs=sym.vector()), "needs S"),
        (lambda: sym.Symmetry("SO(3)", inputs=sym.vector(), outputs=sym.vector()), "a group"),
        (lambda: sym.Symmetry(sym.SO(3), inputs="vector", outputs=sym.vector()), "made of representations"),
        (lambda: sym.audit_symmetry(lambda x: x, cloud(), ROTATED), "nn.Module"),
    ],
)
def test_a_wrong_declaration_is_an_error_that_says_what_to_do(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_undeclared_inputs_are_refused_and_undeclared_outputs_are_limitations():
    class Two(nn.Module):
        def forward(self, pos, charge):
            return {"energy": (pos.norm(dim=-1) * charge).sum(-1), "debug": pos[..., 0]}

    sample = {"pos": cloud(), "charge": torch.randn(8, 5)}
    with pytest.raises(InputError, match="nothing for charge"):
        spec = sym.Symmetry(sym.SO(3), inputs={"pos": sym.vector()}, outputs={"energy": sym.invariant()})
        sym.audit_symmetry(Two(), sample, spec)
    inputs = {"pos": sym.vector(), "charge": sym.invariant()}
    finding = sym.audit_symmetry(
        Two(), sample, sym.Symmetry(sym.SO(3), inputs=inputs, outputs={"energy": sym.invariant()})
    )
    assert finding.passed and any("debug" in line for line in finding.limitations)
