"""What is declared of arrows in pictures and of typed features, and what is said of a wrong declaration or module."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay import symmetry as sym
from assay.errors import InputError
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

SMALL = {"inputs": 6, "transforms": 4, "skip": ("differences", "jitter", "train-mode", "training", "sizes")}


def audited(model: nn.Module, sample: Any, spec: sym.Symmetry) -> Finding:
    return sym.audit_symmetry(model, sample, spec, **SMALL)


class Centre(nn.Module):
    """Where the mass of a picture is: x to the right, y upwards (or down, as pixels count)."""

    def __init__(self, *, up: bool) -> None:
        super().__init__()
        self.up = up

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.linspace(-1, 1, x.shape[-1]).to(x)
        right, down = (x.mean(2) * steps).sum(-1), (x.mean(3) * steps).sum(-1)
        return torch.cat([right, -down if self.up else down], dim=1)


@pytest.mark.parametrize("basis", ["right, up", "right, down"])
def test_arrows_in_a_picture_have_a_basis_and_another_one_is_recognised(basis: str) -> None:
    model, pictures = Centre(up=basis == "right, up"), torch.rand(6, 1, 7, 7)
    for declared, verdict in ((basis, Verdict.PARTIAL), ("", Verdict.FAIL)):
        spec = sym.Symmetry(sym.D(4), inputs=sym.image(-2, -1), outputs=sym.vector(basis=declared))
        finding = audited(model, pictures, spec)
        assert finding.verdict is verdict, finding.reason
    assert f"behaves as vector(basis='{basis}')" in finding.reason
    with pytest.raises(InputError, match="right, up"):
        sym.vector(basis="up")


class Box(nn.Module):
    """Distances in a box that stays where it is: broken by rotations, and the same for -x as for x."""

    def forward(self, pos: Tensor) -> Tensor:
        gap = pos.unsqueeze(2) - pos.unsqueeze(1)
        gap = gap - 3 * torch.round(gap / 3)
        return torch.exp(-gap.square().sum(-1)).sum((1, 2))


def test_another_declaration_must_keep_what_held_and_move_what_was_moved() -> None:
    spec = sym.Symmetry(sym.E(3), inputs=sym.point(), outputs=sym.invariant())
    finding = audited(Box(), 3 * torch.rand(6, 5, 3), spec)
    assert finding.verdict is Verdict.FAIL
    assert "Your test may be wrong" not in {issue.title for issue in finding.issues}


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.read(x)[0][:, -1]


class Phases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x)


SET = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())
TIME = sym.Symmetry(sym.time_reversal(), inputs=sym.backwards(-1), outputs=sym.backwards(-1))
PHASE = sym.Symmetry(sym.U(1), inputs=sym.phase(1), outputs=sym.phase(1))
TURNS = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
CAUSES = [
    (Last, (6, 5, 4), SET, "A recurrent layer reads entries in order"),
    (lambda: nn.Sequential(nn.Conv1d(2, 2, 3, padding=1)), (6, 2, 9), TIME, "Kernel is not symmetric in time"),
    (Phases, (6, 4), PHASE, "Bias"),
    (lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), (6, 1, 6, 6), TURNS, "Linear layer across places"),
]


@pytest.mark.parametrize(("make", "shape", "spec", "title"), CAUSES, ids=[row[3] for row in CAUSES])
def test_a_module_of_a_known_kind_gets_its_own_cause(make: Any, shape: tuple[int, ...], spec: Any, title: str) -> None:
    torch.manual_seed(0)
    dtype = torch.complex64 if spec is PHASE else torch.float32
    finding = audited(make(), torch.randn(shape, dtype=dtype), spec)
    assert finding.verdict is Verdict.FAIL and finding.issues[0].title == title


class Rounded(nn.Module):
    """The first module holds a constant in float32; what breaks the output comes behind it."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.basis, self.mix = nn.Identity(), nn.Linear(3, 3, bias=True) if broken else nn.Identity()
        self.basis.register_forward_hook(lambda module, given, out: out * (1 + 2e-7 * torch.eye(3)[0].to(out)))

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(self.basis(x))


def test_a_constant_in_low_precision_is_not_blamed_for_what_comes_behind_it() -> None:
    torch.manual_seed(0)
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    finding = audited(Rounded(broken=True), torch.randn(6, 3), spec)
    assert finding.issues[0].location == "mix", finding.reason


