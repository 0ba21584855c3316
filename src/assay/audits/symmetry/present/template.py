"""The finding of a symmetry audit as the plain-text report engineers paste into an issue."""

from __future__ import annotations

from assay.audits.symmetry.present.tables import DECLARED
from assay.results import Check, Finding, Table, Verdict

OVERALL = {Verdict.PASS: "PASS", Verdict.FAIL: "FAIL", Verdict.ERROR: "FAIL"}
RESULTS = {Verdict.PASS: "PASS", Verdict.FAIL: "FAIL", Verdict.ERROR: "FAIL"}
GRADIENTS = ("input gradients", "parameter gradients", "finite differences", "gradients", "differences")
LAYERS = 200
"""Modules listed at most per generator; the tables of the finding hold all of them."""


def original_template(finding: Finding) -> str:
    """The report in the original's template: model, symmetry, end to end, layers, gradients, issues, verdict, advice.

    Everything is taken from the finding; nothing is computed.
    """
    title = "MODEL EQUIVARIANCE AUDIT REPORT"
    declared = _table(finding, DECLARED)
    group, kind = declared.rows[0][:2] if declared is not None else ("unknown", "unknown")
    lines = [title, "=" * len(title), "", f"Model: {finding.subject}", f"Intended Symmetry: {group}"]
    lines += [f"Symmetry Type: {str(kind).capitalize()}"]
    lines += _section("END-TO-END TESTS", _end_to_end(finding))
    lines += _section("LAYER-WISE ANALYSIS", _layers(finding))
    lines += _section("GRADIENT TEST", _gradients(finding))
    lines += _section("IDENTIFIED ISSUES", _issues(finding))
    lines += ["", f"OVERALL VERDICT: {OVERALL.get(finding.verdict, 'NEEDS_ATTENTION')}", f"Reason: {finding.reason}"]
    lines += ["", "Recommendations:", *[f"- {one}" for one in finding.improvements or ("none",)]]
    return "\n".join(lines) + "\n"


def _section(title: str, body: list[str]) -> list[str]:
    return ["", f"{title}:", "-" * (len(title) + 1), *body]


def _end_to_end(finding: Finding) -> list[str]:
    numbers = {one.name: one.value for one in finding.measurements}
    lines = [
        f"Test samples: {_number(numbers.get('inputs tested'), whole=True)}",
        f"Transformations tested: {_number(numbers.get('transformations tested'), whole=True)}",
        "",
        "Invariance/Equivariance Error:",
        *[
            f"- {name.capitalize()}: {_number(numbers.get(f'{name} error'))}"
            for name in ("mean absolute", "max absolute", "mean relative", "max relative")
        ],
    ]
    table = _table(finding, "End to end")
    checks = [check for check in finding.checks if _is_forward(finding, check)]
    result = RESULTS.get(Verdict.worst(check.verdict for check in checks), "NEEDS_ATTENTION")
    lines.append(f"- RESULT: {result if checks else 'UNTESTED'}")
    if table is not None:
        lines += [
            "",
            *[
                f"- {row[0]}, {row[1]}: {row[2]} (max {_number(row[6])}, error / rounding bound {_number(row[8])}; "
                f"by size alone: {row[10]}, {row[11]})"
                for row in table.rows
            ],
        ]
    return lines


def _layers(finding: Finding) -> list[str]:
    """Each layer alone; of a model that holds, what every layer does to its features."""
    lines: list[str] = []
    for table in finding.tables:
        if table.title.startswith("Layers alone under "):
            lines.append(f"Under {table.title.removeprefix('Layers alone under ')}, each layer alone:")
            for row in table.rows[:LAYERS]:
                lines += [f"- Layer: {row[0]} ({row[1]})", f"- Error: {_number(row[3])}", f"- Result: {row[4]}"]
                lines += [f"- Check: {row[5]}"] if row[4] == "FAIL" else []
    for table in finding.tables if not lines else ():
        if not table.title.startswith("Layers under "):
            continue
        lines.append(f"Under {table.title.removeprefix('Layers under ')}:")
        for row in table.rows[:LAYERS]:
            lines += [
                f"- Layer: {row[0]} ({row[1]}, {row[2]})",
                f"- Error: {_number(row[3])}",
                f"- Result: {'FAIL' if row[-1] == 'breaks' else 'PASS'}",
            ]
    return lines or ["UNTESTED"]


def _gradients(finding: Finding) -> list[str]:
    value = next((one.value for one in finding.measurements if one.name == "gradient equivariance error"), None)
    checks = [check for check in finding.checks if check.name.startswith(GRADIENTS)]
    run = [check for check in checks if check.label != "UNTESTED"]
    outcome = Verdict.worst(check.verdict for check in run)
    result = "UNTESTED" if not run else "PASS" if outcome is Verdict.PASS else "FAIL"
    lines = [f"- Gradient equivariance error: {_number(value)}", f"- RESULT: {result}"]
    return lines + [f"- {check.name}: {check.label}: {check.reason}" for check in checks]


def _issues(finding: Finding) -> list[str]:
    lines: list[str] = []
    for number, issue in enumerate(finding.issues, start=1):
        lines += [
            f"{number}. {issue.title}: {issue.cause}",
            f"   - Location: {issue.location}",
            f"   - Severity: {issue.severity.capitalize()}",
            f"   - Recommended fix: {issue.fix}",
        ]
    return lines or ["none"]


def _is_forward(finding: Finding, check: Check) -> bool:
    table = _table(finding, "End to end")
    names = {f"{row[0]}: {row[1]}" for row in table.rows} if table is not None else set()
    return check.name in names or check.name in ("identity", "special elements", "image sizes", "set sizes")


def _table(finding: Finding, title: str) -> Table | None:
    return next((table for table in finding.tables if table.title == title), None)


def _number(value: object, *, whole: bool = False) -> str:
    if value is None:
        return "UNTESTED"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.0f}" if whole else f"{value:.3g}"
    return str(value)
