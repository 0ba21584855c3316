"""Claims that hold or do not: a supremum under a limit, numbers that match a reference, a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.errors import expected
from assay.results import Interval, Measurement, Region, Verdict
from assay.stats.decision import Decision, finite, floats, number, score


def constrained(
    lower: float | Sequence[float] | None,
    upper: float | Sequence[float] | None,
    limit: float,
    *,
    rounding: float = 0.0,
    name: str = "supremum",
    unit: str = "1",
    seeds: Sequence[int] = (),
) -> Decision:
    """Whether the supremum of a quantity stays within a limit, from a certified upper and an attacked lower bound.

    ``lower`` is the largest value an attack found, ``upper`` a bound that provably holds for every input; one of each
    per subject. PASS needs upper <= limit, FAIL lower > limit. A single estimate cannot pass: without a certificate the
    next input may exceed the limit, without an attack nobody has tried to break the certificate. A lower bound above
    its upper bound means that one of them is wrong. ``rounding`` is the relative rounding error of the bounds, such as
    depth times the epsilon of the dtype.

    >>> constrained(0.97, 1.0, 1.0).verdict, constrained(0.97, None, 1.0).verdict
    (<Verdict.PASS: 'PASS'>, <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>)
    """
    finite("limit", limit, above=0.0)
    if finite("rounding", rounding) < 0:
        raise expected("rounding >= 0", given=f"rounding={rounding:g}")
    lowers, uppers = _values(lower), _values(upper)
    if lowers and uppers and len(lowers) != len(uppers):
        raise expected("one lower and one upper bound per subject", given=f"{len(lowers)} and {len(uppers)}")
    n = max(len(lowers), len(uppers))
    # The allowance for rounding is part of the region, so that whoever compares the two again agrees.
    region = Region(high=limit * (1 + rounding))
    interval = None
    if lowers and uppers and not any(map(math.isnan, [*lowers, *uppers])):
        method = "attacked lower, certified upper bound"
        interval = Interval(low=max(lowers), high=max(uppers), confidence=1.0, method=method)
    verdict, reason = _judge_bounds(lowers, uppers, limit, rounding=rounding, unit=unit)
    measurement = Measurement(
        name=name,
        value=max(lowers if verdict is Verdict.FAIL else uppers or lowers, default=None),
        unit=unit,
        n=n,
        of="seeds" if seeds else "",
        interval=interval,
        region=region,
        source="derived",
        values=tuple(uppers or lowers) if n > 1 else (),
        seeds=tuple(seeds) if n > 1 else (),
        note="largest over subjects; values are " + ("certified upper bounds" if uppers else "attacked lower bounds"),
    )
    points = score(interval, region) if interval else None
    return Decision(
        claim=f"{name} at most {number(limit, unit)}",
        verdict=verdict,
        reason=reason,
        measurement=measurement,
        n=n,
        alpha=0.0,
        method="bounds" if interval else "no interval",
        score=points if points is None or verdict is not Verdict.INCONCLUSIVE else min(points, 50.0),
    )


def _judge_bounds(
    lowers: list[float], uppers: list[float], limit: float, *, rounding: float, unit: str
) -> tuple[Verdict, str]:
    allowed = number(limit, unit)
    if any(map(math.isnan, [*lowers, *uppers])):
        return Verdict.INCONCLUSIVE, "a bound is NaN: never a PASS"
    for low, high in zip(lowers, uppers, strict=False):
        if low > high * (1 + rounding):
            found = f"the attack found {number(low, unit)} above the certified {number(high, unit)}"
            return Verdict.INCONCLUSIVE, f"{found}: one of them is wrong"
    if lowers and max(lowers) > limit * (1 + rounding):
        return Verdict.FAIL, f"an attack reached {number(max(lowers), unit)}, above {allowed}"
    if not lowers or not uppers:
        missing = "an attacked lower bound" if uppers else "a certified upper bound" if lowers else "both bounds"
        return Verdict.INCONCLUSIVE, f"{missing} missing: one estimate cannot pass a claim about every input"
    found = f"attacks reached {number(max(lowers), unit)}, certified for every input {number(max(uppers), unit)}"
    if max(uppers) <= limit * (1 + rounding):
        return Verdict.PASS, f"{found}: within {allowed}"
    return Verdict.INCONCLUSIVE, f"{found}: the truth lies between the two, and so does the limit {allowed}"


def numeric_match(
    errors: float | Sequence[float],
    tolerance: float,
    *,
    magnitude: float | None = None,
    labels: Sequence[str] = (),
    name: str = "largest error",
    unit: str = "1",
) -> Decision:
    """Whether every error against the reference stays within a derived tolerance.

    One error per input (or per case); NaN and infinity are mismatches. ``magnitude`` is the size of the reference
    values: a tolerance that large would accept zeros, and the check is INCONCLUSIVE because it could not fail.

    >>> numeric_match([1e-7, 3e-7], 1e-6).verdict, numeric_match([1e-7, float("nan")], 1e-6).verdict
    (<Verdict.PASS: 'PASS'>, <Verdict.FAIL: 'FAIL'>)
    """
    finite("tolerance", tolerance, above=0.0)
    found = _values(errors)
    if any(error < 0 for error in found):
        raise expected("absolute errors >= 0", given=f"{min(found):g}", do="take the absolute value")
    if labels and len(labels) != len(found):
        raise expected("one label per error", given=f"{len(labels)} labels for {len(found)} errors")
    region = Region(high=tolerance)
    claim = f"{name} at most {number(tolerance, unit)}"
    worst = max(range(len(found)), key=lambda i: math.inf if math.isnan(found[i]) else found[i], default=None)
    place = "" if worst is None else f" at {labels[worst]}" if labels else f" at input {worst + 1}"
    largest = None if worst is None else found[worst]
    points = None
    if largest is None:
        verdict, reason = Verdict.INCONCLUSIVE, "n = 0: nothing was compared"
    elif magnitude is not None and not tolerance < magnitude:
        verdict = Verdict.INCONCLUSIVE
        reason = f"the tolerance {tolerance:.3g} is as large as the values ({magnitude:.3g}): the check could not fail"
    elif not math.isfinite(largest):
        verdict, reason, points = Verdict.FAIL, f"the result is NaN or infinite{place}", 0.0
    else:
        verdict = Verdict.PASS if largest <= tolerance else Verdict.FAIL
        points = 50.0 + 50.0 * max(-1.0, min(1.0, (tolerance - largest) / tolerance))
        reason = (
            f"largest error {number(largest, unit)}{place}{f' of {len(found)}' if len(found) > 1 else ''} is "
            f"{'within' if verdict is Verdict.PASS else 'above'} {number(tolerance, unit)}"
        )
    measurement = Measurement(
        name=name,
        value=largest,
        unit=unit,
        n=len(found),
        region=region,
        of="comparisons",
        note="the largest error decides",
    )
    return Decision(
        claim=claim,
        verdict=verdict,
        reason=reason,
        measurement=measurement,
        n=len(found),
        alpha=0.0,
        score=points,
        method="largest error against a derived tolerance",
    )


def reduction(before: float, after: float) -> float:
    """The share by which a positive quantity was reduced, at most 1; negative if it grew.

    7.371 -> 1.000 is a reduction by 86 %; dividing by the smaller number instead yields an impossible "637 %".

    >>> f"{reduction(7.371, 1.0):.0%}"
    '86%'
    """
    finite("before", before, above=0.0)
    if finite("after", after) < 0:
        raise expected("a quantity >= 0", given=f"after={after:g}")
    return (before - after) / before


def _values(bound: float | Sequence[float] | None) -> list[float]:
    if bound is None:
        return []
    return [float(bound)] if isinstance(bound, int | float) else floats("bounds or errors", bound)
