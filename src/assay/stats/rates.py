"""Claims about rates: how often something succeeds, and whether an accuracy beats guessing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.errors import expected
from assay.results import Check, Interval, Measurement, Region, Verdict
from assay.stats.decision import MINIMUM_SEEDS, Decision, all_hold, counted, finite, floats, fraction, relation, score
from assay.stats.intervals import binomial_interval, mean


def solves(
    successes: int, n: int, p: float, *, alpha: float = 0.05, name: str = "success rate", what: str = "seeds"
) -> Decision:
    """Whether the rate of success per seed is at least p: the exact one-sided lower bound reaches it.

    >>> solves(3, 3, 0.9).reason
    '3/3 seeds succeeded: success rate at least 36.8 % (95 % one-sided, exact), which leaves 90 % undecided'
    """
    fraction("alpha", alpha, below=0.5)
    if isinstance(p, bool) or not 0.0 < float(p) <= 1.0:
        raise expected("a success rate p with 0 < p <= 1", given=f"p={p!r}")
    region = Region(low=float(p))
    claim = f"{name} at least {_percent(p)}"
    checks: list[Check] = []
    if counted("n", n, least=0) < MINIMUM_SEEDS:
        reason = f"n = {n}: fewer than {MINIMUM_SEEDS} {what} show that it runs, not that it holds"
        checks.append(Check(name="enough seeds", verdict=Verdict.INCONCLUSIVE, reason=reason))
    if n < 2:
        value = successes / n if n else None
        measurement = Measurement(name=name, value=value, n=n, region=region, note=f"{successes} of {n} {what}")
        return Decision(
            claim=claim,
            verdict=Verdict.INCONCLUSIVE,
            reason=checks[0].reason,
            n=n,
            measurement=measurement,
            alpha=alpha,
            method="no interval",
            checks=tuple(checks),
        )
    from scipy import stats

    interval = binomial_interval(successes, n, confidence=1 - 2 * alpha)
    verdict = Verdict.INCONCLUSIVE if checks else relation(interval, region)
    points = score(interval, region)
    bound = f"at most {_percent(interval.high)}" if verdict is Verdict.FAIL else f"at least {_percent(interval.low)}"
    reason = f"{successes}/{n} {what} succeeded: {name} {bound} ({_percent(1 - alpha)} one-sided, exact), " + {
        Verdict.PASS: f"which is enough for {_percent(p)}",
        Verdict.FAIL: f"which falls short of {_percent(p)}",
    }.get(verdict, f"which leaves {_percent(p)} undecided")
    return Decision(
        claim=claim,
        verdict=verdict,
        reason="; ".join([reason, *(check.reason for check in checks)]),
        n=n,
        alpha=alpha,
        method="exact binomial",
        checks=tuple(checks),
        score=points if points is None or not checks else min(points, 50.0),
        p_value=float(stats.binomtest(successes, n, float(p), alternative="greater").pvalue),
        measurement=Measurement(
            name=name, value=successes / n, n=n, interval=interval, region=region, note=f"{successes} of {n} {what}"
        ),
    )


def above_chance(
    arms: Mapping[str, Sequence[float] | float],
    *,
    items: int,
    chance: float,
    majority: float = 0.0,
    scale: float = 1.0,
    alpha: float = 0.05,
) -> Decision:
    """Whether every arm beats both chance and the share of the largest class: a guard for comparisons.

    ``arms`` maps each arm to its accuracies over seeds (a perfect one is written as ``scale``), ``chance`` and
    ``majority`` are shares from 0 to 1. The test is exact binomial on the ``items`` of the test set: seeds share them,
    so several seeds are judged by their mean on one test set, not counted as new items. An arm that no more than
    guesses cannot be at parity with anything.

    >>> above_chance({"backprop": 12.5, "eqprop": 10.0}, items=40, chance=0.1, scale=100).verdict
    <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>
    """
    fraction("alpha", alpha, below=0.5)
    fraction("chance", chance)
    finite("scale", scale, above=0.0)
    counted("items", items, least=2)
    if not 0.0 <= majority < 1.0:
        raise expected("a share of the largest class from 0 to 1", given=f"majority={majority!r}")
    if not arms:
        raise expected("at least one arm", given="none")
    floor = max(chance, majority)
    decisions = [
        _beats(arm, values, items=items, floor=floor, scale=scale, alpha=alpha) for arm, values in arms.items()
    ]
    guessed = f"chance ({_percent(chance)})" if majority <= chance else f"the largest class ({_percent(majority)})"
    weak = [decision for decision in decisions if not decision.passed]
    together = all_hold(decisions, claim=f"every arm is above {guessed}")
    reason = "; ".join(decision.reason for decision in weak or decisions)
    return together.model_copy(
        update={
            "reason": f"{'not ' if weak else ''}above {guessed}: {reason}",
            "method": f"exact binomial on {items} items, every arm",
        }
    )


def _beats(
    arm: str, values: Sequence[float] | float, *, items: int, floor: float, scale: float, alpha: float
) -> Decision:
    observed = [float(values)] if isinstance(values, int | float) else floats(arm, values)
    region = Region(low=floor)
    rates = [value / scale for value in observed]
    claim = f"{arm} above {_percent(floor)}"
    if not rates or not all(map(math.isfinite, rates)):
        what = "no accuracy was measured" if not rates else "an accuracy is NaN or infinite"
        measurement = Measurement(name=f"accuracy of {arm}", value=math.nan, n=0, region=region, note=what)
        return Decision(
            claim=claim,
            verdict=Verdict.INCONCLUSIVE,
            reason=f"{arm}: {what}: never a PASS",
            n=0,
            alpha=alpha,
            measurement=measurement,
            method="no interval",
        )
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        raise expected(f"accuracies from 0 to {scale:g}", given=f"{arm}: {observed}", do="pass scale=100 for per cent")
    from scipy import stats

    rate = mean(rates)
    correct = math.floor(rate * items + 1e-9 * items)  # whole up to rounding; a part of an item is no item
    interval = binomial_interval(correct, items, confidence=1 - 2 * alpha)
    verdict = _strictly(relation(interval, region), interval, floor)
    return Decision(
        claim=claim,
        verdict=verdict,
        n=items,
        alpha=alpha,
        method="exact binomial",
        score=score(interval, region),
        reason=f"{arm} {_percent(rate)} on {items} items, "
        f"at least {_percent(interval.low)} ({_percent(1 - alpha)}, exact)",
        p_value=float(stats.binomtest(correct, items, floor, alternative="greater").pvalue),
        measurement=Measurement(
            name=f"accuracy of {arm}",
            value=rate,
            n=items,
            interval=interval,
            region=region,
            note=f"test items; mean of {len(rates)} seed(s)",
        ),
    )


def _strictly(verdict: Verdict, interval: Interval, floor: float) -> Verdict:
    """The region is open: an arm exactly at chance is not above it."""
    return Verdict.INCONCLUSIVE if verdict is Verdict.PASS and interval.low <= floor else verdict


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %"
