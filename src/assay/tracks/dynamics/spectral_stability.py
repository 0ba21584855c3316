"""Identical looped networks are trained with and without spectral normalisation, from one initialisation, in one order.

Before and after training the Lipschitz constant of one step is enclosed, on validation images and over all states, by a
certified upper bound and an attacked lower bound. Reported beside it: how fast the relaxation contracts, whether the
unconstrained network still settles, and what the constraint costs in accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Reference, Series, Table, Verdict
from assay.stats import Decision
from assay.tracks.shared.records import Pairs, Record, paired, recorded

WITH, WITHOUT = "with spectral norm", "without spectral norm"
PLANTED = {"control: planted norm 1.5": 1.5, "control: planted norm 0.5": 0.5}
"""Untrained loops whose weight is scaled to a known norm: one beyond the limit, one within it."""
LIMIT = 1.0
HIDDEN, EPOCHS, LEARNING_RATE, BETA, SWEEPS = 128, 8, 2e-3, 0.22, (30, 10)
ROUNDING = HIDDEN * 2.0**-23
"""Weights are normalised in float32: their norm may exceed the bound by the width times its epsilon."""
INPUTS = 32


class StepBounds(Record):
    """What is known of one step's Lipschitz constant, and whether the relaxation comes to rest."""

    lower: float
    upper: float
    settled: float
    rate: float | None
    residuals: tuple[float, ...]


class LoopTraining(Record):
    """One network; a planted loop is not trained and has only what is measured at the end."""

    after: StepBounds
    before: StepBounds | None = None
    accuracy: float | None = None
    diverged: str | None = None


CLAIM = "Spectral normalization constrains Lipschitz constant L <= 1, unlike unconstrained training."


