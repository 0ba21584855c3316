"""Track 14 in tables, figures and controls: which arms exist, what counts as a success, and how both are shown."""

from __future__ import annotations

import statistics

from assay import stats
from assay.protocols import Outcomes
from assay.results import Check, Figure, Reference, Series, Table, Verdict
from assay.tracks.shared.recipe import Rest
from assay.tracks.shared.records import Record, recorded

REVERSAL, MIRROR = "reversal", "mirror sum"
OTHER = "control: one-sided EP"
DISGUISED = "control: backprop through the relaxation, called EP"
STRONG = "control: feedback at full strength"
ALONE = "control: no attention"
FLIPPED = "control: contrast of the wrong sign"
ARMS = (REVERSAL, MIRROR, OTHER, DISGUISED, STRONG, ALONE, FLIPPED)
SUCCESS_RATE = 0.7
"""What ten successes of ten can show (their bound is 74 %); three of three show 37 %."""
SOLVED = 0.99
AGREES = 0.05


class Unrolled(Record):
    """Signs of differentiation through the relaxation: the numbers of ``through_time.ThroughTime``."""

    growth: float
    saved: float
    response: float

    @property
    def found(self) -> str | None:
        """Why this is backprop through the relaxation, or None."""
        from assay.audits.equilibrium.through_time import ThroughTime

        return ThroughTime(self.growth, self.saved, self.response).found


class Sequences(Record):
    """One training: what it gets right of fresh sequences, in percent, and whether its gradient was the loss's own."""

    tested: int
    accuracy: float
    sequences: float
    before: Rest
    after: Rest
    graph: Unrolled
    diverged: str | None
    loss: float

    @property
    def solves(self) -> bool:
        """At least 99 % of fresh sequences without an error."""
        return self.sequences >= 100 * SOLVED

    @property
    def missed(self) -> list[str]:
        """The criteria the training does not meet, in words: task, gradient, no backprop through the relaxation."""
        found = [] if self.solves else ["does not solve"]
        moments = {"before": self.before, "after": self.after}
        found += [f"not the gradient {when} training" for when, rest in moments.items() if not agrees(rest)]
        return [*found, graph] if (graph := self.graph.found) else found


def succeeds(record: Sequences) -> bool:
    """Whether a training meets all criteria."""
    return not record.missed


def agrees(gradient: Rest) -> bool:
    """The estimated gradient is the true one: 5 % of its norm, where its truth is confirmed."""
    return gradient.trusted and gradient.error <= AGREES


def judged(outcomes: Outcomes) -> Check:
    """Whether every training on reversal succeeds; which criteria it missed is in the reason."""
    told, good = [], True
    for record in recorded(outcomes, REVERSAL, Sequences).values():
        wrong = record.missed
        good = good and not wrong
        told.append(
            f"{' and '.join(wrong) or 'success'}: {record.sequences:.2f} % of the sequences, gradient error "
            f"{record.before.error:.2g} before, {record.after.error:.2g} after"
        )
    verdict = Verdict.PASS if told and good else Verdict.FAIL
    return Check(name="succeeds", verdict=verdict, reason="; ".join(told))


def strong_feedback(outcomes: Outcomes) -> tuple[str, ...]:
    """What gamma = 1 did, in plain words."""
    return tuple(
        f"gamma = 1 was expected to fail at the task and {'does not' if record.solves else 'does'}: "
        f"{record.sequences:.2f} % of the sequences come out right; it fails the true-EP criterion, its contrast "
        f"being {record.before.error:.0%} of the gradient's norm away from the gradient."
        for record in recorded(outcomes, STRONG, Sequences).values()
        if not agrees(record.before)
    )


def summary(outcomes: Outcomes) -> Table:
    rows = []
    for arm in (REVERSAL, MIRROR):
        values = [record.accuracy for record in recorded(outcomes, arm, Sequences).values()]
        if values:
            measured = stats.summarise(arm, values)
            spread = None if len(values) < 2 else statistics.stdev(values)
            rows.append((arm.capitalize(), measured.value, spread, min(values), len(values)))
    return Table(title="Token accuracy on fresh sequences (%)", columns=("Task", "Mean", "StdDev", "Worst", "Seeds"),
                 rows=tuple(rows))  # fmt: skip


def table(outcomes: Outcomes) -> Table:
    rows = []
    for arm in ARMS:
        for seed, record in recorded(outcomes, arm, Sequences).items():
            before, after = record.before, record.after
            rows.append((arm, seed, record.accuracy, record.sequences, before.error, before.cosine,
                         before.residual, after.error, after.cosine, after.residual,
                         "yes" if succeeds(record) else "no"))  # fmt: skip
    columns = ("Arm", "Seed", "Tokens (%)", "Sequences (%)", "Gradient error before", "Cosine before",
               "Residual before", "Gradient error after", "Cosine after", "Residual after", "Success")  # fmt: skip
    return Table(title="By seed", columns=columns, rows=tuple(rows),
                 note="gradient: contrast of the relaxations as used, against float64 truth")  # fmt: skip


def accuracy_figure(outcomes: Outcomes) -> Figure:
    arms = [arm for arm in ARMS if outcomes.arm(arm)]
    series = []
    for place, arm in enumerate(arms):
        values = tuple(record.sequences for record in recorded(outcomes, arm, Sequences).values())
        series.append(Series(name=arm, x=(float(place),) * len(values), y=values, style="dots"))
    return Figure(
        key="accuracy-by-arm", question="Which models get whole sequences right?", y_label="without an error (%)",
        categories=tuple(arms), series=tuple(series), references=(Reference(value=100 * SOLVED, label="solved"),),
    )  # fmt: skip


def gradient_figure(outcomes: Outcomes) -> Figure:
    arms = [arm for arm in ARMS if outcomes.arm(arm)]
    series = []
    for place, arm in enumerate(arms):
        values = tuple(max(r.before.error, 1e-6) for r in recorded(outcomes, arm, Sequences).values())
        series.append(Series(name=arm, x=(float(place),) * len(values), y=values, style="dots"))
    return Figure(
        key="gradient-by-arm", question="Is it really equilibrium propagation that trains?", y_scale="log",
        y_label="relative error of the gradient before training", categories=tuple(arms), series=tuple(series),
        references=(Reference(value=AGREES, label="limit"),),
    )  # fmt: skip
