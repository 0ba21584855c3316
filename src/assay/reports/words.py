"""The words, icons and number format every rendering shares, so that Markdown, HTML and LaTeX never disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from assay.results import Control, Failure, Finding, Interval, Measurement, Region, Run, Verdict

SIGNIFICANT_DIGITS = 4
"""Digits shown to a person; the full value is in run.json, in the CSV and in the ``value`` of the HTML element."""


@dataclass(frozen=True)
class Word:
    """How a verdict is said: an icon for text, a plain phrase for sentences, a noun for counts."""

    icon: str
    phrase: str
    count: str


WORDS = {
    Verdict.PASS: Word("✅", "holds", "Passed"),
    Verdict.PARTIAL: Word("⚠️", "holds in part", "Partial"),
    Verdict.STUB: Word("🔧", "is not built yet", "Stubs"),
    Verdict.INCONCLUSIVE: Word("❔", "is undecided", "Inconclusive"),
    Verdict.FAIL: Word("❌", "does not hold", "Failed"),
    Verdict.ERROR: Word("🛑", "could not be measured", "Errors"),
}

_KNOWN_COUNTS = ("inputs", "angles", "test items", "transforms", "samples", "layers", "sizes", "models", "blocks")

EVIDENCE_MEANING = {
    "smoke": "it runs; fewer than three seeds, or inputs where seeds decide nothing",
    "directional": "three seeds or more, or three inputs where seeds decide nothing; every guard holds",
    "confirmed": "ten seeds (or inputs times precisions) or more, planned, enough power, controls told apart",
    "replicated": "confirmed again on another machine or version",
}


def number(value: float | int | None) -> str:
    """``value`` to four significant digits; an absent value is a dash, never 0.

    >>> [number(v) for v in (97.0416, 1.79e-07, 3, 0.0, -0.5, 123456.7, None)]
    ['97.04', '1.79e-07', '3', '0', '-0.5', '123457', '—']
    """
    if value is None:
        return "—"
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{SIGNIFICANT_DIGITS - 1}e}".split("e")
        return f"{_trimmed(mantissa)}e{exponent}"
    decimals = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return _trimmed(f"{value:.{decimals}f}")


PURE = ("", "1", "ratio", "share", "relative")
"""Units of pure numbers: what they are a ratio or a share of is in the name of the measurement."""


def with_unit(text: str, unit: str) -> str:
    """``text`` and its unit; that of a pure number is not shown."""
    return text if unit in PURE else f"{text} {unit}"


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(1.52), duration(76.9), duration(5025), duration(0.004)
    ('1.5 s', '1 min 17 s', '1 h 24 min', '4 ms')
    """
    if not math.isfinite(seconds):
        return "—"
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds else "0 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def interval(value: Interval | None) -> str:
    """``[low, high]``, or the reason there is none."""
    return "none" if value is None else f"[{number(value.low)}, {number(value.high)}]"


def region(measurement: Measurement) -> str:
    """The values the claim allows, in words."""
    limits = measurement.region
    if limits is None or (limits.low is None and limits.high is None):
        return "—"
    if limits.low is None:
        return f"at most {number(limits.high)}"
    if limits.high is None:
        return f"at least {number(limits.low)}"
    return f"{number(limits.low)} to {number(limits.high)}"


def counted(measurement: Measurement) -> str:
    """What ``n`` counts: the measurement's own word, seeds where it has them, else values."""
    if measurement.of:
        word = measurement.of
    elif measurement.seeds or measurement.note in ("seed", "seeds"):
        word = "seeds"
    else:
        word = measurement.note if measurement.note in _KNOWN_COUNTS else "values"
    return word.removesuffix("s") if measurement.n == 1 and word.endswith("s") else word


def sized(value: float | None, interval_: Interval | None, limits: Region | None = None) -> str:
    """``value`` with the digits its interval supports: two digits of the interval's width, never more than it has.

    One digit more if an end would otherwise seem to lie on a limit of the claim that it does not reach.

    >>> wide = Interval(low=93.94, high=95.86, confidence=0.95, method="t")
    >>> sized(94.9012, wide), sized(94.9012, None)
    ('94.9', '94.9')
    >>> sized(-1.02, Interval(low=-27.0, high=-1.02, confidence=0.9, method="t"), Region(low=-1.0, high=1.0))
    '-1.0'
    >>> small = Interval(low=6.04e-16, high=6.842e-16, confidence=0.95, method="t")
    >>> sized(6.374e-16, small), sized(small.low, small)
    ('6.37e-16', '6.04e-16')
    """
    if value is None or interval_ is None or not all(map(math.isfinite, (value, interval_.low, interval_.high))):
        return number(value)
    width = interval_.high - interval_.low
    largest = max(abs(value), abs(interval_.low), abs(interval_.high))
    if not width > 0 or width < largest * 1e-6:
        return number(value)
    # Very small and very large numbers of one interval share the power of ten of its farther end.
    power = 0 if 1e-3 <= largest < 1e6 else math.floor(math.log10(largest))
    decimals = max(0, 1 - math.floor(math.log10(width / 10.0**power)))
    if power == 0 and limits is not None:
        edges = [edge for edge in (limits.low, limits.high) if edge is not None]
        ends_ = (interval_.low, interval_.high)
        decimals += any(end != edge and round(end, decimals) == edge for end in ends_ for edge in edges)
    text = f"{value / 10.0**power:.{decimals}f}"
    text = text.removeprefix("-") if not float(text) else text
    return f"{text}e{power:+03d}" if power and float(text) else text


