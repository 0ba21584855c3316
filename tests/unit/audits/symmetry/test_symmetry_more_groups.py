"""Phases, spinors, gauge fields, motions of grids, volumes, Minkowski space, two rotations: clean and broken."""

from __future__ import annotations

import pytest
import torch
from tests.unit.audits.symmetry.grid_models import (
    Blur,
    GaugeNet,
    Plaquettes,
    SymmetricConvolutions,
    VoxelNet,
    blobs,
    links,
    randn,
)
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.spec import self_test
from assay.errors import InputError
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

FEW = {"transforms": 6, "skip": ("jitter", "train-mode", "training")}
COMPLEX = torch.complex64


def broken(finding: Finding) -> set[str]:
    """Generators under which the output is broken."""
    return {c.name.split(": ")[0] for c in finding.checks if c.label == "BROKEN" and c.name.endswith(": output")}


LAWS = {
    "phase": (sym.U(1), sym.phase(2), randn(2, 8, dtype=COMPLEX)),
    "spinor": (sym.SU(2), sym.spinor(), randn(2, 8, 2, dtype=COMPLEX)),
    "adjoint": (sym.SU(3), sym.adjoint(), randn(2, 8, 3, 3, dtype=COMPLEX)),
    "links": (sym.Gauge(sym.SU(2)), sym.link(2, 3, direction=1), randn(4, 2, 5, 6, 2, 2, dtype=COMPLEX)),
    "loops": (sym.Gauge(sym.SU(2)), sym.site(1, 2, charge=0), randn(4, 5, 6, 2, 2, dtype=COMPLEX)),
    "conjugate matter": (sym.Gauge(sym.SU(3)), sym.site(1, 2, charge=-1), randn(4, 5, 6, 3, dtype=COMPLEX)),
    "phases on links": (sym.Gauge(sym.U(1)), sym.link(-2, -1, direction=1), randn(4, 2, 5, 6, dtype=COMPLEX)),
    "shifts and turns": (sym.Shifts() * sym.D(4), sym.image(-2, -1), randn(2, 7, 7)),
    "turns and shifts": (sym.C(2) * sym.Shifts(), sym.image(-2, -1), randn(2, 8, 8)),
    "cube": (sym.Cube(mirror=True), sym.image(-3, -2, -1), randn(2, 5, 5, 5)),
    "vectors on voxels": (sym.Cube() * sym.Shifts(3), sym.image(2, 3, 4) @ sym.vector(1), randn(2, 3, 4, 4, 4)),
    "Minkowski": (sym.O(1, 3), sym.vector(), randn(4, 4)),
    "two rotations": (sym.SO(3) * sym.SO(3, name="spin"), sym.vector(1) @ sym.vector(of="spin"), randn(4, 3, 3)),
    "two frames": (sym.E(3) * sym.E(3, name="lab"), sym.point(of="lab"), randn(4, 5, 3)),
}


@pytest.mark.parametrize("name", LAWS)
def test_they_are_representations(name: str) -> None:
    group, rep, x = LAWS[name]
    found = self_test(group.bind(rep.sizes(tuple(x.shape))), rep, x, where=name, generator=torch_generator(0, name))
    assert found.holds, str(found)
    assert not torch.equal(rep.act(group.bind(rep.sizes(tuple(x.shape))).sample(1, torch_generator(1)), x[None])[0], x)


class Phases(nn.Module):
    """A complex linear layer gated by moduli; ``split`` cuts off negative real and imaginary parts."""

    def __init__(self, *, split: bool = False) -> None:
        super().__init__()
        self.weight, self.split = nn.Parameter(randn(5, 5, dtype=COMPLEX)), split

    def forward(self, z: Tensor) -> Tensor:
        hidden = z @ self.weight
        hidden = hidden * torch.sigmoid(hidden.abs())
        return torch.complex(torch.relu(hidden.real), torch.relu(hidden.imag)) if self.split else hidden


class Spinors(nn.Module):
    """Doublets gated by their norms; ``conjugated`` adds what SU(2) does not carry."""

    def __init__(self, *, conjugated: bool = False) -> None:
        super().__init__()
        self.weight, self.conjugated = nn.Parameter(randn(5, 5, dtype=COMPLEX)), conjugated

    def forward(self, z: Tensor) -> Tensor:
        hidden = torch.einsum("bnc,nm->bmc", z, self.weight)
        gated = hidden * torch.tanh(hidden.abs().square().sum(-1, keepdim=True))
        return gated + 0.01 * hidden.conj() if self.conjugated else gated