class Joined(nn.Module):
    """Sums what the neighbours say, by a matrix made sparse: autograd gives no slope for absent pairs."""

    def forward(self, pairs: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(pairs.to_sparse(), x.tanh())


def test_absent_pairs_of_a_sparse_matrix_are_no_wrong_gradient() -> None:
    inputs = {"pairs": sym.permuted(0, 1), "x": sym.permuted(0)}
    spec = sym.Symmetry(sym.S(), inputs=inputs, outputs=sym.permuted(0), batch=None)
    random = torch_generator(0, "pairs")
    pairs = (torch.rand(7, 7, generator=random) < 0.4).float()
    finding = sym.audit_symmetry(Joined(), {"pairs": pairs, "x": torch.randn(7, 4, generator=random)}, spec, **{
        **SMALL, "skip": ("jitter", "train-mode", "training", "sizes")})
    assert "BROKEN" not in {check.label for check in finding.checks}, finding.reason


class CyclicGroup:
    """As much of escnn's group as is asked for."""

    def __init__(self, rotation_order: int) -> None:
        self.rotation_order = rotation_order

    def element(self, turns: int) -> int:
        return turns % self.rotation_order


def field_type(order: int = 4) -> Any:
    """One arrow (an irreducible representation of turns) and one number, as escnn would type them."""

    def matrix(turns: int) -> np.ndarray:
        angle = 2 * math.pi * turns / order
        found = np.eye(3)
        found[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        return found

    names = [SimpleNamespace(name="irrep_1"), SimpleNamespace(name="irrep_0")]
    return SimpleNamespace(fibergroup=CyclicGroup(order), representation=matrix, gspace=None, size=3,
                           representations=names)


class Gradient(nn.Module):
    """The slope of a picture, to the right and up, and the picture itself: three channels of a known type."""

    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken, self.out_type = broken, field_type()

    def forward(self, x: Tensor) -> Tensor:
        p = functional.pad(x, (1, 1, 1, 1))
        right, down = p[..., 1:-1, 2:] - p[..., 1:-1, :-2], p[..., 2:, 1:-1] - p[..., :-2, 1:-1]
        return torch.cat([right.relu() if self.broken else right, -down, x], dim=1)


@pytest.mark.parametrize("broken", [False, True])
def test_features_typed_as_escnn_types_them_are_declared_by_their_type(broken: bool) -> None:
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1) @ sym.fields(field_type()))
    finding = audited(Gradient(broken=broken), torch.randn(6, 1, 7, 7), spec)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PARTIAL), finding.reason
    assert str(spec).endswith("image(-2, -1) @ fields(1xirrep_1 + 1xirrep_0)")


def test_turns_that_are_no_elements_of_the_type_are_refused() -> None:
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1) @ sym.fields(field_type(6)))
    with pytest.raises(InputError, match="360/4 degrees"):
        audited(Gradient(broken=False), torch.randn(6, 1, 7, 7), spec)
    with pytest.raises(InputError, match="FieldType"):
        sym.fields("4 regular")


class Placed(nn.Module):
    """Absolute positions enter in one of three ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.weigh = how, nn.Linear(2, 1)

    def forward(self, pos: Tensor, features: Tensor) -> Tensor:
        inner = (pos - pos.mean(1, keepdim=True)).norm(dim=-1, keepdim=True)
        if self.how == "added":
            return torch.cat([inner, pos[..., :1]], dim=-1)
        if self.how == "weighed":
            return inner + self.weigh(features) * pos[..., :1]
        return inner + pos.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(("how", "words"), [
    ("added", "a position is added as it is"),
    ("weighed", "a position is multiplied by features"),
    ("curved", "a nonlinear function of coordinates"),
])
def test_how_an_absolute_position_enters_is_fitted(how: str, words: str) -> None:
    torch.manual_seed(0)
    spec = sym.Symmetry(sym.SE(3), inputs=(sym.point(), sym.invariant()), outputs=sym.invariant())
    finding = audited(Placed(how), (torch.randn(6, 5, 3), torch.randn(6, 5, 2)), spec)
    named = [issue for issue in finding.issues if issue.title == "Absolute position"]
    assert named and words in named[0].cause, finding.issues
