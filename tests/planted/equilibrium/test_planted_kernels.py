"""Kernels with one planted mistake each: rejected in every problem and precision; the library's own are accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay.audits.equilibrium.kernel import audit_kernel, compare_all
from assay.audits.equilibrium.kernel_problems import KernelAnswer, Problem, problems
from assay.audits.equilibrium.kernel_subjects import KERNELS, eager, planted
from assay.errors import InputError
from assay.results import Verdict

SWEEPS = (6, 4)


@pytest.fixture(scope="module")
def asked() -> tuple[Problem, ...]:
    return problems(seed=1, sweeps=SWEEPS, beta=0.2)


def test_a_kernel_handed_in_as_a_function_is_asked_what_its_name_is_asked(asked: tuple[Problem, ...]) -> None:
    both = ("population", KERNELS["population"])
    options = {"asked": asked, "sweeps": SWEEPS, "precisions": ("float32",), "controls": False}
    by_name, by_hand = (audit_kernel(kernel, **options) for kernel in both)
    assert by_hand.verdict is by_name.verdict is Verdict.PASS
    assert [c.reason for c in by_hand.checks] == [c.reason for c in by_name.checks]


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_every_kernel_of_the_library_matches_the_reference(kernel: str, asked: tuple[Problem, ...]) -> None:
    finding = audit_kernel(kernel, asked=asked, sweeps=SWEEPS, controls=False)
    assert finding.verdict is Verdict.PASS, finding.reason
    names = {row[2] for row in finding.tables[2].rows}
    of_layers = {f"{kind}.{i}" for i in range(4) for kind in ("weights", "biases")}
    of_loops, of_attention = {"w_in", "b", "w", "w_out", "b_out"}, {"tokens", "positions", "project"}
    in_deviations = kernel in ("deviations", "population")
    assert names == of_layers | of_loops | (set() if in_deviations else of_attention)
    assert finding.checks[1].verdict is Verdict.PASS, finding.checks[1].reason


@pytest.mark.parametrize("mistake", sorted(planted()))
def test_a_planted_mistake_is_rejected_everywhere(mistake: str, asked: tuple[Problem, ...]) -> None:
    for problem in asked:
        for precision in ("float32", "float64"):
            compared, _ = compare_all(planted()[mistake], (problem,), (precision,))
            assert max(c.share for c in compared) > 1, (problem.name, precision)


def test_the_controls_are_part_of_the_finding(asked: tuple[Problem, ...]) -> None:
    finding = audit_kernel("fast", asked=asked, sweeps=SWEEPS)
    assert len(finding.controls) == 1 + len(planted())
    assert all(control.separated for control in finding.controls)
    assert finding.evidence == "confirmed"


def _with(answer: KernelAnswer, **changes: object) -> KernelAnswer:
    return replace(answer, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: _with(a, free=a.free[:-1]),
        lambda a: _with(a, gradients={name: g for name, g in a.gradients.items() if not name.startswith("b")}),
        lambda a: _with(a, output=np.full_like(a.output, np.nan)),
        lambda a: _with(a, minus=a.plus),
    ],
    ids=["a sweep missing", "biases missing", "not a number", "one phase twice"],
)
def test_a_users_kernel_that_answers_too_little_is_rejected(spoil: object, asked: tuple[Problem, ...]) -> None:
    def kernel(problem: Problem) -> KernelAnswer:
        return spoil(eager(problem))  # type: ignore[operator, no-any-return]

    finding = audit_kernel(kernel, asked=asked[:1], sweeps=SWEEPS, controls=False)
    assert finding.verdict is Verdict.FAIL
    assert finding.subject == "kernel kernel"


def test_a_float32_kernel_behind_float64_arrays_is_caught(asked: tuple[Problem, ...]) -> None:
    def low(problem: Problem) -> KernelAnswer:
        return eager(problem.cast("float32"))

    assert audit_kernel(low, asked=asked, sweeps=SWEEPS, controls=False).verdict is Verdict.FAIL


def test_bad_arguments_of_the_kernel_audit_are_named() -> None:
    with pytest.raises(InputError, match="unknown kernel 'fats'; did you mean 'fast'"):
        audit_kernel("fats")
    with pytest.raises(InputError, match="0 < beta < 1"):
        audit_kernel("fast", beta=0)
    with pytest.raises(InputError, match="unknown precision"):
        audit_kernel("fast", precisions=("float16",))
