"""From numbers to positions: a linear or logarithmic axis, its range and its ticks."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

ZERO_AT, ZERO_ROOM = 0.03, 0.1
"""Where an exact zero stands on a logarithmic axis, and how much of the axis is kept for it."""
_TINIEST = math.ulp(0.0)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class AxisScale:
    """An axis from ``low`` to ``high``; calling it gives the share of the way, 0 at low and 1 at high."""

    low: float
    high: float
    log: bool = False
    zero: bool = False
    """A logarithmic axis with a place for exact zeros below its smallest number."""

    def __call__(self, value: float) -> float:
        if self.zero and value == 0:
            return ZERO_AT
        low, high, value = self._inner(self.low), self._inner(self.high), self._inner(value)
        share = (value - low) / (high - low)
        return ZERO_ROOM + (1 - ZERO_ROOM) * share if self.zero else share

    def draws(self, value: float) -> bool:
        """Whether ``value`` has a place on this axis: finite, and on a logarithmic one positive or a zero it shows."""
        return math.isfinite(value) and (not self.log or value > 0 or (self.zero and value == 0))

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values inside the axis, about ``wanted`` of them."""
        return _log_ticks(self.low, self.high, wanted) if self.log else _linear_ticks(self.low, self.high, wanted)

    def labelled(self, wanted: int = 5) -> list[tuple[float, str]]:
        """Ticks with their texts: powers of ten on a wide logarithmic axis, plain decimals otherwise."""
        ticks = self.ticks(wanted)
        if self.zero:
            return [(0.0, "0"), *replace(self, zero=False).labelled(wanted)]
        if self.log and any(tick < 1e-2 or tick >= 1e4 for tick in ticks):
            exponents = [round(math.log10(tick)) for tick in ticks]
            if all(math.isclose(tick, 10.0**k) for tick, k in zip(ticks, exponents, strict=True)):
                return [(tick, "10" + str(k).translate(_SUPERSCRIPT)) for tick, k in zip(ticks, exponents, strict=True)]
        return [(tick, f"{tick:.6g}".replace("-", "\u2212")) for tick in ticks]

    def _inner(self, value: float) -> float:
        return math.log10(value) if self.log else value


def fit(values: Iterable[float], *, log: bool = False, pad: float = 0.05) -> AxisScale:
    """The scale that holds all drawable ``values`` with a little room; a unit range when there are none."""
    values = list(values)
    zero = log and 0.0 in values
    usable = [value for value in values if math.isfinite(value) and (not log or value > 0)]
    if not usable:
        return AxisScale(1.0, 10.0, log=True, zero=zero) if log else AxisScale(0.0, 1.0)
    low, high = min(usable), max(usable)
    if log:
        room = max((math.log10(high) - math.log10(low)) * pad, 0.05)
        return AxisScale(max(low / 10**room, _TINIEST), min(high * 10**room, sys.float_info.max), log=True, zero=zero)
    room = (high - low) * pad or abs(high) * 0.1 or 1.0
    if not math.isfinite(high - low + 2 * room):
        return AxisScale(low, high) if math.isfinite(high - low) else AxisScale(low / 4, high / 4)
    return AxisScale(low - room, high + room)


def _linear_ticks(low: float, high: float, wanted: int) -> list[float]:
    span = high - low
    if not (span > 1e-300 and math.isfinite(span)):
        return []
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = min((power * factor for factor in (1, 2, 5, 10)), key=lambda step: abs(span / step - wanted))
    first = math.ceil(low / step)
    count = math.floor(high / step) - first + 1
    # Rounding keeps 0.3 from showing as 0.30000000000000004.
    digits = max(0, -math.floor(math.log10(step)))
    return [round((first + k) * step, min(digits + 1, 300)) + 0.0 for k in range(max(0, min(count, 4 * wanted)))]


def _log_ticks(low: float, high: float, wanted: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = last - first + 1
    if decades >= 3:
        stride = max(1, math.ceil(decades / wanted))
        return [10.0**k for k in range(max(first, -307), last + 1, stride)]
    fine = [factor * 10.0**k for k in range(first - 1, last + 1) for factor in (1, 2, 5)]
    inside = [tick for tick in fine if low <= tick <= high]
    return inside if len(inside) >= 2 else _linear_ticks(low, high, wanted)
