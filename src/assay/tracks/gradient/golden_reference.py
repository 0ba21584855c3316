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

KERNELS = ("eager", "fast", "deviations", "population")
ROUNDED = "the reference itself, rounded"
MISTAKES = (
    "wrong sign of the feedback", "transposed weight", "dropped bias", "stale cache of the input", "one sweep short",
    "gradient of a bias forgotten", "nudge of the wrong sign", "factor missing in a gradient",
)  # fmt: skip
"""The kernels of ``audits.equilibrium.kernel_subjects.planted``, by name; a test keeps the two lists equal."""
CONTROL = "control: "
SWEEPS, BETA = (30, 10), 0.2
CLAIM = "Every kernel matches the NumPy reference to within numerical tolerance, states and gradients."


@track(
    22,
    "golden-reference",
    claim=CLAIM,
    title="Golden Reference Harness",
    kind="deterministic",
)
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

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        """The audit's comparisons as numbers; a control is a kernel like any other."""
        return self.measure_together([trial])[0]

    def measure_together(self, trials: Sequence[Trial]) -> list[Mapping[str, Any]]:
        """The same for several kernels at one seed."""
        from assay.audits.equilibrium.kernel_problems import problems
        from assay.audits.equilibrium.kernel_subjects import KERNELS as KNOWN
        from assay.audits.equilibrium.kernel_subjects import planted, rounded

        kernels = {**KNOWN, ROUNDED: rounded, **planted()}
        sweeps = (6, 3) if trials[0].budget == "smoke" else SWEEPS
        asked = problems(seed=trials[0].seed, sweeps=sweeps, beta=BETA)
        return [_record(kernels[trial.arm.removeprefix(CONTROL)], trial.seed, sweeps, asked) for trial in trials]

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if no error of any kernel at any seed exceeds what rounding allows."""
        arms = {kernel: dict(sorted(outcomes.arm(kernel).items())) for kernel in KERNELS}
        labelled = [(f"{kernel}, seed {s}", r) for kernel, records in arms.items() for s, r in records.items()]
        if not labelled:
            return Finding(subject="", claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason="no kernel was compared")
        shares = [_number(record["share"]) for _, record in labelled]
        name = "largest error / allowed by rounding"
        decision = stats.numeric_match(shares, 1.0, labels=[label for label, _ in labelled], name=name)
        compared = sum(int(record["compared"]) for _, record in labelled)
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
            tables=(_by_kernel(arms), *(Table.model_validate(table) for table in first["tables"])),
            figures=(Figure.model_validate(first["figure"]),),
            checks=(decision.check("agreement"), _strong(labelled)),
            limitations=(
                "Networks of 16 units a layer; the tables show the first seed of the first kernel.",
                "Convolution is compared with average pooling; a maximum, which jumps when rounding changes a winner, "
                "is left to the tests.",
            ),
            varied=("weights", "trained and untrained", "inputs", "float32", "float64"),
        )


def _record(kernel: Any, seed: int, sweeps: tuple[int, int], asked: Any) -> Mapping[str, Any]:
    from assay.audits.equilibrium.kernel import audit_kernel

    finding = audit_kernel(kernel, seed=seed, sweeps=sweeps, beta=BETA, asked=asked, controls=False)
    deciding = finding.measurement(finding.headline or "")
    return {
        "share": deciding.value,
        "compared": deciding.n,
        "verdict": str(finding.verdict),
        "reason": finding.reason,
        "strong": finding.checks[1].verdict is Verdict.PASS,
        "numbers": {m.name: m.value for m in finding.measurements if m is not deciding},
        "tables": [table.model_dump() for table in finding.tables[:2]],
        "figure": finding.figures[0].model_dump(),
    }


def _by_kernel(arms: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Table:
    rows = []
    for kernel, records in arms.items():
        for seed, record in records.items():
            numbers = record["numbers"]
            rows.append(
                (
                    kernel,
                    seed,
                    *(
                        _number(numbers[f"largest {what} error, {precision}"])
                        for precision in ("float32", "float64")
                        for what in ("state", "gradient")
                    ),
                    _number(record["share"]),
                    record["compared"],
                )
            )
    columns = ("Kernel", "Seed", "States, float32", "Gradients, float32", "States, float64", "Gradients, float64",
               "Worst / allowed", "Compared")  # fmt: skip
    return Table(title="Largest differences from the reference, by kernel and seed", columns=columns, rows=tuple(rows))


def _strong(labelled: Sequence[tuple[str, Mapping[str, Any]]]) -> Check:
    weak = [label for label, record in labelled if not record["strong"]]
    reason = f"a tolerance was as large as what it judged: {', '.join(weak)}" if weak else "in every audit"
    verdict = Verdict.PARTIAL if weak else Verdict.PASS
    return Check(name="every comparison could have failed", verdict=verdict, reason=reason, label="context")


def _number(value: Any) -> float:
    """A number from a record, where infinity is kept as text."""
    return float("nan") if value is None else float(value)
