"""A run for a spreadsheet and for a paper: CSV of every measurement, LaTeX of the verdicts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from assay.reports import words
from assay.results import Finding, Measurement, Run

COLUMNS = (
    "track", "name", "subject", "verdict", "evidence", "measurement", "decides", "seed", "value", "unit", "n",
    "interval_low", "interval_high", "confidence", "method", "region_low", "region_high", "source", "note",
)  # fmt: skip
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def csv_table(run: Run) -> str:
    """Every measurement as CSV at full precision: one row for the value, then one for each seed.

    A text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for finding in run.findings:
        for measurement in finding.measurements:
            writer.writerows(_csv_rows(finding, measurement))
    return out.getvalue()


def latex(run: Run) -> str:
    """The verdicts as a LaTeX table (needs the booktabs package), ready for a paper."""
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{tex(words.ended(words.run_title(run)))} {tex(words.summary(run))}}}",
        "\\begin{tabular}{llrrll}",
        "\\toprule",
        "Claim & Measurement & Value & Interval & Claim allows & Verdict \\\\",
        "\\midrule",
        *(_latex_row(finding) for finding in run.findings),
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """``text`` with every character that LaTeX would act on written so that it prints.

    >>> tex("50 % of x_1")
    '50 \\\\% of x\\\\_1'
    """
    return re.sub(r"[\\{}$&#%_^~<>|]", lambda match: _LATEX[match[0]], " ".join(text.split()))


def _csv_rows(finding: Finding, measurement: Measurement) -> Iterator[list[object]]:
    interval, region = measurement.interval, measurement.region
    claim = (finding.number, finding.name, finding.subject, finding.verdict, finding.evidence, measurement.name)
    start = [*(_inert(cell) for cell in claim), measurement.name == finding.headline]
    end = [
        _inert(measurement.unit),
        measurement.n,
        *((interval.low, interval.high, interval.confidence, _inert(interval.method)) if interval else ("",) * 4),
        *((region.low, region.high) if region else ("", "")),
        measurement.source,
        _inert(measurement.note),
    ]
    yield [*start, "", measurement.value, *end]
    for seed, value in zip(measurement.seeds, measurement.values, strict=False):
        yield [*start, seed, value, _inert(measurement.unit), 1, *[""] * 6, measurement.source, ""]


def _inert(cell: object) -> object:
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    return cell if not isinstance(cell, str) else str(cell)


def _latex_row(finding: Finding) -> str:
    decided = words.headline(finding)
    name = tex(words.heading(finding))
    if decided is None:
        return f"{name} & --- & --- & --- & --- & {finding.verdict} \\\\"
    interval = decided.interval
    shown = "---" if interval is None else f"[{_number(interval.low)}, {_number(interval.high)}]"
    unit = "" if decided.unit == "1" else f"~{tex(decided.unit)}"
    allows = re.sub(r"-?\d[\d.]*(?:e[-+]?\d+)?", lambda m: _number(float(m[0])), words.region(decided))
    cells = [name, tex(decided.name), _number(decided.value) + unit, shown, allows.replace("—", "---"), finding.verdict]
    return " & ".join(cells) + " \\\\"


def _number(value: float | None) -> str:
    text = words.number(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"${mantissa} \\times 10^{{{int(exponent)}}}$"
    return "---" if value is None else f"${text}$"
