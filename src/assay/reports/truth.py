"""What the stored numbers say of a stored verdict: a page that contradicts itself must say so before a reader does."""

from __future__ import annotations

import math

from assay.reports import words
from assay.results import Finding, Measurement, Run, Verdict


def contradictions(finding: Finding) -> tuple[str, ...]:
    """Sentences that name where a verdict and the numbers beside it disagree; none for an honest finding.

    Only what is certain is named: PASS against any evidence to the contrary, FAIL when nothing at all failed. A guard
    may turn a PASS into INCONCLUSIVE or PARTIAL, so these contradict nothing.
    """
    if finding.verdict is Verdict.PASS:
        return tuple(_against_a_pass(finding))
    if finding.verdict is Verdict.FAIL and not _anything_failed(finding):
        decided = words.headline(finding)
        assert decided is not None
        return (
            f"The verdict is FAIL, but the {decided.name} is inside what the claim allows ({words.allowed(decided)}).",
        )
    return ()


def warnings(run: Run) -> tuple[str, ...]:
    """What is wrong with the run as a whole: changed after it was written, or claims that contradict themselves."""
    found = []
    if run.altered:
        found.append(
            "This run was changed after it was written: its content no longer fits the digest in run.json. "
            "Do not rely on it; make it again with the command below."
        )
    count = sum(bool(contradictions(finding)) for finding in run.findings)
    if count:
        noun, verb = ("claim", "contradicts") if count == 1 else ("claims", "contradict")
        found.append(f"{count} {noun} {verb} the numbers beside the verdict; marked below.")
    return tuple(found)


def _against_a_pass(finding: Finding) -> list[str]:
    found = []
    for measurement in finding.measurements:
        if measurement.region is None:
            continue
        decides = measurement.name == finding.headline
        if measurement.value is not None and math.isnan(measurement.value):
            found.append(f"The verdict is PASS, but the {measurement.name} is not a number.")
        elif measurement.interval is not None:
            says = measurement.region.judge(measurement.interval)
            if says is Verdict.FAIL or (decides and says is not Verdict.PASS):
                low, high = words.ends(measurement)
                found.append(
                    f"The verdict is PASS, but the interval of the {measurement.name}, {low} to {high}, is not inside "
                    f"what the claim allows ({words.allowed(measurement)})."
                )
        elif decides and not _inside(measurement):
            found.append(
                f"The verdict is PASS, but the {measurement.name} is {words.number(measurement.value)} and the claim "
                f"allows {words.allowed(measurement)}."
            )
    for check in finding.checks:
        if check.verdict in (Verdict.FAIL, Verdict.ERROR) and not check.aside:
            found.append(f"The verdict is PASS, but the check \u201c{check.name}\u201d failed and nothing says why.")
    if finding.failures:
        found.append(f"The verdict is PASS, but {words.plural(len(finding.failures), 'piece')} of work failed.")
    found += [
        f"The verdict is PASS, but the control \u201c{control.name}\u201d was not told apart."
        for control in finding.controls
        if not control.separated
    ]
    return found


def _anything_failed(finding: Finding) -> bool:
    decided = words.headline(finding)
    if decided is None or decided.interval is None or decided.region is None:
        return True
    if decided.region.judge(decided.interval) is not Verdict.PASS:
        return True
    others = [m for m in finding.measurements if m.name != finding.headline and m.region is not None]
    return bool(
        finding.issues
        or finding.failures
        or any(check.verdict is not Verdict.PASS for check in finding.checks)
        or any(not _inside(other) for other in others)
    )


def _inside(measurement: Measurement) -> bool:
    limits, value = measurement.region, measurement.value
    if limits is None:
        return True
    if measurement.interval is not None:
        return limits.judge(measurement.interval) is Verdict.PASS
    if value is None or math.isnan(value):
        return False
    return (limits.low is None or value >= limits.low) and (limits.high is None or value <= limits.high)
