"""The words of a report that need explaining, each in one sentence, for the hover text and the list at its end."""

from __future__ import annotations

from dataclasses import dataclass

from assay.reports.words import EVIDENCE_MEANING
from assay.results import Run


@dataclass(frozen=True)
class Term:
    """A word and what it means."""

    name: str
    meaning: str


TERMS = {
    "pass": Term("PASS", "The evidence lies inside what the claim allows, and every guard and control agrees."),
    "partial": Term("PARTIAL", "Part of the claim holds and part does not, or holds only under a condition it names."),
    "stub": Term("STUB", "The claim is listed but its measurement is not built: nothing was shown."),
    "inconclusive": Term("INCONCLUSIVE", "The evidence fits both the claim and its opposite: more of it would decide."),
    "fail": Term("FAIL", "The evidence lies outside what the claim allows."),
    "error": Term("ERROR", "The measurement crashed, hung or was stopped: nothing was shown."),
    "score": Term(
        "Score",
        "0 to 100 for ordering verdicts of one claim: 50 where the worst value in the interval touches the edge of "
        "what the claim allows, more inside, less outside. Scores of different claims cannot be compared.",
    ),
    "evidence": Term("Evidence", "How much a verdict rests on; computed from what was really run, never declared."),
    **{
        name: Term(f"Evidence: {name}", meaning[:1].upper() + meaning[1:] + ".")
        for name, meaning in EVIDENCE_MEANING.items()
    },
    "interval": Term("Interval", "The values the evidence leaves open, at the confidence and by the method beside it."),
    "control": Term(
        "Control",
        "A subject whose answer is known beforehand. A check that cannot tell its controls apart proves nothing.",
    ),
}


def used(run: Run) -> frozenset[str]:
    """The keys of the words that occur on the page of ``run``."""
    keys = {finding.verdict.lower() for finding in run.findings}
    keys |= {finding.evidence.value for finding in run.findings if finding.evidence}
    keys |= {"evidence" for finding in run.findings if finding.evidence}
    keys |= {"score" for finding in run.findings if finding.score is not None}
    keys |= {"control" for finding in run.findings if finding.controls}
    keys |= {"interval" for finding in run.findings for m in finding.measurements if m.interval}
    return frozenset(keys & TERMS.keys())
