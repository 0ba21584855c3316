"""How the stream grows with depth, and what that growth destroys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.audits.credit.stream import Stream, exact_cosines, lengths

ABSORPTION = 2.0**24
"""A float32 has 24 bits: what is 2^24 times smaller than the value it is added to leaves no trace in it."""


@dataclass(frozen=True)
class StreamScale:
    """Means over samples. ``growth[l]`` is |h_{l+1}| / |h_l|, ``writes[l]`` is |h_{l+1} - h_l| / |h_l| (None between
    shapes that differ), ``kept[l]`` the cosine of h_l with h_0, ``absorption`` |h_L| / |h_0|."""

    norms: tuple[float, ...]
    growth: tuple[float, ...]
    writes: tuple[float | None, ...]
    kept: tuple[float | None, ...]
    absorption: float

    @property
    def max_growth(self) -> float:
        """The largest growth of any block: the published D1; NaN if any is."""
        return next((value for value in self.growth if math.isnan(value)), max(self.growth))

    @property
    def absorbed(self) -> bool:
        """True when a float32 stream can no longer hold what entered the first block."""
        return not self.absorption <= ABSORPTION


def measure_scale(stream: Stream) -> StreamScale:
    """The scale profile of a stream."""
    sizes = [lengths(h) for h in stream.values]
    steps = list(zip(stream.values, stream.ends, strict=False))  # in front of and behind each block
    start = stream.values[0]
    return StreamScale(
        norms=tuple(float(size.mean()) for size in sizes),
        growth=tuple(float((lengths(after) / lengths(before)).mean()) for before, after in steps),
        writes=tuple(
            float((lengths(after - before) / lengths(before)).mean()) if after.shape == before.shape else None
            for before, after in steps
        ),
        kept=tuple(float(exact_cosines(h, start).mean()) if h.shape == start.shape else None for h in stream.values),
        absorption=float((sizes[-1] / sizes[0]).mean()),
    )
