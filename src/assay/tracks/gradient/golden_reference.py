"""Every kernel is asked for what a plain NumPy reference computes, and must give it back to within rounding.

Layered and looped networks, fresh and trained, in float32 and float64: every unit after every sweep of the free and the
nudged relaxations (as states and as deviations from the free one), the output, and the gradient of every parameter,
biases included. Tolerances are derived from the
precision, the terms of a sum, the depth and the contraction. Kernels with one planted mistake each must be rejected.
Each seed draws other weights and inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Table, Verdict
from assay.tracks.shared.records import Record, recorded

KERNELS = ("eager", "fast", "deviations", "population")
ROUNDED = "the reference itself, rounded"
MISTAKES = (
    "wrong sign of the feedback", "transposed weight", "dropped bias", "stale cache of the input", "one sweep short",
    "gradient of a bias forgotten", "nudge of the wrong sign", "factor missing in a gradient",
)  # fmt: skip
"""The kernels of ``audits.equilibrium.kernel_subjects.planted``, by name; a test keeps the two lists equal."""
CONTROL = "control: "
SWEEPS, BETA = (30, 10), 0.2


class KernelAgreement(Record):
    """One kernel at one seed: its worst error as a share of what rounding allows, and the audit's own pictures."""

    share: float | None
    compared: int
    verdict: Verdict
    reason: str
    strong: bool
    """Whether every comparison could have failed."""
    numbers: dict[str, float | None]
    tables: tuple[Table, ...]
    figure: Figure


CLAIM = "Every kernel matches the NumPy reference to within numerical tolerance, states and gradients."


@track(22, "golden-reference", claim=CLAIM, title="Golden Reference Harness", kind="deterministic")
class GoldenReference:
    """One audit per kernel and seed; the planted mistakes are kernels too."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(CONTROL + ROUNDED, "fast"),
        *(known_bad(CONTROL + mistake, "fast") for mistake in MISTAKES),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """Every kernel at every seed, and each control in its place at the first three."""
        controls = [Trial(arm, seed, budget) for seed in seeds[:3] for control in self.controls for arm in control.arms]
        return [*(Trial(arm, seed, budget) for seed in seeds for arm in KERNELS), *controls]

    def siblings(self, trial: Trial) -> str | None:
        """Kernels of one seed are asked the same problems, half of them trained networks: made once for all."""
        return f"seed {trial.seed}"

    def measure(self, trial: Trial) -> KernelAgreement:
        """The audit's comparisons as numbers; a control is a kernel like any other."""
        return self.measure_together([trial])[0]

    def measure_together(self, trials: Sequence[Trial]) -> list[KernelAgreement]:
        """The same for several kernels at one seed."""
        from assay.audits.equilibrium.kernel_problems import problems
        from assay.audits.equilibrium.kernel_subjects import KERNELS as KNOWN
        from assay.audits.equilibrium.kernel_subjects import planted, rounded

        kernels = {**KNOWN, ROUNDED: rounded, **planted()}
        sweeps = (4, 2) if trials[0].budget == "smoke" else SWEEPS
        asked = problems(seed=trials[0].seed, sweeps=sweeps, beta=BETA)
        chosen = [(kernels[trial.arm.removeprefix(CONTROL)], trial.seed) for trial in trials]
        return [_compared(kernel, seed, sweeps, asked) for kernel, seed in chosen]

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if no error of any kernel at any seed exceeds what rounding allows."""
        arms = {kernel: recorded(outcomes, kernel, KernelAgreement) for kernel in KERNELS}
        labelled = [(f"{kernel}, seed {s}", r) for kernel, records in arms.items() for s, r in records.items()]
        if not labelled:
            return Finding(subject="", claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason="no kernel was compared")
        shares = [_number(record.share) for _, record in labelled]
        name = "largest error / allowed by rounding"
        decision = stats.numeric_match(shares, 1.0, labels=[label for label, _ in labelled], name=name)
        compared = sum(record.compared for _, record in labelled)
        missing = [kernel for kernel, records in arms.items() if not records]
        first = next(iter(next(records for records in arms.values() if records).values()))
        return Finding(
            subject=f"kernels {', '.join(KERNELS)}",
            claim=CLAIM,
            verdict=decision.verdict if not missing else Verdict.INCONCLUSIVE,
            reason=decision.reason if not missing else f"no result for kernel {', '.join(missing)}",
            key_finding=f"{compared} quantities compared, the worst at {max(shares):.1%} of what rounding allows. This "
            "harness makes it safe to optimise: a new kernel must pass it before it is used.",
            score=decision.score,
            headline=name,
            measurements=(decision.measurement,),
            tables=(_by_kernel(arms), *first.tables),
            figures=(first.figure,),
            checks=(decision.check("agreement"), _strong(labelled)),
            limitations=(
                "Networks of 16 units a layer; the tables show the first seed of the first kernel.",
                "Convolution is compared with average pooling; a maximum, which jumps when rounding changes a winner, "
                "is left to the tests.",
            ),
            varied=("weights", "trained and untrained", "inputs", "float32", "float64"),
        )


def _compared(kernel: Any, seed: int, sweeps: tuple[int, int], asked: Any) -> KernelAgreement:
    from assay.audits.equilibrium.kernel import STRENGTH, audit_kernel

    finding = audit_kernel(kernel, seed=seed, sweeps=sweeps, beta=BETA, asked=asked, controls=False)
    deciding = finding.measurement(finding.headline or "")
    return KernelAgreement(
        share=deciding.value,
        compared=deciding.n,
        verdict=finding.verdict,
        reason=finding.reason,
        strong=next(check for check in finding.checks if check.name == STRENGTH).verdict is Verdict.PASS,
        numbers={m.name: m.value for m in finding.measurements if m is not deciding},
        tables=finding.tables[:2],
        figure=finding.figures[0],
    )


def _by_kernel(arms: Mapping[str, Mapping[int, KernelAgreement]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for kernel, records in arms.items():
        for seed, record in records.items():
            rows.append(
                (
                    kernel,
                    seed,
                    *(
                        _number(record.numbers[f"largest {what} error, {precision}"])
                        for precision in ("float32", "float64")
                        for what in ("state", "gradient")
                    ),
                    _number(record.share),
                    record.compared,
                )
            )
    columns = ("Kernel", "Seed", "States, float32", "Gradients, float32", "States, float64", "Gradients, float64",
               "Worst / allowed", "Compared")  # fmt: skip
    return Table(title="Largest differences from the reference, by kernel and seed", columns=columns, rows=tuple(rows))


def _strong(labelled: Sequence[tuple[str, KernelAgreement]]) -> Check:
    weak = [label for label, record in labelled if not record.strong]
    reason = f"a tolerance was as large as what it judged: {', '.join(weak)}" if weak else "in every audit"
    verdict = Verdict.PARTIAL if weak else Verdict.PASS
    return Check(name="every comparison could have failed", verdict=verdict, reason=reason, label="context")


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
