"""A verdict in plain words: what the evidence could still be, and what the claim allows. No method, no jargon."""

from __future__ import annotations

from assay.reports import words
from assay.results import Finding, Measurement, Verdict

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def plain(finding: Finding) -> str:
    """One sentence for a reader who skips the statistics.

    It is made from the deciding interval when that alone explains the verdict; in every other case (a guard spoke, a
    check failed, there is no interval) the reason is the plain sentence.
    """
    decided = words.headline(finding)
    if decided is None or decided.interval is None or decided.region is None:
        return words.sentence(finding.reason)
    if decided.region.judge(decided.interval) is not finding.verdict:
        return words.sentence(finding.reason)
    low, high = words.ends(decided)
    name, unit = decided.name, words.unit_words(decided.unit)
    could = f"could be {low} to {high}{unit}" if low != high else f"is {low}{unit}"
    allows = f"the claim allows {words.allowed(decided)}"
    if finding.verdict is Verdict.INCONCLUSIVE:
        return f"{_capital(_many(decided))} cannot tell: the {name} {could}, {allows}."
    value = words.centre(decided)
    if finding.verdict is Verdict.PASS:
        return f"The {name} is {value}{unit} and {could}; {allows}."
    return f"The {name} is {value}{unit} ({could}); {allows}."


def says_more(finding: Finding) -> bool:
    """Whether the reason tells something the plain sentence does not."""
    return plain(finding) != words.sentence(finding.reason)


def _many(measurement: Measurement) -> str:
    of = words.counted(measurement)
    count = _COUNTS[measurement.n] if measurement.n < len(_COUNTS) else str(measurement.n)
    return f"{count} {of}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
