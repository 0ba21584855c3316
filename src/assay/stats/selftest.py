"""How well a check tells good subjects from bad ones, from the controls it was shown."""

from __future__ import annotations

from collections.abc import Iterable

from assay.results import Control, Measurement, Region
from assay.stats.intervals import binomial_interval


def sensitivity(controls: Iterable[Control], *, required: float | None = None) -> Measurement:
    """The share of known-bad subjects that were caught, with its exact bounds.

    ``required`` sets the region of the claim. With n controls all caught, the true rate may still be as low as the
    lower bound says: 63 % for n = 10 (95 %, two-sided 69 %).
    """
    return _share(controls, kind="known-bad", name="sensitivity", required=required)


def specificity(controls: Iterable[Control], *, required: float | None = None) -> Measurement:
    """The share of known-good subjects that were accepted, with its exact bounds."""
    return _share(controls, kind="known-good", name="specificity", required=required)


def _share(controls: Iterable[Control], *, kind: str, name: str, required: float | None) -> Measurement:
    right = [control.separated for control in controls if control.kind == kind]
    told, n = sum(right), len(right)
    return Measurement(
        name=name,
        value=told / n if n else None,
        n=n,
        of="controls",
        note=f"{told} of {n} {kind} controls told for what they are",
        interval=binomial_interval(told, n, confidence=0.95) if n >= 2 else None,
        region=None if required is None else Region(low=required),
    )
