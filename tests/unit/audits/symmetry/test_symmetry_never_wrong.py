"""Each wrong answer that was reported, as a claim: budgets, kinks, complex numbers, vacuity, modes, twins."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.measure.quotients import quotient
from assay.errors import InputError
from assay.results import Verdict

SMALL = {"inputs": 6, "transforms": 5}
VECTORS = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
SETS = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1))


def label(finding, name: str) -> str:
    return next(check.label for check in finding.checks if check.name == name)


class Slightly(nn.Module):
    """Invariant but for a small share of the first component."""

    def __init__(self, share: float = 1e-5) -> None:
        super().__init__()
        self.share, self.mix = share, nn.Linear(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.square().sum(-1, keepdim=True)).tanh() + self.share * x[..., :1]


def test_a_budget_covers_gradients_and_without_it_the_same_model_fails() -> None:
    torch.manual_seed(0)
    model, x = Slightly(), torch.randn(6, 3)
    within = sym.audit_symmetry(model, x, VECTORS, budget=1e-2, **SMALL)
    assert within.verdict is Verdict.PASS, within.reason
    assert label(within, "input gradients") == "APPROXIMATE"
    assert sym.audit_symmetry(model, x, VECTORS, **SMALL).verdict is Verdict.FAIL
    assert sym.audit_symmetry(model, x, VECTORS, budget=1e-7, **SMALL).verdict is Verdict.FAIL


def test_a_kink_beside_the_point_does_not_make_autograd_wrong() -> None:
    beside = 1e-7
    found = quotient(0.0, lambda h: max(h - beside, 0.0), 1.0)
    assert not found.differs


def test_a_kink_at_the_point_is_no_derivative_and_a_wrong_one_is_found() -> None:
    assert quotient(0.0, lambda h: max(h, 0.0), 1.0).kinked
    assert quotient(0.5, lambda h: h, 1.0).differs
    assert not quotient(1.0, lambda h: h, 1.0).differs


class Fourier(nn.Module):
    """A convolution by its complex spectrum; ``broken`` weighs places."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.weight, self.broken = nn.Parameter(torch.randn(8, 5, dtype=torch.complex64)), broken

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.irfft2(torch.fft.rfft2(x) * self.weight, s=x.shape[-2:])
        return y * torch.linspace(0.5, 1, 8, dtype=x.dtype) if self.broken else y


@pytest.mark.parametrize("broken", [False, True])
def test_a_fourier_operator_is_judged_in_float64_with_its_imaginary_part(broken: bool) -> None:
    torch.manual_seed(0)
    spec = sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1))
    finding = sym.audit_symmetry(Fourier(broken=broken), torch.randn(4, 8, 8), spec, **SMALL)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PASS), finding.reason


class Phase(nn.Module):
    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        size = 5 if broken else 1
        self.weight = nn.Parameter(torch.randn(size, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return x * x.abs() * self.weight


@pytest.mark.parametrize("broken", [False, True])
def test_complex_inputs_and_outputs_are_audited(broken: bool) -> None:
    torch.manual_seed(0)
    finding = sym.audit_symmetry(Phase(broken=broken), torch.randn(6, 5, dtype=torch.complex64), SETS, **SMALL)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PASS), finding.reason


class Rotary(nn.Module):
    """Attention on a ring whose complex queries and keys turn with their places; ``wrong`` does not close the ring."""

    def __init__(self, wrong: float = 0.0, places: int = 8, width: int = 6) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(width, width, dtype=torch.complex64) / width**0.5)
        self.keys = nn.Parameter(torch.randn(width, width, dtype=torch.complex64) / width**0.5)
        turns = torch.arange(places, dtype=torch.float64)[:, None] * torch.arange(1, width + 1) * (1 + wrong) / places
        self.register_buffer("turns", torch.polar(torch.ones_like(turns), 2 * torch.pi * turns).to(torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        turns = self.turns[: x.shape[1]]
        queries, keys = ((x.to(w.dtype) @ w) * turns for w in (self.queries, self.keys))
        return torch.softmax((queries @ keys.mH).real, dim=-1) @ x


@pytest.mark.parametrize("broken", [False, True])
def test_rotary_attention_with_complex_weights_is_not_exact_when_it_is_broken(broken: bool) -> None:
    torch.manual_seed(1)
    spec = sym.Symmetry(sym.Shifts(1), inputs=sym.image(1), outputs=sym.image(1))
    finding = sym.audit_symmetry(Rotary(0.01 if broken else 0.0), torch.randn(6, 8, 6), spec, skip=["sizes"], **SMALL)
    found = label(finding, "shift along image axis 0: output")
    assert found == "BROKEN" if broken else found in ("EXACT", "FLOAT-LIMITED"), finding.reason
    assert (finding.verdict is Verdict.FAIL) is broken


class CutOff(nn.Module):
    """A live dipole beside an energy that has lost its positions."""

    def forward(self, pos: Tensor, charge: Tensor) -> dict[str, Tensor]:
        return {"energy": charge.square().sum(1), "dipole": (charge.unsqueeze(-1) * pos).sum(1)}


def test_an_output_cut_off_from_what_a_generator_moves_is_vacuous_under_it() -> None:
    spec = sym.Symmetry(
        sym.SO(3) * sym.S(),
        inputs={"pos": sym.vector() @ sym.permuted(1), "charge": sym.permuted(1)},
        outputs={"energy": sym.invariant(), "dipole": sym.vector()},
    )
    sample = {"pos": torch.randn(6, 4, 3), "charge": torch.randn(6, 4)}
    finding = sym.audit_symmetry(CutOff(), sample, spec, **SMALL)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert label(finding, "rotation: energy") == "VACUOUS"
    assert {label(finding, name) for name in ("rotation: dipole", "permutation: energy")} == {"EXACT"}


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, z: Tensor) -> Tensor:
        return self.table(z).sum(1)


def test_integer_inputs_at_batch_one_are_not_called_vacuous() -> None:
    spec = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())
    finding = sym.audit_symmetry(Counted(), torch.tensor([[0, 1, 2, 4]]), spec, **SMALL)
    assert finding.verdict in (Verdict.PASS, Verdict.PARTIAL), finding.reason
    assert not [check for check in finding.checks if check.label == "VACUOUS"]


