"""Claims in five lines: each call registers a track with trials, floors, controls, tables and figures of its own.

    import assay
    assay.claims.parity(100, "my-rule", rule=MyRule, task="digits", model=net, margin=1)
    run = assay.verify(100, seeds=10)

``parity``, ``non_inferior``, ``better`` and ``solves`` train; ``holds`` and ``constrained`` audit. Controls run as arms
beside the subject and need no naming: labels in random order must be told from learning, backprop from another start
must not be told from itself, an audit must reject the rule turned uphill. ``@assay.track`` stays for everything else.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal

from assay import stats
from assay.errors import expected
from assay.frozen import Frozen
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import Track, registry
from assay.results import Control, Finding, Measurement, Verdict
from assay.studies.arms import Arm, arms
from assay.studies.bench import cells
from assay.studies.bench.asked import Asked, asked_tasks
from assay.studies.bench.cells import FLOORS, REFERENCE, RESTARTED, SHUFFLED, BenchTrial, as_cell
from assay.studies.bench.decide import claimed, decide, equals
from assay.studies.bench.measured import Claim, Measured
from assay.studies.where import gpus_of, named_device

BROKEN = "control: the rule turned uphill"
SUCCESS_RATE = 0.7


def parity(number: int, name: str, *, rule: Any, task: Any, margin: float | str, **options: Any) -> Track:
    """The claim that ``rule`` scores within ± ``margin`` of backprop on ``task``: two one-sided paired tests.

    ``rule``, ``task`` and ``model`` (``"mlp"`` by default) are what ``assay.bench`` takes, and so are ``settings`` and
    ``device``. ``margin`` is in percentage points, in units of a regression target, or a share such as "2%".
    """
    return _compared("parity", number, name, rule=rule, task=task, margin=margin, **options)


def non_inferior(number: int, name: str, *, rule: Any, task: Any, margin: float | str, **options: Any) -> Track:
    """The claim that ``rule`` is worse than backprop by less than ``margin``; arguments as in ``parity``."""
    return _compared("non-inferior", number, name, rule=rule, task=task, margin=margin, **options)


def better(number: int, name: str, *, rule: Any, task: Any, margin: float | str = 0.0, **options: Any) -> Track:
    """The claim that ``rule`` beats backprop by more than ``margin``; arguments as in ``parity``."""
    return _compared("better", number, name, rule=rule, task=task, margin=margin, **options)


def solves(
    number: int, name: str, *, rule: Any, task: Any, score: float, rate: float = SUCCESS_RATE, **options: Any
) -> Track:
    """The claim that training reaches ``score`` at a share ``rate`` of all seeds at least, by the exact lower bound.

    ``score`` is a test accuracy in per cent, or the largest error of a regression. Nine successes of nine are the
    fewest that show a rate of 70 %.
    """
    arm, asked, more = _subject(rule, task, **options)
    body = Solved(arm, asked, more, score=score, rate=rate)
    return _register(number, name, body, claim=body.claim, kind="statistical", sources=body.sources)


def holds(
    number: int, name: str, *, audit: Callable[..., Finding], model: Any, sample: Any, rule: Any = None, **options: Any
) -> Track:
    """The claim that an audit passes at every seed: ``holds(101, "true", audit=assay.audit_gradient, model=..., ...)``.

    ``sample`` is the batch, (x,) or (x, y), or a function of seed that makes one; ``options`` go to the audit. With a
    ``rule``, the rule turned uphill is audited beside it and must not pass; otherwise the audit's own controls count.
    """
    claim = f"{getattr(audit, '__name__', 'the audit')} passes at every seed."
    body = Audited(audit, model, sample, rule, dict(options), claim)
    return _register(number, name, body, claim=claim, kind="deterministic", sources=())


def constrained(number: int, name: str, *, model: Any, sample: Any, limit: float = 1.0, **options: Any) -> Track:
    """The claim that one step of the model stretches no difference of states by more than ``limit``, at every seed."""
    from assay.audits.equilibrium.stability import audit_stability

    claim = f"A step of the model is constrained: its Lipschitz constant is at most {limit:g} at every seed."
    body = Audited(audit_stability, model, sample, None, {"limit": limit, **options}, claim)
    return _register(number, name, body, claim=claim, kind="deterministic", sources=())


@dataclass(frozen=True)
class Trained(ABC):
    """What the claims about training share: an arm and its baseline on one task, measured as in the benchmark."""

    arm: Arm
    asked: Asked
    options: Mapping[str, Any]
    floors: ClassVar[tuple[str, ...]] = (FLOORS,)
    """Arms measured once for all seeds."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Modules whose code decides the numbers, besides the one that makes the claim."""
        return (*self.arm.modules, *(self.asked.source.modules if self.asked.source else ()), __name__)

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """Arm, baseline, controls and floors; what the trial depends on is its configuration."""
        return [trial.as_trial(budget, self._described(trial)) for trial in self._planned(budget, seeds)]

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        """The record of one training."""
        (found,) = (one for one in self._planned(trial.budget, (trial.seed,)) if one.name == trial.arm)
        return cells.measure_cell(as_cell(found, data=None, device=self._device(trial)).payload)

    def resources(self, trial: Trial) -> Mapping[str, Any]:
        """A cell on cuda needs a card."""
        return {"gpus": gpus_of(self._device(trial))}

    def _device(self, trial: Trial) -> str | None:
        device = trial.config.get("device", self.options.get("device"))
        return None if device is None else str(device)

    def _planned(self, budget: Budget, seeds: Sequence[int]) -> list[BenchTrial]:
        both = list(dict.fromkeys([self.arm.baseline, self.arm]))
        return cells.plan_task(self.asked.name, both, budget=budget, seeds=seeds, source=self.asked.source,
                               overrides=self.options.get("settings"))

    def _described(self, trial: BenchTrial) -> dict[str, Any]:
        found = as_cell(trial, data=None, device=self.options.get("device")).payload
        return {key: value for key, value in found.items() if key not in ("data", "seed")}

    def evidence(self, outcomes: Outcomes, margin: float | str, claim: Claim) -> Measured:
        """The outcomes as the benchmark's decisions read them."""
        seeds = tuple(sorted({o.trial.seed for o in outcomes if o.trial.arm == self.arm.name}))
        budget: Budget = next((o.trial.budget for o in outcomes), "quick")
        return Measured.of_outcomes(outcomes, task=self.asked.name, budget=budget, margin=margin, seeds=seeds,
                                    metric=self.asked.metric, claim=claim)

    @abstractmethod
    def decide(self, outcomes: Outcomes) -> Finding:
        """The verdict over all seeds."""


