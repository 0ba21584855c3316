"""Claims about the gap between two arms: parity, non-inferior, better, and agreement with a published reference.

The gap is always first minus second, candidate minus baseline. Guards run first: a comparison with a NaN, fewer than
three pairs, no spread, an unplanned look or a failed guard of the caller is INCONCLUSIVE and says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay.errors import expected
from assay.results import Region
from assay.stats.answers import Answers
from assay.stats.decision import Decision, finite, floats, number
from assay.stats.gaps import GapClaim, Guard, decide_from_summaries, decide_paired
from assay.stats.intervals import Summary, deviation, mean
from assay.stats.power import LookPlan


def parity(
    a: Sequence[float],
    b: Sequence[float],
    *,
    margin: float,
    items: int | None = None,
    answers: Answers | None = None,
    scale: float = 1.0,
    alpha: float = 0.05,
    looks: LookPlan | None = None,
    guards: Iterable[Guard] = (),
    name: str = "gap",
    unit: str = "1",
    seeds: Sequence[int] = (),
) -> Decision:
    """Whether the mean paired gap a - b lies within ± margin: two one-sided paired t tests (TOST).

    PASS exactly when the 1 - 2 alpha t interval of the gap lies inside the margin. The i-th entries of a and b must
    share their seed. If the gaps vary less than one test item (``items`` of them; a perfect score is written as
    ``scale``, 1 or 100) t would claim certainty, and the exact item-level interval is used instead; without ``items``
    such data are INCONCLUSIVE. With ``answers`` (which items each arm got right, ``paired_answers``) seeds and items
    are both taken as samples, and the verdict speaks of data like the test set, not of this test set alone. Parity of
    two arms at chance is no achievement: pass ``guards=[above_chance(...)]``.

    >>> parity([0.96, 0.97, 0.96, 0.95], [0.97, 0.96, 0.96, 0.96], margin=0.03).verdict
    <Verdict.PASS: 'PASS'>
    """
    finite("margin", margin, above=0.0)
    claim = GapClaim(
        text=f"{name} within ± {number(margin, unit)}",
        region=Region(low=-margin, high=margin),
        margin=margin,
        sides="both",
        name=name,
        unit=unit,
        alpha=alpha,
        looks=looks,
        items=items,
        scale=scale,
        answers=answers,
    )
    return decide_paired(a, b, claim, seeds=seeds, guards=guards)


def non_inferior(
    a: Sequence[float],
    b: Sequence[float],
    *,
    margin: float,
    items: int | None = None,
    answers: Answers | None = None,
    scale: float = 1.0,
    alpha: float = 0.05,
    looks: LookPlan | None = None,
    guards: Iterable[Guard] = (),
    name: str = "gap",
    unit: str = "1",
    seeds: Sequence[int] = (),
) -> Decision:
    """Whether a is worse than b by less than the margin (higher is better): the gap a - b exceeds -margin.

    One-sided paired t test. The other arguments are those of ``parity``.
    """
    finite("margin", margin, above=0.0)
    claim = GapClaim(
        text=f"{name} above {number(-margin, unit)}",
        region=Region(low=-margin),
        margin=margin,
        sides="one",
        name=name,
        unit=unit,
        alpha=alpha,
        looks=looks,
        items=items,
        scale=scale,
        answers=answers,
    )
    return decide_paired(a, b, claim, seeds=seeds, guards=guards)


def better(
    a: Sequence[float],
    b: Sequence[float],
    *,
    margin: float = 0.0,
    items: int | None = None,
    answers: Answers | None = None,
    scale: float = 1.0,
    alpha: float = 0.05,
    looks: LookPlan | None = None,
    guards: Iterable[Guard] = (),
    name: str = "gap",
    unit: str = "1",
    seeds: Sequence[int] = (),
) -> Decision:
    """Whether a beats b by more than the margin (higher is better): the gap a - b exceeds it.

    One-sided paired t test. For a quantity where lower is better pass the baseline first. The score counts in standard
    deviations of the paired difference. The other arguments are those of ``parity``.
    """
    if finite("margin", margin) < 0:
        raise expected("a margin >= 0", given=f"margin={margin:g}", do="use non_inferior to allow a loss")
    claim = GapClaim(
        text=f"{name} above {number(margin, unit)}",
        region=Region(low=margin),
        margin=None,
        sides="one",
        name=name,
        unit=unit,
        alpha=alpha,
        looks=looks,
        items=items,
        scale=scale,
        answers=answers,
    )
    return decide_paired(a, b, claim, seeds=seeds, guards=guards)


def parity_from_summary(
    a: Summary | tuple[float, float, int],
    b: Summary | tuple[float, float, int],
    *,
    margin: float,
    alpha: float = 0.05,
    guards: Iterable[Guard] = (),
    name: str = "gap",
    unit: str = "1",
) -> Decision:
    """Parity from means, standard deviations and counts alone: Welch's TOST, for figures of a published table.

    The pairing is lost, so this needs more seeds than ``parity`` on the runs themselves. Two spreads of 0 are
    INCONCLUSIVE: rounded figures are not certainty.

    >>> parity_from_summary((94.22, 0.08, 3), (94.91, 0.05, 3), margin=3.0, unit="pp").verdict
    <Verdict.PASS: 'PASS'>
    """
    finite("margin", margin, above=0.0)
    claim = GapClaim(
        text=f"{name} within ± {number(margin, unit)}",
        region=Region(low=-margin, high=margin),
        margin=margin,
        sides="both",
        name=name,
        unit=unit,
        alpha=alpha,
    )
    return decide_from_summaries(Summary(*a), Summary(*b), claim, guards=guards)


def reproduces(
    values: Sequence[float],
    reference: float,
    *,
    margin: float,
    reference_sd: float | None = None,
    reference_n: int | None = None,
    alpha: float = 0.05,
    guards: Iterable[Guard] = (),
    name: str = "difference from the reference",
    unit: str = "1",
    seeds: Sequence[int] = (),
) -> Decision:
    """Whether our mean lies within ± margin of a published one.

    With the spread and count of the reference this is Welch's TOST. A reference without spread is taken as exact, and
    the reason says that its own uncertainty is missing: the true agreement may be worse than shown.

    >>> reproduces([94.1, 94.3, 94.2], 94.22, margin=1.0).reason.endswith("its uncertainty is not included")
    True
    """
    finite("margin", margin, above=0.0)
    finite("reference", reference)
    if (reference_sd is None) != (reference_n is None):
        raise expected("both reference_sd and reference_n, or neither", given=f"sd={reference_sd}, n={reference_n}")
    claim = GapClaim(
        text=f"{name} within ± {number(margin, unit)}",
        region=Region(low=-margin, high=margin),
        margin=margin,
        sides="both",
        name=name,
        unit=unit,
        alpha=alpha,
    )
    data = floats("values", values)
    if reference_sd is not None and reference_n is not None and len(data) >= 2 and all(map(math.isfinite, data)):
        ours = Summary(mean(data), deviation(data), len(data))
        return decide_from_summaries(ours, Summary(reference, reference_sd, reference_n), claim, guards=guards)
    decision = decide_paired(data, [float(reference)] * len(data), claim, seeds=seeds, guards=guards)
    if reference_sd is not None:
        return decision
    lone = "the reference reports no spread: it is taken as exact and its uncertainty is not included"
    return decision.model_copy(update={"reason": f"{decision.reason}; {lone}", "notes": (*decision.notes, lone)})
