"""A small track for comparing engines: real torch arithmetic, a failing arm when asked, a verdict over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.protocols import Budget, Outcomes, Trial
from assay.registry import track
from assay.results import Finding, Measurement, Verdict


@track(9801, "engine-probe", claim="A seeded sum is the same on every engine.", sources=())
class EngineProbe:
    controls = ("control: other seed",)

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        for arm in ("sum", "control: other seed", "planted failure"):
            for seed in seeds:
                yield Trial(arm, seed, budget)

    def resources(self, trial: Trial) -> Mapping[str, Any]:
        return {"memory": 2 << 30} if trial.arm == "sum" else {}

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        import torch

        if trial.arm == "planted failure" and trial.seed == 43:
            raise ArithmeticError(f"planted at seed {trial.seed}")
        generator = torch.Generator().manual_seed(trial.seed + (trial.arm != "sum"))
        matrix = torch.randn(64, 64, generator=generator)
        return {"value": float((matrix @ matrix).tanh().sum()), "threads": torch.get_num_threads()}

    def decide(self, outcomes: Outcomes) -> Finding:
        values = outcomes.values("sum", "value")
        return Finding(
            subject="engine", claim="", verdict=Verdict.PASS if values else Verdict.INCONCLUSIVE,
            reason=f"threads {sorted(set(outcomes.values('sum', 'threads')))}",
            measurements=(Measurement(name="value", value=values[0], unit="", values=values),) if values else (),
        )
