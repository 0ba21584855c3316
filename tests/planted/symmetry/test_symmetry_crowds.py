"""A few of each crowd on every run, a hundred in slow ones, 300 by ``python benchmarks/symmetry_crowds.py``."""

from __future__ import annotations

import pytest
import torch
from planted_symmetry import crowds

from assay import symmetry as sym
from assay.results import Verdict

pytestmark = pytest.mark.filterwarnings("ignore")
FEW = range(5)


@pytest.mark.parametrize("number", FEW)
def test_a_clean_relu_network_passes(number: int) -> None:
    finding = crowds.audited(crowds.relu_nets(number), seed=number)
    assert finding.verdict is Verdict.PASS, finding.reason


@pytest.mark.parametrize("number", range(2))
def test_a_clean_model_without_float64_holds_in_everything_that_can_be_tested(number: int) -> None:
    finding = crowds.audited(crowds.float32_only(number), seed=number)
    assert finding.verdict is Verdict.PARTIAL, finding.reason
    assert {check.name for check in finding.checks if check.verdict is not Verdict.PASS} == {"differences"}


@pytest.mark.parametrize("number", FEW)
def test_a_discontinuous_broken_model_never_passes(number: int) -> None:
    finding = crowds.audited(crowds.jumps(number), seed=number)
    assert finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE), finding.reason


def test_eigenvectors_of_unfixed_sign_are_called_discontinuous() -> None:
    found = [crowds.audited(crowds.jumps(number), seed=number) for number in (0, 1)]
    named = [one for one in found if any("discontinuous" in issue.cause for issue in one.issues)]
    assert named and all(one.verdict is Verdict.FAIL for one in named)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", ["relu_nets", "float32_only", "jumps"])
def test_none_of_a_hundred_is_judged_wrongly(kind: str, part: int) -> None:
    """Others than in the tests above; all 300 of each are judged by ``python benchmarks/symmetry_crowds.py``."""
    wrong = ("PASS", "PARTIAL") if kind == "jumps" else ("FAIL", "ERROR")
    found = {n: crowds.audited(getattr(crowds, kind)(n), seed=n) for n in range(200 + part, 300, 4)}
    assert not {n: one.reason for n, one in found.items() if one.verdict.value in wrong}


def test_a_sort_that_commutes_with_the_group_is_no_defect() -> None:
    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sort(dim=1).values

    spec = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())
    assert sym.audit_symmetry(Sorted(), torch.randn(8, 6), spec, inputs=8, transforms=8).passed
