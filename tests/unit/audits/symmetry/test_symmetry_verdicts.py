"""The six test verdicts, each on a subject whose answer is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import symmetry as sym
from assay.audits.symmetry.facts import PARTS
from assay.errors import InputError
from assay.results import Verdict

FORWARD = [part for part in PARTS if part != "sensitivity"]
ROTATED = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())


class Norms(nn.Module):
    """Norms through a small network: exactly invariant, up to what is added on purpose."""

    def __init__(self, *, broken: float = 0.0, factor: float = 1.0, offset: float = 0.0, leak: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
        with torch.no_grad():
            for index, weight in enumerate(self.net.parameters()):
                weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(index)) / 3)
        self.broken, self.factor, self.offset, self.leak = broken, factor, offset, leak

    def forward(self, x):
        if self.leak:
            x = x.float().to(x.dtype)
        norms = x.square().sum(-1)
        return self.factor * (self.net(norms) + self.broken * x[:, :1, 0] + self.offset)


def cloud(n=8):
    return torch.randn(n, 5, 3, generator=torch.Generator().manual_seed(7))


def forward_test(model, **options):
    finding = sym.audit_symmetry(model, cloud(), ROTATED, transforms=12, skip=FORWARD, **options)
    return finding, next(check for check in finding.checks if check.name == "rotation: output")


def test_an_invariant_network_is_exact():
    finding, check = forward_test(Norms())
    assert (check.label, check.verdict) == ("EXACT", Verdict.PASS)
    assert finding.measurement("error / rounding bound").value < 1e-6


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_the_verdict_does_not_depend_on_the_scale_of_the_output(factor):
    assert forward_test(Norms(factor=factor))[1].label == "EXACT"
    assert forward_test(Norms(factor=factor, broken=1e-4))[1].label == "BROKEN"


def test_a_defect_of_one_in_a_hundred_thousand_is_broken_and_not_excellent():
    finding, check = forward_test(Norms(broken=1e-5))
    assert check.label == "BROKEN" and finding.verdict is Verdict.FAIL
    assert finding.measurement("max relative error").value < 1e-4  # the seed's bands would have passed it


def test_a_defect_behind_a_large_constant_is_not_hidden():
    finding, check = forward_test(Norms(broken=1e-2, offset=100.0))
    assert check.label == "BROKEN"
    assert finding.measurement("max relative error").value > 1e-2


def test_a_step_in_float32_is_float_limited_and_passes():
    finding, check = forward_test(Norms(leak=True))
    assert (check.label, check.verdict) == ("FLOAT-LIMITED", Verdict.PASS)
    assert any(issue.title == "A step is kept in low precision" for issue in finding.issues)


def test_a_declared_budget_makes_an_approximate_symmetry_pass_and_a_smaller_one_does_not():
    finding, check = forward_test(Norms(broken=1e-3), budget=0.05)
    assert (check.label, check.verdict) == ("APPROXIMATE", Verdict.PASS)
    assert "to a relative error of 0.05" in finding.claim
    assert forward_test(Norms(broken=1e-3), budget=1e-6)[1].label == "BROKEN"


def test_a_part_that_is_switched_off_is_untested_and_never_passed():
    finding, _ = forward_test(Norms())
    off = [check for check in finding.checks if check.label == "UNTESTED"]
    assert {check.name for check in off} == set(FORWARD)
    assert all(check.verdict is Verdict.INCONCLUSIVE for check in off)
    assert finding.verdict is Verdict.PARTIAL and "untested" in finding.reason


def test_a_full_audit_of_an_exact_model_passes_and_states_what_it_excludes():
    finding = sym.audit_symmetry(Norms(), cloud(20), ROTATED, transforms=6)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert "20 independent inputs" in finding.reason
    assert finding.measurement("rate of bad inputs, upper bound").value == pytest.approx(1 - 0.05 ** (1 / 20))
    assert {check.label for check in finding.checks} <= {"", "EXACT"}


def test_a_model_in_float64_is_tested_in_two_precisions_too():
    assert forward_test(Norms().double())[1].label == "EXACT"
    assert forward_test(Norms(broken=1e-5).double())[1].label == "BROKEN"


def test_a_model_in_bfloat16_is_judged_by_its_own_rounding():
    assert forward_test(Norms().bfloat16())[1].label == "EXACT"
    assert forward_test(Norms(broken=0.5).bfloat16())[1].label == "BROKEN"


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others():
    def numbers(seed):
        finding = sym.audit_symmetry(Norms(broken=1e-3), cloud(), ROTATED, transforms=4, skip=FORWARD, seed=seed)
        return [m.value for m in finding.measurements]

    assert numbers(0) == numbers(0) and numbers(0) != numbers(1)


@pytest.mark.parametrize("wrong", [{"skip": ["gradient"]}, {"inputs": 0}, {"budget": 2.0}])
def test_bad_options_are_refused_with_the_known_ones(wrong):
    with pytest.raises(InputError):
        sym.audit_symmetry(Norms(), cloud(), ROTATED, **wrong)


class RareCap(nn.Module):
    """Invariant but for inputs with a coordinate beyond 2.6: a cap along the axes that few inputs reach."""

    def forward(self, x):
        return x.clamp(-2.6, 2.6).square().sum((-1, -2))


def test_a_rare_defect_is_found_and_called_rare():
    x = 0.75 * torch.randn(50, 3, 3, generator=torch.Generator().manual_seed(0))
    finding = sym.audit_symmetry(RareCap(), x, ROTATED, transforms=40, skip=["gradients", "differences"])
    assert finding.verdict is Verdict.FAIL
    assert any("of the pairs only" in issue.cause for issue in finding.issues)


def test_the_adversary_finds_what_a_small_sample_misses():
    x = 0.7 * torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(1))
    options = {"transforms": 4, "skip": FORWARD}
    assert sym.audit_symmetry(RareCap(), x, ROTATED, **options).verdict is Verdict.PARTIAL
    attacked = sym.audit_symmetry(RareCap(), x, ROTATED, adversarial=40, **options)
    assert attacked.verdict is Verdict.FAIL and "adversary" in attacked.reason


@pytest.mark.parametrize("bug", [0.0, 1e-3])
@pytest.mark.parametrize("x", [torch.ones(6, 5, 3), torch.randn(1, 5, 3).expand(6, 5, 3)], ids=["ones", "one repeated"])
def test_rows_that_are_the_same_are_one_input(x, bug):
    finding = sym.audit_symmetry(Norms(broken=bug), x, ROTATED, transforms=6)
    assert finding.verdict is (Verdict.FAIL if bug else Verdict.PASS), finding.reason
    assert bug or "one input" in finding.reason
    assert finding.measurement("inputs tested").value == 1