class FourVectors(nn.Module):
    """Four-vectors weighted by a function of their masses; ``energy`` reads the time component."""

    def __init__(self, *, energy: bool = False) -> None:
        super().__init__()
        self.weigh, self.energy = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), energy

    def forward(self, p: Tensor) -> Tensor:
        mass = p[..., :1].square() - p[..., 1:].square().sum(-1, keepdim=True)
        found = (self.weigh(0.1 * mass) * p).sum(1)
        return found * torch.sigmoid(p[..., 0].sum(1, keepdim=True)) if self.energy else found


class SpinInSpace(nn.Module):
    """A spin scaled by the lengths of a position and of itself; ``coupled`` multiplies one with the other."""

    def __init__(self, *, coupled: bool = False) -> None:
        super().__init__()
        self.scale, self.coupled = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), coupled

    def forward(self, position: Tensor, spin: Tensor) -> Tensor:
        lengths = torch.stack([position.square().sum(-1), spin.square().sum(-1)], dim=-1)
        scale = self.scale(lengths)
        return spin * (scale + 0.1 * position[..., :1] if self.coupled else scale)


U1 = sym.Symmetry(sym.U(1), inputs=sym.phase(), outputs=sym.phase())
SU2 = sym.Symmetry(sym.SU(2), inputs=sym.spinor(), outputs=sym.spinor())
O13 = sym.Symmetry(sym.O(1, 3), inputs=sym.vector(), outputs=sym.vector())
SPIN = sym.Symmetry(
    sym.SO(3) * sym.SO(3, name="spin"),
    inputs=(sym.vector(), sym.vector(of="spin")),
    outputs=sym.vector(of="spin"),
)
MOTIONS = sym.Symmetry(sym.Shifts() * sym.D(4), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1))
CUBE = sym.Symmetry(sym.Cube(mirror=True), inputs=sym.image(-3, -2, -1), outputs=sym.invariant())
GAUGE = sym.Symmetry(sym.Gauge(sym.SU(2)), inputs=sym.link(2, 3, direction=1), outputs=sym.invariant())
SHIFTED = {"shift along image axis 0", "shift along image axis 1"}

