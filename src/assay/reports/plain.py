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
    shown = decided.region.judge(decided.interval)
    but = _but(finding) if finding.verdict is Verdict.PARTIAL and shown is Verdict.PASS else ""
    if shown is not finding.verdict and not but:
        return words.sentence(finding.reason)
    low, high = words.ends(decided)
    name, unit = decided.name, words.unit_words(decided.unit)
    could = f"could be {low} to {high}{unit}" if low != high else f"is {low}{unit}"
    allows = f"the claim allows {words.allowed(decided)}"
    if finding.verdict is Verdict.INCONCLUSIVE:
        return f"{words.capital(_many(decided))} cannot tell: the {name} {could}, {allows}."
    value = words.centre(decided)
    if shown is Verdict.PASS:
        return f"The {name} is {value}{unit} and {could}; {allows}.{but}"
    return f"The {name} is {value}{unit} ({could}); {allows}."


def says_more(finding: Finding) -> bool:
    """Whether the reason tells something the plain sentence does not."""
    return plain(finding) != words.sentence(finding.reason)


def _but(finding: Finding) -> str:
    """What keeps a claim whose deciding number holds from holding: the checks that count and do not pass."""
    open_ = [check for check in finding.checks if check.verdict is not Verdict.PASS and not check.aside]
    return "".join(f" But \u201c{check.name}\u201d {words.WORDS[check.verdict].phrase}." for check in open_)


def _many(measurement: Measurement) -> str:
    of = words.counted(measurement)
    count = _COUNTS[measurement.n] if measurement.n < len(_COUNTS) else str(measurement.n)
    return f"{count} {of}"
