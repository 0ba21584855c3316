"""The tables of a credit audit: the stream, the signal beside its null, and the response of the loss."""

from __future__ import annotations

import math

from assay.audits.credit.measure import Credit
from assay.results import Table


def tables(credit: Credit) -> tuple[Table, ...]:
    """All tables this audit has numbers for."""
    made = [_stream(credit)]
    if any(a is not None for a in credit.alignment):
        made.append(_signal(credit))
    if credit.response:
        made.append(_response(credit))
    return tuple(made)


def _stream(credit: Credit) -> Table:
    scale, reference = credit.scale, credit.reference
    columns = ("place", "|h|", "growth", "write ratio", "cos with h_0", "|g| raw", "|g| |h| / loss", "noise share")
    return Table(
        title="The stream, depth by depth",
        columns=(*columns, "clamped self-cosine"),
        rows=tuple(
            (
                place,
                scale.norms[i],
                scale.growth[i - 1] if i else None,
                scale.writes[i - 1] if i else None,
                scale.kept[i],
                reference.raw[i],
                reference.invariant[i],
                reference.noise[i],
                reference.clamped_self_cosine[i],
            )
            for i, place in enumerate(credit.places)
        ),
    )


def _signal(credit: Credit) -> Table:
    columns = ("place", "cosine", "standard error", "published (clamped)", "null mean", "null sd", "z", "size ratio")
    rows = []
    for site, a, clamped in zip(credit.sites, credit.alignment, credit.clamped, strict=True):
        if a is not None:
            told = "exact by construction" if a.exact else "yes" if a.aligned else "no"
            error = a.error if math.isfinite(a.error) else None
            rows.append((site, a.cosine, error, clamped, a.null_mean, a.null_sd, a.z, a.ratio, told))
    return Table(
        title="What the rule sends, beside the true gradient",
        columns=(*columns, "told from chance"),
        rows=tuple(rows),
    )


def _response(credit: Credit) -> Table:
    return Table(
        title="Does the loss answer to the signal?",
        columns=("place", "rho", "rho: true gradient", "rho: random", "nudge", "nudge: true gradient", "nudge: random"),
        rows=tuple(
            (place, r.rho, r.true_rho, r.random_rho, r.nudge, r.true_nudge, r.random_nudge)
            for place, r in zip(credit.places, credit.response, strict=True)
        ),
        note="relative steps of 1e-3 |h|; nudge is the relative change of the loss",
    )
