"""Small tracks for the tests of verification; imported by worker processes. Numbers from 9100 on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, Outcomes, Trial, known_bad
from assay.registry import track
from assay.results import Finding, Region, Verdict


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
