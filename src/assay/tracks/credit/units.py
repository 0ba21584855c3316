"""A net trained by backprop on digits is rewritten: its stream is a million times larger, its answers are the same.

The published reference check compares |dL/dh| with 1e-7 and so depends on the units of h; the gauge-invariant size and
the agreement of float32 with float64 do not. A net whose softmax is saturated, so that float32 really has no gradient
left, is the known-bad subject; the net as trained is the known-good one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.tracks.credit import training
from assay.tracks.shared.records import Record, recorded

if TYPE_CHECKING:
    from torch import nn

LARGER, SURER = 1e6, 8.0
SUBJECT = "Reference checks on a backprop-trained net"
ARMS = ("rescaled", "control: as trained", "control: saturated")
CHANGE = 0.01
"""The invariant may change by 1 %: LayerNorm's eps of 1e-5 stands beside a variance of order 1e-2 before rescaling."""

SAME = 0.99
"""Share of answers that must survive the rescaling: otherwise it is another function, and nothing is shown."""
CLAIM = "The published reference check changes its answer when the stream is measured in other units; ours does not."


class ReferenceSize(Record):
    """The reference gradient of one net at its last block: as published, invariant, and what float32 leaves of it."""

    raw: float
    fires: bool
    """Whether the published D2 fires."""
    invariant: float
    noise: float
    """The largest share of samples, over blocks, whose gradient is rounding."""
    valid: bool
    clamped: float
    same_answers: float
    samples: int


