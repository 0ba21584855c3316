"""A run as JUnit XML, so that any CI system shows claims as test cases."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from assay.reports import words
from assay.results import Finding, Run, Verdict

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(run: Run) -> str:
    """``run`` as a JUnit document: FAIL is a failure, ERROR an error, a stub is skipped.

    INCONCLUSIVE and PARTIAL are failures of type INCONCLUSIVE and PARTIAL: JUnit knows no third outcome, and what was
    not shown must never look green.
    """
    counts = run.counts
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": _clean(words.run_title(run)),
            "tests": str(len(run.findings)),
            "failures": str(counts[Verdict.FAIL] + counts[Verdict.INCONCLUSIVE] + counts[Verdict.PARTIAL]),
            "errors": str(counts[Verdict.ERROR]),
            "skipped": str(counts[Verdict.STUB]),
            "time": f"{run.seconds:.3f}",
            "timestamp": _clean(run.created),
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("run", run.id), ("command", run.command), ("git_revision", run.environment.git_revision)):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for finding in run.findings:
        suite.append(_case(finding, run.kind))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(finding: Finding, kind: str) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        {
            "classname": f"assay.{kind}",
            "name": _clean(words.title(finding)),
            "time": f"{finding.seconds:.3f}",
        },
    )
    tags = {Verdict.PASS: None, Verdict.STUB: "skipped", Verdict.ERROR: "error"}
    tag = tags.get(finding.verdict, "failure")
    if tag is not None:
        problem = ElementTree.SubElement(case, tag, {"message": _clean(finding.reason), "type": finding.verdict.value})
        problem.text = _clean(
            "\n".join(
                [
                    f"Claim: {finding.claim}",
                    f"{finding.verdict}: {finding.reason}",
                    *(f"{f.label}: {f.kind}: {f.message}\n{f.traceback}" for f in finding.failures),
                    f"Re-run: {finding.rerun}",
                ]
            )
        )
    out = ElementTree.SubElement(case, "system-out")
    out.text = _clean(
        "\n".join(
            f"{m.name}: {words.with_unit(words.number(m.value), m.unit)}, n = {m.n}, "
            f"interval {words.interval(m.interval)}, claim allows {words.region(m)}"
            for m in finding.measurements
        )
    )
    return case


def _clean(value: str) -> str:
    # XML 1.0 has no way to write most control characters, escaped or not.
    return _NOT_XML.sub("\ufffd", value)
