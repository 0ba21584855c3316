"""A small track for audits: a mean that is inside its region, with controls that are run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay import stats
from assay.protocols import Budget, Outcomes, Trial
from assay.registry import track
from assay.results import Control, Finding


@track(9300, "audited", claim="The gap is within one.", kind="deterministic")
class Audited:
    controls = ("control: equal", "control: far")

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return [Trial(arm, seed, budget) for arm in ("subject", *self.controls) for seed in seeds]

    def measure(self, trial: Trial) -> dict[str, Any]:
        shift = {"subject": 0.1, "control: equal": 0.0, "control: far": 5.0}[trial.arm]
        return {"gap": shift + 0.01 * (trial.seed % 7), "seconds": trial.seed, "items": [trial.seed, "x"]}

    def decide(self, outcomes: Outcomes) -> Finding:
        decided = stats.numeric_match([abs(v) for v in outcomes.values("subject", "gap")], 1.0)
        far = outcomes.values("control: far", "gap")
        controls = (
            Control(name="control: equal", kind="known-good", expected="PASS", observed="PASS",
                    separated=bool(outcomes.arm("control: equal"))),
            Control(name="control: far", kind="known-bad", expected="FAIL", observed="FAIL" if far else "none",
                    separated=bool(far) and min(far) > 1.0),
        )
        return Finding(subject="toy", claim="", verdict=decided.verdict, reason=decided.reason, controls=controls,
                       measurements=(decided.measurement,), headline=decided.measurement.name)