@track(1, "spectral-stability", claim=CLAIM, title="Spectral Normalization Stability", version=1)
class SpectralStability:
    """Two trained arms per seed and two planted loops."""

    controls: ClassVar[tuple[ControlArm, ...]] = tuple(
        known_good(arm, WITH) if norm <= LIMIT else known_bad(arm, WITH) for arm, norm in PLANTED.items()
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """Both arms at every seed; the planted loops once, at the first."""
        trained = [Trial(arm, seed, budget) for seed in seeds for arm in (WITH, WITHOUT)]
        return [*trained, *(Trial(arm, seeds[0], budget) for arm in PLANTED)]

    def measure(self, trial: Trial) -> LoopTraining:
        """Bounds before and after training, settling, and test accuracy."""
        from assay.learning import train
        from assay.models import LoopedMLP
        from assay.rules import EqProp
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        x = task.validation.x[: INPUTS // 8 if trial.budget == "smoke" else INPUTS]
        model = LoopedMLP(64, HIDDEN, 10, spectral_norm=trial.arm == WITH, seed=trial.seed)
        if trial.arm in PLANTED:
            _plant(model, PLANTED[trial.arm])
            return LoopTraining(after=_bounds(model, x, trial.seed))
        before = _bounds(model, x, trial.seed)
        rule = EqProp(beta=BETA, sweeps=SWEEPS, on_divergence="record")
        result = train(
            model, task, rule, epochs=1 if trial.budget == "smoke" else EPOCHS, seed=trial.seed,
            learning_rate=LEARNING_RATE, schedule="constant",
        )
        after = _bounds(model, x, trial.seed)
        accuracy = 100 * result.test_accuracy
        return LoopTraining(before=before, after=after, accuracy=accuracy, diverged=result.diverged)

    def judge(self, outcomes: Outcomes) -> Decision:
        """Whether the normalised arm is certified within 1 on every seed."""
        return _held(recorded(outcomes, WITH, LoopTraining))

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the normalised arm is certified within 1 on every seed and the other one exceeds it."""
        pairs = paired(outcomes, WITH, WITHOUT, LoopTraining)
        seeds, normed, unnormed = pairs.seeds, pairs.first, pairs.second
        if not seeds:
            return _nothing()
        upper, free = [one.after.upper for one in normed], [one.after.lower for one in unnormed]
        held = _held(dict(zip(seeds, normed, strict=True)))
        unlike = stats.better(free, [LIMIT] * len(seeds), name="excess of L over 1 without spectral norm", seeds=seeds)
        both = stats.all_hold([held, unlike], claim="constrained with, unconstrained without")
        accuracies = pairs.of(lambda one: _known(one.accuracy))
        cost = [a - b for a, b in zip(*accuracies, strict=True)]
        settles = min(one.after.settled for one in unnormed)
        diverged = [s for s, one in zip(seeds, unnormed, strict=True) if one.diverged or one.after.settled == 0]
        saved = stats.reduction(fmean(free), fmean(upper))
        return Finding(
            subject="LoopedMLP 64-128-10 (tied, tanh) on digits, trained by equilibrium propagation",
            claim=CLAIM,
            verdict=both.verdict,
            reason=both.reason if not both.passed else f"{held.reason}; {unlike.reason}",
            key_finding=f"After training L is at most {max(upper):.4g} with the norm and at least {fmean(free):.3g} "
            f"without (mean of {len(seeds)} seeds): a reduction by {saved:.0%}. "
            + _divergence(diverged, settles, len(seeds)),
            score=both.score,
            headline=held.measurement.name,
            measurements=(
                held.measurement,
                unlike.measurement,
                stats.summarise("accuracy with minus without", cost, unit="pp", seeds=seeds, note="cost of the norm"),
                *(
                    stats.summarise(f"accuracy {arm}", values, unit="%", seeds=seeds)
                    for arm, values in zip((WITH, WITHOUT), accuracies, strict=True)
                ),
                Measurement(name="reduction of L", value=100 * saved, unit="%", source="derived",
                            note="(attacked without - certified with) / attacked without; never above 100 %"),
            ),
            tables=(_summary_table(pairs), _seed_table(pairs)),
            figures=(_slopes(pairs), _residuals(pairs)),
            checks=(held.check("constrained with the norm"), unlike.check("unconstrained without"),
                    _settling_check(pairs)),
            limitations=(
                f"One architecture and task; bounds on {INPUTS} validation images per seed, in the Euclidean norm.",
                "L > 1 does not mean that the relaxation diverges: whether it settled is reported by itself.",
                f"{len(seeds)} seeds leave a divergence rate of {stats.unexcluded_collapse_rate(len(seeds)):.0%} open.",
            ),
            varied=("initialisation", "data order", "split"),
        )  # fmt: skip


def _bounds(model: Any, x: Any, seed: int) -> StepBounds:
    from assay.audits.equilibrium.stability import audit_stability

    finding = audit_stability(model, x, limit=LIMIT, sweeps=200, seed=seed)
    numbers = {m.name: m.value for m in finding.measurements}
    residual = next((f.series[0].y for f in finding.figures if f.key == "residual-by-sweep"), ())
    return StepBounds(
        lower=_known(numbers.get("attacked lower bound", float("inf"))),
        upper=_known(numbers.get("certified on these inputs", float("inf"))),
        settled=(numbers.get("inputs that settle") or 0.0) / 100,
        rate=numbers.get("contraction rate"),
        residuals=tuple(residual),
    )


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


def _plant(model: Any, norm: float) -> None:
    import torch

    with torch.no_grad():
        model.loop.weight.mul_(norm / torch.linalg.matrix_norm(model.loop_weight(), ord=2))


def _held(records: Mapping[int, LoopTraining]) -> Decision:
    after = [one.after for one in records.values()]
    return stats.constrained(
        [one.lower for one in after], [one.upper for one in after], LIMIT, rounding=ROUNDING,
        name="Lipschitz constant with spectral norm", seeds=tuple(records),
    )  # fmt: skip


def _arms(pairs: Pairs[LoopTraining]) -> tuple[tuple[str, tuple[LoopTraining, ...]], ...]:
    return (WITHOUT, pairs.second), (WITH, pairs.first)


def _before(one: LoopTraining) -> float:
    return float("nan") if one.before is None else one.before.lower


def _summary_table(pairs: Pairs[LoopTraining]) -> Table:
    rows = []
    for arm, records in _arms(pairs):
        before, after = fmean(map(_before, records)), fmean(one.after.lower for one in records)
        certified = max(one.after.upper for one in records)
        held = "yes" if certified <= LIMIT * (1 + ROUNDING) else "no"
        rows.append((arm.capitalize(), before, after, after - before, certified, held))
    columns = ("Configuration", "L (before)", "L (after)", "change", "certified (after, largest)", "Constrained?")
    return Table(title="Lipschitz constant of one step", columns=columns, rows=tuple(rows),
                 note="L before and after are attacked lower bounds, mean over seeds")  # fmt: skip


def _seed_table(pairs: Pairs[LoopTraining]) -> Table:
    rows = []
    for place, seed in enumerate(pairs.seeds):
        for arm, records in _arms(pairs):
            one, after = records[place], records[place].after
            rows.append((seed, arm, after.lower, after.upper, after.rate, 100 * after.settled, one.accuracy,
                         one.diverged or "no"))  # fmt: skip
    columns = ("Seed", "Arm", "Attacked", "Certified", "Contraction rate", "Settled (%)", "Accuracy (%)", "Diverged")
    return Table(title="After training, by seed", columns=columns, rows=tuple(rows))


def _slopes(pairs: Pairs[LoopTraining]) -> Figure:
    series = [
        Series(name=f"{arm}, seed {seed}", x=(0.0, 1.0), y=(_before(one), one.after.lower))
        for arm, records in _arms(pairs) for seed, one in zip(pairs.seeds, records, strict=True)
    ]  # fmt: skip
    return Figure(
        key="lipschitz-before-after",
        question="Does training push the step beyond a contraction?",
        kind="slopes",
        y_label="attacked Lipschitz constant",
        categories=("before training", "after training"),
        series=tuple(series),
        references=(Reference(value=LIMIT, label="limit"),),
    )


def _residuals(pairs: Pairs[LoopTraining]) -> Figure:
    series = []
    for arm, records in _arms(pairs):
        values = records[0].after.residuals
        series.append(Series(name=arm, x=tuple(float(i + 1) for i in range(len(values))), y=values))
    return Figure(
        key="residual-by-sweep",
        question=f"Do the trained networks still come to rest? (seed {pairs.seeds[0]})",
        x_label="sweep",
        y_label="largest change of a unit, slowest input",
        y_scale="log",
        series=tuple(series),
    )


def _settling_check(pairs: Pairs[LoopTraining]) -> Check:
    shares = {arm: min(one.after.settled for one in records) for arm, records in reversed(_arms(pairs))}
    told = "; ".join(f"{arm}: {share:.0%} of the inputs at the worst seed" for arm, share in shares.items())
    verdict = Verdict.PASS if shares[WITH] == 1.0 else Verdict.PARTIAL
    return Check(name="trained relaxations settle", verdict=verdict, reason=told, label="not part of the verdict")


def _divergence(diverged: Sequence[int], settles: float, n: int) -> str:
    if diverged:
        return f"Without it {len(diverged)} of {n} networks no longer settled on any input or stopped training."
    return f"Without it no network diverged: at the worst seed {settles:.0%} of the inputs still settled."


def _nothing() -> Finding:
    reason = "no seed finished in both arms"
    return Finding(subject="", claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