def centre(measurement: Measurement) -> str:
    """The value with the digits its interval supports."""
    return sized(measurement.value, measurement.interval, measurement.region)


def ends(measurement: Measurement) -> tuple[str, str]:
    """Both ends of the interval with the digits its width supports."""
    assert measurement.interval is not None
    interval_, limits = measurement.interval, measurement.region
    return sized(interval_.low, interval_, limits), sized(interval_.high, interval_, limits)


def allowed(measurement: Measurement) -> str:
    """What the claim allows, as said in a sentence: ``at most 1``, ``±3 pp``, ``2 to 5 %``."""
    limits = measurement.region
    if limits is not None and limits.high is not None and limits.low == -limits.high:
        return f"±{number(limits.high)}{unit_words(measurement.unit)}"
    return region(measurement) + (unit_words(measurement.unit) if limits is not None else "")


def unit_words(unit: str) -> str:
    """The unit after a number in running text; nothing for a pure number."""
    return "" if unit in PURE else f" {unit}"


def title(finding: Finding) -> str:
    """``Track 2: EqProp vs backprop parity`` for a track, else its title, name or subject."""
    name = heading(finding)
    return f"Track {finding.number}: {name}" if finding.number is not None else name


def heading(finding: Finding) -> str:
    """The name of a finding for a person to read."""
    return finding.title or finding.name or finding.subject


def grouped(failures: Sequence[Failure]) -> list[tuple[Failure, int]]:
    """The first of all failures with one kind and message, and how many there are."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.kind, failure.message), []).append(failure)
    return [(same[0], len(same)) for same in groups.values()]


def plural(count: int, noun: str) -> str:
    """``3 claims``, ``1 claim``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def ended(text: str) -> str:
    """``text`` with a full stop, unless it ends a sentence already."""
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def sentence(reason: str) -> str:
    """A reason as a sentence: a capital first, a full stop last. A symbol stays what it is.

    >>> sentence("three seeds"), sentence("n = 1: too few")
    ('Three seeds.', 'n = 1: too few.')
    """
    text = ended(reason)
    return text if text[1:3] in (" =", " <", " >") else capital(text)


def capital(text: str) -> str:
    """A capital first, unless the first word is a name, which keeps its own spelling.

    >>> capital("the gap"), capital("fa-layer/mlp is within 1 pp")
    ('The gap', 'fa-layer/mlp is within 1 pp')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.rstrip(",.:;").isalpha() else text


def run_title(run: Run) -> str:
    """The run's own title, else what kind of run it is."""
    kinds = {
        "verify": "Verification results",
        "audit": "Audit report",
        "bench": "Benchmark results",
        "reproduce": "Reproduction results",
        "selftest": "Self-test results",
    }
    return run.title or kinds[run.kind]


def summary(run: Run) -> str:
    """One sentence that counts every verdict that occurred.

    >>> summary(Run(id="r", created="2026-01-01"))
    'No claim was examined, so nothing was shown.'
    """
    total = len(run.findings)
    if total == 0:
        return "No claim was examined, so nothing was shown."
    if total == 1:
        return f"The claim {WORDS[run.findings[0].verdict].phrase}."
    parts = [f"{count} {_plural(verdict, count)}" for verdict, count in run.counts.items() if count]
    if run.counts[Verdict.FAIL] == total:
        return f"None of the {total} claims holds."
    if len(parts) == 1:
        return f"All {total} claims {_plural(run.verdict, total)}."
    return f"Of {total} claims, {', '.join(parts[:-1])} and {parts[-1]}."


def headline(finding: Finding) -> Measurement | None:
    """The measurement that decided, if the finding names one that exists."""
    return next((m for m in finding.measurements if m.name == finding.headline), None)


def worst_label(measurement: Measurement) -> str:
    """What ``worst`` found: where both directions are bad, the best seed may be the one nearest to a limit."""
    limits = measurement.region
    both = limits is not None and limits.low is not None and limits.high is not None
    return "Seed nearest a limit" if both else "Worst seed"


def worst(measurement: Measurement) -> tuple[int, float] | None:
    """Seed and value of the observation farthest on the wrong side of the region (or nearest to leaving it).

    A choice among values already in the run, not a new number. None without per-seed values or without a region,
    since then no direction is the bad one.
    """
    limits = measurement.region
    if limits is None or not measurement.seeds or (limits.low is None and limits.high is None):
        return None

    def excess(value: float) -> float:
        if math.isnan(value):
            return math.inf
        sides = (
            value - limits.high if limits.high is not None else -math.inf,
            limits.low - value if limits.low is not None else -math.inf,
        )
        return max(sides)

    index = max(range(len(measurement.values)), key=lambda i: excess(measurement.values[i]))
    return measurement.seeds[index], measurement.values[index]


def control_sentence(control: Control) -> str:
    """What the control showed about the check itself."""
    return "told apart" if control.separated else "NOT told apart"


def _plural(verdict: Verdict, count: int) -> str:
    one = WORDS[verdict].phrase
    if count == 1:
        return one
    return {
        "holds": "hold",
        "holds in part": "hold in part",
        "is not built yet": "are not built yet",
        "is undecided": "are undecided",
        "does not hold": "do not hold",
    }.get(one, one)


def _trimmed(text: str) -> str:
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
