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

WITH, WITHOUT = "with spectral norm", "without spectral norm"
PLANTED = {"control: planted norm 1.5": 1.5, "control: planted norm 0.5": 0.5}
"""Untrained loops whose weight is scaled to a known norm: one beyond the limit, one within it."""
LIMIT = 1.0
HIDDEN, EPOCHS, LEARNING_RATE, BETA, SWEEPS = 128, 8, 2e-3, 0.22, (30, 10)
ROUNDING = HIDDEN * 2.0**-23
"""Weights are normalised in float32: their norm may exceed the bound by the width times its epsilon."""
INPUTS = 32
CLAIM = "Spectral normalization constrains Lipschitz constant L <= 1, unlike unconstrained training."


@track(
    1,
    "spectral-stability",
    claim=CLAIM,
    title="Spectral Normalization Stability",
    version=1,
)
class SpectralStability:
    """Two trained arms per seed and two planted loops."""

    controls: ClassVar[tuple[ControlArm, ...]] = tuple(
        known_good(arm, WITH) if norm <= LIMIT else known_bad(arm, WITH) for arm, norm in PLANTED.items()
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """Both arms at every seed; the planted loops once, at the first."""
        trained = [Trial(arm, seed, budget) for seed in seeds for arm in (WITH, WITHOUT)]
        return [*trained, *(Trial(arm, seeds[0], budget) for arm in PLANTED)]

    def measure(self, trial: Trial) -> Mapping[str, Any]:
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
            return {"after": _bounds(model, x, trial.seed)}
        before = _bounds(model, x, trial.seed)
        rule = EqProp(beta=BETA, sweeps=SWEEPS, on_divergence="record")
        result = train(
            model, task, rule, epochs=1 if trial.budget == "smoke" else EPOCHS, seed=trial.seed,
            learning_rate=LEARNING_RATE, schedule="constant",
        )
        return {
            "before": before,
            "after": _bounds(model, x, trial.seed),
            "accuracy": 100 * result.test_accuracy,
            "diverged": result.diverged,
            "residual": result.history[-1].residual,
        }

    def judge(self, outcomes: Outcomes) -> Decision:
        """Whether the normalised arm is certified within 1 on every seed."""
        return _held(outcomes, tuple(sorted(outcomes.arm(WITH))))

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the normalised arm is certified within 1 on every seed and the other one exceeds it."""
        seeds = tuple(sorted(outcomes.arm(WITH).keys() & outcomes.arm(WITHOUT).keys()))
        if not seeds:
            return _nothing()
        bound = {
            (arm, when, side): [outcomes.arm(arm)[s][when][side] for s in seeds]
            for arm in (WITH, WITHOUT) for when in ("before", "after") for side in ("lower", "upper", "settled", "rate")
        }  # fmt: skip
        upper, free = bound[WITH, "after", "upper"], bound[WITHOUT, "after", "lower"]
        held = _held(outcomes, seeds)
        unlike = stats.better(free, [LIMIT] * len(seeds), name="excess of L over 1 without spectral norm", seeds=seeds)
        both = stats.all_hold([held, unlike], claim="constrained with, unconstrained without")
        cost = [outcomes.arm(WITH)[s]["accuracy"] - outcomes.arm(WITHOUT)[s]["accuracy"] for s in seeds]
        settles = min(bound[WITHOUT, "after", "settled"])
        diverged = [s for s in seeds if outcomes.arm(WITHOUT)[s]["diverged"] or settled(outcomes, s) == 0]
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
                    stats.summarise(f"accuracy {arm}", outcomes.values(arm, "accuracy"), unit="%", seeds=seeds)
                    for arm in (WITH, WITHOUT)
                    if len(outcomes.arm(arm)) == len(seeds)
                ),
                Measurement(name="reduction of L", value=100 * saved, unit="%", source="derived",
                            note="(attacked without - certified with) / attacked without; never above 100 %"),
            ),
            tables=(_summary_table(bound), _seed_table(outcomes, seeds)),
            figures=(_slopes(bound, seeds), _residuals(outcomes, seeds[0])),
            checks=(held.check("constrained with the norm"), unlike.check("unconstrained without"),
                    _settling_check(bound)),
            limitations=(
                f"One architecture and task; bounds on {INPUTS} validation images per seed, in the Euclidean norm.",
                "L > 1 does not mean that the relaxation diverges: whether it settled is reported by itself.",
                f"{len(seeds)} seeds leave a divergence rate of {stats.unexcluded_collapse_rate(len(seeds)):.0%} open.",
            ),
            varied=("initialisation", "data order", "split"),
        )  # fmt: skip


def settled(outcomes: Outcomes, seed: int) -> float:
    """The share of inputs whose relaxation came to rest in the unconstrained network after training."""
    return float(outcomes.arm(WITHOUT)[seed]["after"]["settled"])


def _bounds(model: Any, x: Any, seed: int) -> dict[str, Any]:
    from assay.audits.equilibrium.stability import audit_stability

    finding = audit_stability(model, x, limit=LIMIT, sweeps=200, seed=seed)
    numbers = {m.name: m.value for m in finding.measurements}
    residual = next((f.series[0].y for f in finding.figures if f.key == "residual-by-sweep"), ())
    return {
        "lower": numbers.get("attacked lower bound", float("inf")),
        "upper": numbers.get("certified on these inputs", float("inf")),
        "settled": (numbers.get("inputs that settle") or 0.0) / 100,
        "rate": numbers.get("contraction rate"),
        "verdict": str(finding.verdict),
        "residuals": list(residual),
    }


def _plant(model: Any, norm: float) -> None:
    import torch

    with torch.no_grad():
        model.loop.weight.mul_(norm / torch.linalg.matrix_norm(model.loop_weight(), ord=2))


def _held(outcomes: Outcomes, seeds: Sequence[int]) -> Decision:
    after = [outcomes.arm(WITH)[seed]["after"] for seed in seeds]
    lower, upper = ([bounds[side] for bounds in after] for side in ("lower", "upper"))
    name = "Lipschitz constant with spectral norm"
    return stats.constrained(lower, upper, LIMIT, rounding=ROUNDING, name=name, seeds=seeds)


Bounds = Mapping[tuple[str, str, str], Sequence[Any]]


def _summary_table(bound: Bounds) -> Table:
    rows = []
    for arm in (WITHOUT, WITH):
        before, after = (fmean(bound[arm, when, "lower"]) for when in ("before", "after"))
        certified = max(bound[arm, "after", "upper"])
        held = "yes" if certified <= LIMIT * (1 + ROUNDING) else "no"
        rows.append((arm.capitalize(), before, after, after - before, certified, held))
    columns = ("Configuration", "L (before)", "L (after)", "change", "certified (after, largest)", "Constrained?")
    return Table(title="Lipschitz constant of one step", columns=columns, rows=tuple(rows),
                 note="L before and after are attacked lower bounds, mean over seeds")  # fmt: skip


def _seed_table(outcomes: Outcomes, seeds: Sequence[int]) -> Table:
    rows = []
    for seed in seeds:
        for arm in (WITHOUT, WITH):
            record = outcomes.arm(arm)[seed]
            after = record["after"]
            rows.append((seed, arm, after["lower"], after["upper"], after["rate"], 100 * after["settled"],
                         record["accuracy"], record["diverged"] or "no"))  # fmt: skip
    columns = ("Seed", "Arm", "Attacked", "Certified", "Contraction rate", "Settled (%)", "Accuracy (%)", "Diverged")
    return Table(title="After training, by seed", columns=columns, rows=tuple(rows))


def _slopes(bound: Bounds, seeds: Sequence[int]) -> Figure:
    series = [
        Series(name=f"{arm}, seed {seed}", x=(0.0, 1.0),
               y=(bound[arm, "before", "lower"][i], bound[arm, "after", "lower"][i]))
        for arm in (WITHOUT, WITH) for i, seed in enumerate(seeds)
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


def _residuals(outcomes: Outcomes, seed: int) -> Figure:
    series = []
    for arm in (WITHOUT, WITH):
        values = outcomes.arm(arm)[seed]["after"]["residuals"]
        series.append(Series(name=arm, x=tuple(float(i + 1) for i in range(len(values))), y=tuple(values)))
    return Figure(
        key="residual-by-sweep",
        question=f"Do the trained networks still come to rest? (seed {seed})",
        x_label="sweep",
        y_label="largest change of a unit, slowest input",
        y_scale="log",
        series=tuple(series),
    )


def _settling_check(bound: Bounds) -> Check:
    shares = {arm: min(bound[arm, "after", "settled"]) for arm in (WITH, WITHOUT)}
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