@dataclass(frozen=True)
class Compared(Trained):
    """An arm against backprop on the same model, task, seeds and settings."""

    claim: Claim = "parity"
    margin: float | str = 1.0

    @property
    def controls(self) -> tuple[ControlArm, ...]:
        """Backprop from another start must not be told from itself; learning from shuffled labels must be."""
        model, reference = self.arm.baseline.model, f"{REFERENCE}/{self.arm.baseline.model}"
        again, shuffled = f"{RESTARTED}/{model}", f"{SHUFFLED}/{model}"
        return (
            known_good(again, {self.arm.name: again, self.arm.baseline.name: reference}),
            # Undecided will do for shuffled labels: few seeds with a wide spread often leave it there.
            known_bad(shuffled, {self.arm.name: shuffled, self.arm.baseline.name: reference}, because=("",)),
        )

    def judge(self, outcomes: Outcomes) -> stats.Decision:
        """How two arms stand to each other as equals, whatever is claimed of them: what controls are judged by."""
        return equals(self.evidence(outcomes, self.margin, "parity"), self.arm.name, self.arm.baseline.name)

    def decide(self, outcomes: Outcomes) -> Finding:
        """The benchmark's decision about one arm."""
        return decide(self.evidence(outcomes, self.margin, self.claim), self.arm)


