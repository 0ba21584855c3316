"""Small tracks for the tests of verification; imported by worker processes. Numbers from 9100 on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Control, Finding, Region, Verdict
from assay.seeding import numpy_generator


class Toy:
    """Measures its seed; the control measures nothing. Subclasses misbehave in one way each."""

    controls: ClassVar = (known_bad("control: empty", "subject"),)

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        for seed in seeds:
            yield Trial("subject", seed, budget)
        yield Trial("control: empty", seeds[0] * 0, budget)

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        if log := os.environ.get("TOY_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{trial.arm} {trial.seed}\n")
        return {"value": 0.0 if trial.arm.startswith("control") else float(trial.seed)}

    def decide(self, outcomes: Outcomes) -> Finding:
        values = outcomes.values("subject", "value")
        return Finding(
            subject="toy",
            claim="",
            verdict=Verdict.PASS if all(values) else Verdict.FAIL,
            reason="all seeds are positive",
            headline="value",
            measurements=(stats.summarise("value", values).model_copy(update={"region": Region(low=0.0)}),),
        )


@track(9100, "toy-good", claim="seeds are positive", kind="deterministic", sources=())
class Good(Toy):
    """Behaves."""


@track(9101, "toy-statistical", claim="seeds are positive on average", kind="statistical", sources=())
class Statistical(Toy):
    """Says PASS whatever the number of seeds."""


@track(9102, "toy-raises", claim="seed 43 works", kind="deterministic", sources=())
class Raises(Toy):
    """One cell raises."""

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        if trial.seed == 43:
            raise ArithmeticError("planted in seed 43")
        return super().measure(trial)


@track(9103, "toy-killed", claim="seed 43 survives", kind="deterministic", sources=())
class Killed(Toy):
    """One cell is killed."""

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        if trial.seed == 43:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().measure(trial)


@track(9104, "toy-undecidable", claim="decide works", kind="deterministic", sources=())
class Undecidable(Toy):
    """Decide raises."""

    def decide(self, outcomes: Outcomes) -> Finding:
        raise KeyError("planted in decide")


@track(9105, "toy-uncalibrated", claim="controls are told apart", kind="deterministic", sources=())
class Uncalibrated(Toy):
    """Says PASS although its known-bad subject passed too."""

    def decide(self, outcomes: Outcomes) -> Finding:
        return super().decide(outcomes).model_copy(update={"verdict": Verdict.PASS})


@track(9106, "toy-fails", claim="seeds are negative", kind="deterministic", sources=())
class Fails(Toy):
    """Says FAIL."""

    def decide(self, outcomes: Outcomes) -> Finding:
        return super().decide(outcomes).model_copy(update={"verdict": Verdict.FAIL, "reason": "seeds are positive"})


@track(9110, "toy-parity", claim="the mean gap is within 1", kind="statistical")
class Parity:
    """A gap drawn by the seed, with a spread that ten seeds resolve and three do not; controls are run."""

    spread: ClassVar[float] = 0.7
    margin: ClassVar[float] = 1.0
    controls: ClassVar = (known_good("control: same", "gap"), known_bad("control: shifted", "gap"))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        subjects = [Trial("gap", seed, budget) for seed in seeds]
        return [*subjects, *(Trial(arm, s, budget) for s in seeds[:3] for arm in ("control: same", "control: shifted"))]

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        gap = self.spread * float(numpy_generator(trial.seed, "toy parity").normal())
        return {"gap": 0.01 * gap + 5.0 if trial.arm == "control: shifted" else gap}

    def decide(self, outcomes: Outcomes) -> Finding:
        seeds, gaps = tuple(sorted(outcomes.arm("gap"))), outcomes.values("gap", "gap")
        decision = stats.parity(gaps, [0.0] * len(gaps), margin=self.margin, seeds=seeds)
        return Finding(
            subject="toy", claim="", verdict=decision.verdict, reason=decision.reason, headline="gap",
            measurements=(decision.measurement,),
        )  # fmt: skip


@track(9111, "toy-lone", claim="the mean gap is within 1", kind="statistical")
class Lone(Parity):
    """Runs one trial whatever is asked, and repeats its number."""

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return list(super().trials(budget, seeds[:1]))

    def decide(self, outcomes: Outcomes) -> Finding:
        value = outcomes.values("gap", "gap")[0]
        gaps = [value + i / 100 for i in range(10)]
        decision = stats.parity(gaps, [0.0] * 10, margin=1.0)
        return Finding(
            subject="toy", claim="", verdict=decision.verdict, reason=decision.reason, headline="gap",
            measurements=(decision.measurement,),
        )  # fmt: skip


@track(9112, "toy-constant-controls", claim="the mean gap is within 1", kind="statistical")
class ConstantControls(Parity):
    """Hands in controls it never ran."""

    controls: ClassVar = ("control: same", "control: shifted")

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return [Trial("gap", seed, budget) for seed in seeds]

    def decide(self, outcomes: Outcomes) -> Finding:
        told = [
            Control(name=name, kind=kind, expected=expected, observed=expected, separated=True)
            for name, kind, expected in (("same", "known-good", "PASS"), ("shifted", "known-bad", "FAIL"))
        ]
        return super().decide(outcomes).model_copy(update={"controls": tuple(told)})