class Centred(nn.Module):
    """In training mode translations hold for a batch that moves as a whole, by statistics of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x.mean((0, 1), keepdim=True) if self.training else x.mean(1, keepdim=True)
        return (x - middle).square().sum((1, 2))


def test_statistics_of_the_batch_are_tested_with_rows_moved_apart_and_the_mode_is_said() -> None:
    spec = sym.Symmetry(sym.SE(3), inputs=sym.point(), outputs=sym.invariant())
    finding = sym.audit_symmetry(Centred().train(), torch.randn(6, 4, 3), spec, **SMALL)
    assert any(check.name == "mode" and "training mode" in check.reason for check in finding.checks)
    assert finding.verdict is Verdict.PARTIAL, finding.reason
    assert label(finding, "train mode") == "EXACT"
    assert label(finding, "train mode, rows moved apart") == "BROKEN"


class Only32(nn.Module):
    def __init__(self, *, doubled: bool = False, wrong: float = 0.0) -> None:
        super().__init__()
        self.mix, self.doubled, self.wrong = nn.Linear(1, 2), doubled, wrong

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64 and not self.doubled:
            raise TypeError("float32 only")
        return self.mix(x.square().sum(-1, keepdim=True)) + self.wrong


@pytest.mark.parametrize("wrong", [0.0, 1e-3])
def test_a_twin_is_believed_only_if_it_is_the_same_function(wrong: float) -> None:
    torch.manual_seed(0)
    model, twin = Only32(), Only32(doubled=True, wrong=wrong)
    twin.load_state_dict(model.state_dict())
    finding = sym.audit_symmetry(model, torch.randn(6, 3), VECTORS, twin=twin, **SMALL)
    assert finding.verdict is (Verdict.ERROR if wrong else Verdict.PASS), finding.reason
    if not wrong:
        assert label(finding, "rotation: output") == "EXACT"


def test_the_names_of_the_original_are_aliases() -> None:
    assert sym.test_model_equivariance is sym.audit_equivariance
    assert sym.audit_all_layers is sym.audit_symmetry


def test_a_scalar_is_an_invariant() -> None:
    assert sym.scalar is sym.invariant and "scalar" in dir(sym)


@pytest.mark.parametrize(("given", "call"), [
    ((sym.SO(3), sym.invariant), "sym.invariant()"), ((sym.SO(3), sym.scalar), "sym.invariant()"),
    ((sym.SO(3), sym.tensor), "sym.tensor(rank)"), ((sym.SO(3), (sym.vector(), sym.image)), "sym.image()"),
    ((sym.S, sym.invariant()), "sym.S()"), ((sym.C, sym.invariant()), "sym.C(turns)"),
])  # fmt: skip
def test_what_was_not_called_is_refused_with_the_call(given: tuple[Any, Any], call: str) -> None:
    group, outputs = given
    with pytest.raises(InputError, match=re.escape(f"call it: {call}")) as refused:
        sym.Symmetry(group, inputs=sym.vector(), outputs=outputs)
    assert " at 0x" not in str(refused.value)


def test_a_function_of_ones_own_is_told_how_it_becomes_an_action() -> None:
    with pytest.raises(InputError, match=r"sym\.custom"):
        sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=torch.relu)


def test_innocent_layers_behind_a_guilty_one_pass_in_the_template() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Identity())
    finding = sym.audit_symmetry(model, torch.randn(6, 4), SETS, **SMALL)
    text = sym.original_template(finding)
    layers = text.split("LAYER-WISE ANALYSIS:")[1].split("GRADIENT TEST:")[0]
    results = [line.removeprefix("- Result: ") for line in layers.splitlines() if line.startswith("- Result")]
    assert results == ["FAIL", "PASS", "PASS"], layers
    assert "Fix required" in text