SUBJECTS = {
    "U(1)": (Phases(), Phases(split=True), randn(8, 5, dtype=COMPLEX), U1, {"phase"}),
    "SU(2)": (Spinors(), Spinors(conjugated=True), randn(8, 5, 2, dtype=COMPLEX), SU2, {"SU(2)"}),
    "O(1, 3)": (FourVectors(), FourVectors(energy=True), randn(8, 5, 4), O13, {"boost", "time reversal"}),
    "SO(3) x SO(3)": (
        SpinInSpace(), SpinInSpace(coupled=True), (randn(8, 3), randn(8, 3, name="spin")), SPIN, {"rotation"},
    ),
    "kernels": (
        SymmetricConvolutions(), SymmetricConvolutions(averaged=False), randn(6, 1, 8, 8), MOTIONS,
        {"rotation", "reflection"},
    ),
    "padding": (
        SymmetricConvolutions(), SymmetricConvolutions(padding="reflect"), randn(6, 1, 8, 8), MOTIONS, SHIFTED,
    ),
    "voxels": (VoxelNet(), VoxelNet(plain=True), randn(4, 1, 5, 5, 5), CUBE, {"rotation", "reflection"}),
    # The real part of a diagonal entry of SU(2) is half its trace: the same for every site, it would not show.
    "gauge": (GaugeNet(), GaugeNet(bare=True), links(4, 4), GAUGE, {"gauge transformation"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_clean_model_passes_and_exactly_the_broken_generators_are_named(name: str) -> None:
    clean, planted, sample, spec, guilty = SUBJECTS[name]
    held = sym.audit_symmetry(clean, sample, spec, **FEW)
    assert not [c for c in held.checks if c.verdict is Verdict.FAIL], held.reason
    assert held.verdict is Verdict.PARTIAL, held.reason  # three parts were left out
    finding = sym.audit_symmetry(planted, sample, spec, **FEW)
    assert finding.verdict is Verdict.FAIL
    assert broken(finding) - {"all together"} == guilty


def test_an_ordinary_convolution_of_voxels_is_named() -> None:
    finding = sym.audit_symmetry(VoxelNet(plain=True), randn(4, 1, 5, 5, 5), CUBE, **FEW)
    assert (finding.issues[0].location, finding.issues[0].title) == ("between", "Kernel is not symmetric")


def test_padding_is_not_called_a_stride_as_long_as_the_image() -> None:
    finding = sym.audit_symmetry(SymmetricConvolutions(padding="reflect"), randn(6, 1, 8, 8), MOTIONS, **FEW)
    assert "Stride" not in {issue.title for issue in finding.issues}


def test_plaquettes_turn_with_their_corner() -> None:
    loops = sym.Symmetry(sym.Gauge(sym.SU(2)), inputs=sym.link(2, 3, direction=1), outputs=sym.site(1, 2, charge=0))
    assert sym.audit_symmetry(Plaquettes(), links(4, 4), loops, **FEW).verdict is Verdict.PARTIAL
    matter = sym.Symmetry(sym.Gauge(sym.SU(2)), inputs=sym.link(2, 3, direction=1), outputs=sym.invariant())
    assert sym.audit_symmetry(Plaquettes(), links(4, 4), matter, **FEW).verdict is Verdict.FAIL


def test_complex_matrices_stay_complex() -> None:
    quarter = torch.tensor([[[1]], [[1j]], [[-1]], [[-1j]]])
    group = sym.matrix_group("quarter phases", quarter)
    assert torch.equal(group.elements().parts["linear"], quarter.to(torch.complex128))
    spec = sym.Symmetry(group, inputs=sym.vector(), outputs=sym.vector())
    z = randn(8, 5, 1, dtype=COMPLEX)
    assert sym.audit_symmetry(Sixteenth(), z, spec, **FEW).verdict is Verdict.PARTIAL
    assert sym.audit_symmetry(Sixteenth(power=2), z, spec, **FEW).verdict is Verdict.FAIL


class Sixteenth(nn.Module):
    """z -> z^power: turns with quarter phases for powers 1, 5, 9, ..."""

    def __init__(self, power: int = 5) -> None:
        super().__init__()
        self.power = power

    def forward(self, z: Tensor) -> Tensor:
        return z**self.power


def test_a_complex_group_does_not_act_on_real_numbers_by_leaving_a_part_out() -> None:
    with pytest.raises(InputError, match="complex"):
        sym.audit_symmetry(nn.Identity(), randn(8, 2), SU2)


@pytest.mark.parametrize("group", [sym.C(8), sym.SO(2)], ids=repr)
def test_rotations_between_pixels_are_judged_by_what_interpolation_costs(group: sym.Group) -> None:
    spec = sym.Symmetry(group, inputs=sym.image(-2, -1, interpolate=True), outputs=sym.invariant())
    held = sym.audit_symmetry(Blur(), blobs(4, 33), spec, transforms=8)
    (rotation,) = [check for check in held.checks if check.name == "rotation: output"]
    assert rotation.label == "APPROXIMATE" and held.verdict is Verdict.PARTIAL, held.reason
    planted = sym.audit_symmetry(Blur(plain=True), blobs(4, 33), spec, transforms=8)
    assert planted.verdict is Verdict.FAIL


def test_noise_between_pixels_tells_nothing_and_a_budget_may_be_declared() -> None:
    spec = sym.Symmetry(sym.SO(2), inputs=sym.image(-2, -1, interpolate=True), outputs=sym.invariant())
    noise = randn(4, 1, 17, 17)
    assert sym.audit_symmetry(Blur(), noise, spec, transforms=4).verdict is Verdict.INCONCLUSIVE
    allowed = sym.audit_symmetry(Blur(), noise, spec, transforms=4, budget=0.5)
    assert {check.label for check in allowed.checks if check.name == "rotation: output"} == {"APPROXIMATE"}


def test_interpolation_is_asked_for() -> None:
    for group in (sym.C(8), sym.SO(2)):
        with pytest.raises(InputError, match="interpolate=True"):
            spec = sym.Symmetry(group, inputs=sym.image(-2, -1), outputs=sym.invariant())
            sym.audit_symmetry(Blur(), blobs(2, 17), spec)


def test_interpolated_quarter_turns_are_the_exact_ones() -> None:
    every, x = sym.D(4).elements(), randn(8, 3, 9, 9, dtype=torch.float64)
    turned = sym.Elements({"linear": every.parts["linear"]})
    assert torch.equal(sym.image(-2, -1, interpolate=True).act(turned, x), sym.image(-2, -1).act(every, x))
