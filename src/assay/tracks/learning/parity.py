"""One network, two rules: equilibrium propagation settles it, backprop differentiates its feed-forward limit.

Both arms of a seed share architecture, initialisation, split, batch order and input noise, and both choose their
learning rate from the same list on the validation part; the test part is looked at once, after that choice. Floors come
first: chance, the largest class, a linear model and a network whose body is never trained. The margin of one percentage
point was fixed before any run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Reference, Region, Series, Table, Verdict
from assay.stats import Decision
from assay.stats.intervals import deviation
from assay.tracks.shared.records import Answered, Record, paired, recorded

EQPROP, BACKPROP, FLOORS = "eqprop", "backprop", "floors"
TWIN = "control: backprop in another order"
FROZEN = "control: frozen body"
SHUFFLED = "control: shuffled labels"
FLIPPED = "control: sign-flipped gradient"
BAD = (FROZEN, SHUFFLED, FLIPPED)
MARGIN, TARGET, TEST_ITEMS, CLASSES = 1.0, 97.5, 360, 10
WIDTHS, GAMMA, BETA, SWEEPS = (64, 128, 128, 10), 0.25, 0.5, (4, 3)
EPOCHS, BATCH, NOISE = 30, 32, 0.15
AT_REST = 1e-3
LEARNING_RATES = (2e-3, 4e-3)
"""The whole tuning budget of every arm, chosen among on validation."""
CONTROL_EPOCHS = 10
"""Enough for a rule that learns to be far above chance; the two broken rules never get there."""
CONTROL_SEEDS = 3
"""The fewest on which parity can be rejected: fewer would be INCONCLUSIVE whatever the control does."""
CLAIM = "EqProp reaches the accuracy of backprop on digits (gap within 1 percentage point)."


class TunedRate(Answered):
    """The better of the rates an arm tried at one seed, its test accuracy (%) and which items it got right."""

    rate: float
    validation: float
    accuracy: float
    history: tuple[float, ...]
    tried: dict[str, float]
    """Validation accuracy (%) at each rate."""
    diverged: str | None = None
    residual: float | None = None


class FloorsReached(Record):
    """Accuracies (%) that need no learning of a body."""

    chance: float
    majority: float
    logistic: float


@track(2, "parity", claim=CLAIM, title="EqProp vs Backprop Parity")
class Parity:
    """Two arms and their floors at every seed; broken learners at the first three."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(TWIN, EQPROP),
        known_bad(FROZEN, EQPROP),
        *(known_bad(arm, EQPROP, because=("not above", "lies outside")) for arm in (SHUFFLED, FLIPPED)),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """Arms, floors and the healthy twin at every seed, broken learners at the first three."""
        arms = [Trial(arm, seed, budget) for seed in seeds for arm in (EQPROP, BACKPROP, FLOORS, TWIN)]
        return [*arms, *(Trial(arm, seed, budget) for seed in seeds[:CONTROL_SEEDS] for arm in BAD)]

    def siblings(self, trial: Trial) -> str | None:
        """Seeds trained by backprop go side by side to the same bits; those of a relaxation do not, and go alone."""
        return trial.arm if trial.arm == BACKPROP else None

    def measure(self, trial: Trial) -> TunedRate | FloorsReached:
        """The best of the learning rates on validation, and its test accuracy."""
        from assay.tasks import digits

        if trial.arm == FLOORS:
            floors = digits(seed=trial.seed).floors().as_record()
            return FloorsReached(**{name: 100 * floors[name] for name in FloorsReached.model_fields})
        return self.measure_together([trial])[0]

    def measure_together(self, trials: Sequence[Trial]) -> list[TunedRate]:
        """The same for several seeds of one arm."""
        from assay.tasks import digits

        if len(trials) > 1 and self.siblings(trials[0]) is None:
            return [record for trial in trials for record in self.measure_together([trial])]
        tasks = [digits(seed=trial.seed) for trial in trials]
        chosen = trials[0].arm not in (SHUFFLED, FLIPPED) and trials[0].budget != "smoke"
        rates = LEARNING_RATES if chosen else LEARNING_RATES[:1]
        by_rate = [_trained(trials, tasks, rate) for rate in rates]
        records = []
        for tried in zip(*by_rate, strict=True):
            best = max(tried, key=lambda record: (record.validation, -record.rate))
            by_name = {str(record.rate): record.validation for record in tried}
            records.append(best.model_copy(update={"tried": by_name}))
        return records

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the 90 % interval of the paired gap lies within one point and both arms are above their floors."""
        pairs = paired(outcomes, EQPROP, BACKPROP, TunedRate)
        seeds, (ours, theirs) = pairs.seeds, pairs.of(lambda record: record.accuracy)
        floors = recorded(outcomes, FLOORS, FloorsReached)
        if not seeds or not floors:
            reason = "no seed finished in both arms with its floors"
            return Finding(subject="", claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
        majority = max(record.majority for record in floors.values()) / 100
        guard = stats.above_chance(
            {EQPROP: ours, BACKPROP: theirs}, items=TEST_ITEMS, chance=1 / CLASSES, majority=majority, scale=100
        )
        answers = stats.recorded_answers(outcomes.arm(EQPROP), outcomes.arm(BACKPROP)) if len(seeds) >= 2 else None
        decision = _parity(ours, theirs, seeds, guards=(guard,), answers=answers)
        level = stats.summarise("accuracy of EqProp", ours, unit="%", seeds=seeds)
        level = level.model_copy(update={"region": Region(low=TARGET)})
        reached = (level.value or 0.0) >= TARGET
        verdict = decision.verdict if reached or not decision.passed else Verdict.PARTIAL
        worst = min(range(len(seeds)), key=ours.__getitem__)
        linear = fmean(record.logistic for record in floors.values())
        return Finding(
            subject="EnergyMLP 64-128-128-10, gamma 0.25, on digits",
            claim=CLAIM,
            verdict=verdict,
            reason=decision.reason if reached else f"{decision.reason}; EqProp {level.value:.2f} % misses {TARGET} %",
            key_finding=f"EqProp {level.value:.2f} %, backprop {fmean(theirs):.2f} %, linear model {linear:.2f} %: gap "
            f"{fmean(ours) - fmean(theirs):+.2f} pp; worst EqProp seed {seeds[worst]} with {ours[worst]:.2f} %.",
            score=decision.score,
            headline=decision.measurement.name,
            measurements=(
                decision.measurement,
                level,
                stats.summarise("accuracy of backprop", theirs, unit="%", seeds=seeds),
                *_floors(outcomes, floors),
                *_within_reach(decision, len(seeds)),
            ),
            tables=(_table(seeds, ours, theirs, floors), _tuning_table(outcomes)),
            figures=(_slopes(seeds, ours, theirs, linear), _learning(outcomes, seeds[0])),
            checks=(*decision.checks, *_level_checks(ours, linear, reached, level), decision.check("parity")),
            limitations=(
                *_unrest(outcomes),
                f"One small task of {TEST_ITEMS} test images per seed; the seed draws the split too.",
                "The backprop arm is the feed-forward limit (gamma -> 0) of the same network with the same weights.",
                f"Both arms chose among {len(LEARNING_RATES)} learning rates on validation, and nothing else.",
                *decision.notes,
            ),
            improvements=() if decision.passed else _improvements(decision),
            varied=("initialisation", "data order", "input noise", "split"),
        )


def _unrest(outcomes: Outcomes) -> tuple[str, ...]:
    """How far from rest the relaxations ended; nothing if they rested."""
    found = [record.residual for record in recorded(outcomes, EQPROP, TunedRate).values()]
    residuals = [residual for residual in found if residual is not None]
    if not residuals or max(residuals) < AT_REST:
        return ()
    return (
        f"Far from rest: cut short after {SWEEPS[0]} and {SWEEPS[1]} sweeps, relaxations of the last epoch still moved "
        f"by up to {max(residuals):.2g}. This shows that such a schedule trains as well as backprop, and little about "
        "equilibria; track 9 compares gradients at rest, track 13 asks for parity there.",
    )


def _epochs(trial: Trial) -> int:
    if trial.budget == "smoke":
        return 2
    return CONTROL_EPOCHS if trial.arm in (SHUFFLED, FLIPPED) else EPOCHS


def _trained(trials: Sequence[Trial], tasks: Sequence[Any], rate: float) -> list[TunedRate]:
    """One training a trial; the test part is replaced while choosing is still going on, and looked at by name only."""
    from assay.learning import evaluate, train_many
    from assay.learning.answers import answered
    from assay.learning.controls import Flipped, shuffle_labels
    from assay.models import EnergyMLP
    from assay.rules import Backprop, EqProp

    arm = trials[0].arm
    settles = arm in (EQPROP, SHUFFLED, FLIPPED)
    networks = [EnergyMLP(WIDTHS, gamma=GAMMA, seed=trial.seed) for trial in trials]
    models = networks if settles else [network.feedforward() for network in networks]
    rule: Any = EqProp(beta=BETA, sweeps=SWEEPS, on_divergence="record") if settles else Backprop()
    rule = Flipped(rule) if arm == FLIPPED else rule
    if arm == FROZEN:
        for parameter in (each for model in models for each in list(model.parameters())[:-2]):
            parameter.requires_grad_(False)
    data = [replace(task, test=task.validation) for task in tasks]
    if arm == SHUFFLED:
        pairs = zip(data, trials, strict=True)
        data = [shuffle_labels(each, seed=trial.seed) for each, trial in pairs]
    results = train_many(
        models,
        data,
        rule,
        epochs=_epochs(trials[0]),
        # The twin differs from backprop in the order of the batches and the noise, and in nothing else.
        seeds=[trial.seed + (10_000 if arm == TWIN else 0) for trial in trials],
        batch_size=BATCH,
        learning_rate=rate,
        input_noise=NOISE,
    )
    return [
        TunedRate(
            rate=rate,
            validation=100 * result.validation_accuracy,
            tried={},
            accuracy=100 * evaluate(model, task.test).accuracy,
            history=tuple(100 * epoch.validation_accuracy for epoch in result.history),
            diverged=result.diverged,
            residual=result.history[-1].residual if result.history else None,
            **answered(model, task.test),
        )
        for model, task, result in zip(models, tasks, results, strict=True)
    ]


def _parity(
    a: Sequence[float],
    b: Sequence[float],
    seeds: Sequence[int],
    *,
    guards: Iterable[Decision] = (),
    answers: stats.Answers | None = None,
) -> Decision:
    return stats.parity(
        a, b, margin=MARGIN, items=TEST_ITEMS, answers=answers, scale=100.0, guards=guards, name="gap", unit="pp",
        seeds=seeds,
    )  # fmt: skip


def _floors(outcomes: Outcomes, floors: Mapping[int, FloorsReached]) -> list[Measurement]:
    majority, linear = zip(*((record.majority, record.logistic) for record in floors.values()), strict=True)
    found = [stats.summarise("largest class", majority, unit="%", seeds=tuple(floors)),
             stats.summarise("linear model", linear, unit="%", seeds=tuple(floors))]  # fmt: skip
    frozen = {seed: record.accuracy for seed, record in recorded(outcomes, FROZEN, TunedRate).items()}
    if frozen:
        found.append(stats.summarise("frozen body", tuple(frozen.values()), unit="%", seeds=tuple(frozen)))
    return found


def _within_reach(decision: Decision, seeds: int) -> list[Measurement]:
    if decision.minimal_margin is None:
        return []
    note = f"{seeds} seeds with this spread would confirm it with 80 % power at a true gap of 0"
    return [Measurement(name="smallest margin within reach", value=decision.minimal_margin, unit="pp",
                        source="derived", note=note)]  # fmt: skip


def _level_checks(ours: Sequence[float], linear: float, reached: bool, level: Measurement) -> tuple[Check, ...]:
    above = fmean(ours) > linear
    return (
        Check(name=f"EqProp reaches {TARGET} %", verdict=Verdict.PASS if reached else Verdict.FAIL,
              reason=f"mean {level.value:.2f} %, {level.interval or 'no interval'}"),
        Check(name="EqProp beats the linear floor", verdict=Verdict.PASS if above else Verdict.FAIL,
              reason=f"{fmean(ours):.2f} % against {linear:.2f} %", label="context"),
    )  # fmt: skip


def _table(
    seeds: Sequence[int], ours: Sequence[float], theirs: Sequence[float], floors: Mapping[int, FloorsReached]
) -> Table:
    rows: list[tuple[Any, ...]] = [
        (str(seed), a, b, a - b, floors[seed].logistic if seed in floors else None)
        for seed, a, b in zip(seeds, ours, theirs, strict=True)
    ]
    linear = fmean(record.logistic for record in floors.values())
    rows.append(("mean", fmean(ours), fmean(theirs), fmean(ours) - fmean(theirs), linear))
    return Table(
        title="Test accuracy by seed (%)",
        columns=("Seed", "EqProp", "Backprop", "Gap (pp)", "Linear floor"),
        rows=tuple(rows),
        note=f"gap = EqProp - backprop; margin {MARGIN:g} pp fixed beforehand; chance {100 / CLASSES:g} %",
    )


def _tuning_table(outcomes: Outcomes) -> Table:
    rows = []
    for arm in (EQPROP, BACKPROP):
        for seed, record in recorded(outcomes, arm, TunedRate).items():
            rows.append((arm, seed, *(record.tried.get(str(rate)) for rate in LEARNING_RATES), record.rate))
    columns = ("Arm", "Seed", *(f"validation at {rate:g} (%)" for rate in LEARNING_RATES), "chosen rate")
    return Table(title="What was chosen on validation", columns=columns, rows=tuple(rows))


def _slopes(seeds: Sequence[int], ours: Sequence[float], theirs: Sequence[float], linear: float) -> Figure:
    return Figure(
        key="paired-accuracy",
        question="Which rule does better, seed by seed?",
        kind="slopes",
        y_label="test accuracy (%)",
        categories=("backprop", "EqProp"),
        series=tuple(
            Series(name=f"seed {s}", x=(0.0, 1.0), y=(b, a)) for s, a, b in zip(seeds, ours, theirs, strict=True)
        ),
        references=(Reference(value=linear, label="linear floor"),),
    )


def _learning(outcomes: Outcomes, seed: int) -> Figure:
    series = []
    for arm in (EQPROP, BACKPROP, *BAD):
        if found := recorded(outcomes, arm, TunedRate).get(seed):
            epochs = tuple(float(epoch) for epoch, _ in enumerate(found.history, 1))
            series.append(Series(name=arm, x=epochs, y=found.history))
    return Figure(
        key="learning-curves",
        question=f"How do the arms and the broken learners learn? (seed {seed})",
        x_label="epoch",
        y_label="validation accuracy (%)",
        series=tuple(series),
        references=(Reference(value=100 / CLASSES, label="chance"),),
    )


def _improvements(decision: Decision) -> tuple[str, ...]:
    spread = None if decision.minimal_margin is None else deviation(decision.measurement.values)
    if not spread:
        return ("Run more seeds: assay verify 2 --budget standard.",)
    needed = stats.seeds_needed(MARGIN, spread)
    return (
        f"About {needed} seeds show this margin with 80 % power at the spread seen: assay verify 2 --seeds {needed}.",
    )