@track(133, "credit-units", claim=CLAIM, title="The published D2 depends on units", kind="deterministic", timeout=600.0)
class Units:
    """One function, two scales of its stream."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good("control: as trained", "rescaled"),
        known_bad("control: saturated", "rescaled"),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> ReferenceSize:
        from assay.audits.credit.published import GRADIENT_LIMIT
        from assay.audits.credit.reference import measure_reference
        from assay.audits.credit.stream import exact_stream, plain_stream
        from assay.probe.blocks import discover_blocks

        data = training.task_called("digits", trial.seed)
        model, _ = training.trained("backprop", data, trial.seed, budget=trial.budget)
        x, y = data.test.x[: training.BATCH_AUDITED], data.test.y[: training.BATCH_AUDITED]
        before = model(x).argmax(1)
        _rewrite(model, trial.arm)
        blocks = discover_blocks(model, x)
        found = measure_reference(exact_stream(model, x, y, blocks), plain_stream(model, x, y, blocks))
        return ReferenceSize(
            raw=found.raw[-1], fires=found.raw[-1] < GRADIENT_LIMIT, invariant=found.invariant[-1],
            noise=max(found.noise), valid=found.valid, clamped=min(found.clamped_self_cosine),
            same_answers=float((model(x).argmax(1) == before).double().mean()), samples=len(y),
        )

    def judge(self, outcomes: Outcomes) -> Check:
        """Our reference check on the rescaled net: is float32 sound at every seed?"""
        records = recorded(outcomes, "rescaled", ReferenceSize).values()
        sound = bool(records) and all(record.valid for record in records)
        return Check(name="reference", verdict=Verdict.PASS if sound else Verdict.FAIL, reason=_words(records))

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if, at every seed, D2 fires on the rescaled net alone and our reference check stays as it was.

        FAIL if D2 stays as it was, or if ours moves; undecided if the rescaled net gives other answers.
        """
        arms = {arm: recorded(outcomes, arm, ReferenceSize) for arm in ARMS}
        if reason := training.undecidable(
            arms, raw=_raw, invariant=_invariant, noise=lambda r: r.noise, same_answers=lambda r: r.same_answers
        ):
            return Finding(subject=SUBJECT, claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
        rescaled, healthy, saturated = arms.values()
        seeds = sorted(rescaled.keys() & healthy.keys())
        moved = all(rescaled[s].fires and not healthy[s].fires for s in seeds)
        change = max(abs(_ratio(rescaled[s].invariant, healthy[s].invariant) - 1) for s in seeds)
        steady = change <= CHANGE and self.judge(outcomes).verdict is Verdict.PASS
        same = min(rescaled[s].same_answers for s in seeds)
        raw = min(_ratio(rescaled[s].raw, healthy[s].raw) for s in seeds)
        fires = [sum(arm[s].fires for s in seeds) for arm in (rescaled, healthy)]
        told = (f"rescaled by {LARGER:g}: same answers on {same:.1%} of items; |g| changes by {raw:.2g}, D2 fires on "
                f"{fires[0]} of {len(seeds)} nets (as trained: {fires[1]}); the invariant size changes by {change:.2g}")
        missed = all(not record.fires for record in saturated.values())
        return Finding(
            subject=SUBJECT,
            claim=CLAIM,
            verdict=Verdict.INCONCLUSIVE if same < SAME else Verdict.PASS if moved and steady else Verdict.FAIL,
            reason=told,
            key_finding=f"{told}. With the clamp of 1e-8 the gradient's cosine with itself reads "
                        f"{min(rescaled[s].clamped for s in seeds):.3f}.",
            headline="change of the invariant size",
            measurements=(
                Measurement(name="change of the invariant size", value=change, of="test inputs",
                            n=sum(rescaled[s].samples for s in seeds), region=Region(high=CHANGE),
                            note="relative; largest over seeds"),
                Measurement(name="change of the raw size", value=raw, unit="x", n=len(seeds), of="seeds"),
                Measurement(name="noise share, saturated net", n=len(saturated), of="seeds",
                            value=min(record.noise for record in saturated.values())),
            ),
            checks=(
                Check(name="published D2 moves with the units", reason=told,
                      verdict=Verdict.PASS if moved else Verdict.FAIL),
                Check(name="published D2 misses the saturated net", verdict=Verdict.PASS if missed else Verdict.FAIL,
                      reason="D2 is quiet although float32 has no gradient left" if missed else "D2 fires there too"),
            ),
            figures=(_figure(arms),),
            varied=("initialisation", "data order", "split", "float32", "float64"),
        )


def _rewrite(model: nn.Module, arm: str) -> None:
    """Change the units of the stream, or make the softmax sure of itself."""
    import torch

    from assay.networks.feedforward.res_mlp import ResMLP

    assert isinstance(model, ResMLP)
    parts: list[nn.Module] = []
    if arm == "rescaled":
        parts = [model.embed, *(block.get_submodule("w2") for block in model.blocks)]
    elif arm == "control: saturated":
        parts = [model.out_head]
    with torch.no_grad():
        for parameter in (p for part in parts for p in part.parameters()):
            parameter.mul_(LARGER if arm == "rescaled" else SURER)


def _raw(record: ReferenceSize) -> float:
    return record.raw


def _invariant(record: ReferenceSize) -> float:
    return record.invariant


def _ratio(after: float, before: float) -> float:
    return after / before if before else math.inf


def _words(records: Iterable[ReferenceSize]) -> str:
    return f"noise in up to {max(record.noise for record in records):.0%} of samples"


def _figure(arms: training.Arms[ReferenceSize]) -> Figure:
    def means(size: Callable[[ReferenceSize], float]) -> tuple[float, ...]:
        shown = [arms[arm].values() for arm in ("control: as trained", "rescaled")]
        return tuple(max(fmean(map(size, records)), 1e-30) for records in shown)

    places = (0.0, 1.0)
    return Figure(
        key="units", question="What changes when only the units change?", y_label="size of the gradient", y_scale="log",
        categories=("as trained", f"stream x {LARGER:g}"),
        series=(
            Series(name="raw |dL/dh|", x=places, y=means(_raw)),
            Series(name="gauge-invariant", x=places, y=means(_invariant)),
        ),
        references=(Reference(value=1e-7, label="published D2 limit"),),
    )