@dataclass(frozen=True)
class Solved(Trained):
    """How often an arm reaches a score; learning from shuffled labels must not."""

    score: float = 0.0
    rate: float = SUCCESS_RATE

    @property
    def controls(self) -> tuple[ControlArm, ...]:
        """Learning from shuffled labels must not reach the score."""
        return (known_bad(f"{SHUFFLED}/{self.arm.baseline.model}", self.arm.name),)

    @property
    def claim(self) -> str:
        """What is claimed, in one sentence."""
        words = "reaches" if self.asked.metric.higher_is_better else "gets down to"
        goal = f"{self.score:g} {self.asked.metric.unit} on {self.asked.name}"
        return f"{self.arm.name} {words} {goal} at {self.rate:.0%} of seeds or more."

    def judge(self, outcomes: Outcomes) -> Finding:
        """Whether any seed reached the score."""
        scores = self.evidence(outcomes, 1.0, "parity").scores(self.arm.name)
        reached = any(map(self._reached, scores))
        told = ", ".join(f"{value:.4g}" for value in scores)
        verdict = Verdict.PASS if reached else Verdict.FAIL
        return Finding(subject=self.arm.name, claim=self.claim, verdict=verdict, reason=told)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the exact lower bound of the success rate reaches the rate claimed."""
        evidence = self.evidence(outcomes, 1.0, "parity")
        seeds, scores = tuple(sorted(evidence.of(self.arm.name))), evidence.scores(self.arm.name)
        if not seeds:
            reason = "no seed finished"
            return Finding(subject=self.arm.name, claim=self.claim, verdict=Verdict.INCONCLUSIVE, reason=reason)
        good = [self._reached(score) for score in scores]
        decision = stats.solves(sum(good), len(good), self.rate)
        unit = self.asked.metric.unit
        return Finding(
            subject=f"{self.arm.name} on {self.asked.name}", claim=self.claim, verdict=decision.verdict,
            reason=decision.reason, score=decision.score, headline=decision.measurement.name,
            key_finding=f"{sum(good)} of {len(good)} seeds reach {self.score:g} {unit}; mean {fmean(scores):.4g}.",
            measurements=(
                decision.measurement.model_copy(update={"values": tuple(map(float, good)), "seeds": seeds}),
                stats.summarise(self.asked.metric.name, scores, unit=unit, seeds=seeds),
            ),
            checks=(decision.check("success rate"),),
            varied=("initialisation", "data order", "split"),
        )

    def _reached(self, score: float) -> bool:
        return score >= self.score if self.asked.metric.higher_is_better else score <= self.score


class AuditRecord(Frozen):
    """What the decision needs of the finding of one audit."""

    verdict: Verdict
    reason: str
    subject: str
    measurement: Measurement | None
    controls: tuple[Control, ...]


@dataclass(frozen=True)
class Audited:
    """An audit at every seed; with a rule, the same rule turned uphill beside it."""

    audit: Callable[..., Finding]
    model: Any
    sample: Any
    rule: Any
    options: Mapping[str, Any]
    claim: str

    @property
    def controls(self) -> tuple[ControlArm, ...]:
        """The rule turned uphill where there is a rule; else the audit must have told its own controls apart."""
        return (known_bad(BROKEN, "audit") if self.rule is not None else known_good("audit", "audit"),)

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """The audit at every seed, the broken rule at the first."""
        broken = [Trial(BROKEN, seeds[0], budget)] if self.rule is not None else []
        return [*(Trial("audit", seed, budget) for seed in seeds), *broken]

    def measure(self, trial: Trial) -> AuditRecord:
        """The finding of one audit, as far as the decision needs it."""
        from assay.learning.controls import Flipped
        from assay.learning.resolve import as_model, as_rule, called

        model = as_model(self.model, seed=trial.seed)
        batch = called(self.sample, "sample", seed=trial.seed) if callable(self.sample) else self.sample
        options = dict(self.options)
        if self.rule is not None:
            rule = as_rule(self.rule, model, seed=trial.seed)
            options["rule"] = Flipped(rule) if trial.arm == BROKEN else rule
        finding = self.audit(model, *(batch if isinstance(batch, tuple | list) else (batch,)), **options)
        deciding = next((m for m in finding.measurements if m.name == finding.headline), None)
        return AuditRecord(verdict=finding.verdict, reason=finding.reason, subject=finding.subject,
                           measurement=deciding, controls=finding.controls)

    def decide(self, outcomes: Outcomes) -> Finding:
        """The worst verdict over seeds."""
        records = {seed: AuditRecord.model_validate(found) for seed, found in outcomes.arm("audit").items()}
        if not records:
            reason = "no audit finished"
            return Finding(subject="audit", claim=self.claim, verdict=Verdict.INCONCLUSIVE, reason=reason)
        seed = max(records, key=lambda seed: records[seed].verdict.severity)
        worst, passes = records[seed], sum(record.verdict is Verdict.PASS for record in records.values())
        verdict = worst.verdict
        if verdict is Verdict.PASS and not all(control.separated for control in worst.controls):
            verdict = Verdict.INCONCLUSIVE
        measurement = worst.measurement or Measurement(name="seeds that pass", value=float(passes), n=len(records))
        return Finding(
            subject=worst.subject, claim=self.claim, verdict=verdict,
            reason=f"seed {seed}: {worst.reason}" if len(records) > 1 else worst.reason,
            headline=measurement.name, measurements=(measurement,), controls=worst.controls,
            varied=("initialisation",),
        )


def _compared(claim: Claim, number: int, name: str, *, margin: float | str, **options: Any) -> Track:
    arm, asked, more = _subject(**options)
    body = Compared(arm, asked, more, claim=claim, margin=margin)
    shown = Measured(asked.name, "quick", 0.0, (), metric=asked.metric, claim=claim)
    words = claimed(shown, arm.name, arm.baseline.name)
    told = margin if isinstance(margin, str) else f"{margin:g} {asked.metric.gap_unit}"
    return _register(number, name, body, claim=words.replace(shown.bound, told) + ".", kind="statistical",
                     sources=body.sources)


def _subject(rule: Any, task: Any, model: Any = "mlp", **more: Any) -> tuple[Arm, Asked, dict[str, Any]]:
    for option in more:
        if option not in ("settings", "device"):
            raise expected("options settings= and device=", given=f"{option}=")
    (asked,) = asked_tasks([task])
    arm = next(arm for arm in reversed(arms([rule], [model])))
    if arm == arm.baseline:
        raise expected("a rule other than the backprop it is compared with", given=f"rule={rule!r}")
    return arm, asked, more | ({"device": named_device(more["device"])} if more.get("device") else {})


def _register(
    number: int, name: str, body: Any, *, claim: str, kind: Literal["statistical", "deterministic"],
    sources: Iterable[str],
) -> Track:
    """Register under the module of whoever made the claim: a worker imports it to find the claim again."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    home = str(frame.f_globals.get("__name__", "__main__"))
    made = Track(
        number=number, name=name, claim=claim, body=body, title=name.replace("-", " ").capitalize(), experiment=claim,
        kind=kind, version=1, sources=tuple(dict.fromkeys(sources)), extras=(), module=home, timeout=6 * 3600.0,
    )
    registry.add(made)
    return made


__all__ = ["better", "constrained", "holds", "non_inferior", "parity", "solves"]
