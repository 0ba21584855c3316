"""A run as Markdown: the sections a reader of a verification report expects, in the order they are asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from assay.reports import words
from assay.results import Environment, Figure, Finding, Run, Scalar, Table


def markdown(run: Run) -> str:
    """The whole report of ``run`` as Markdown. Text from the run is escaped, so it cannot add markup of its own.

    >>> print(markdown(Run(id="r", created="2026-01-01")).splitlines()[0])
    # Verification results
    """
    parts = [
        f"# {text(words.run_title(run))}",
        *_answer(run),
        f"**Generated**: {text(run.created)} | **Run**: {code(run.id)}",
        *(() if _is_audit(run) else _summary(run)),
        *(part for table in run.tables for part in _table(table)),
        *(part for figure in run.figures for part in _figure(figure)),
        "---",
        *(part for finding in run.findings for part in _finding(finding)),
        *_environment(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _is_audit(run: Run) -> bool:
    """One finding that is no numbered claim: a table of one row would say nothing."""
    return len(run.findings) == 1 and run.findings[0].number is None


def _answer(run: Run) -> list[str]:
    """What a reader of an audit came for: the verdict and why, then each issue in a line, with what to do."""
    if not _is_audit(run):
        return []
    (finding,) = run.findings
    issues = [
        f"- **{text(issue.title)}** at {code(issue.location)}: {text(issue.cause)}. *Do*: {text(issue.fix)}"
        for issue in finding.issues
    ]
    word = words.WORDS[finding.verdict]
    return [f"{word.icon} **{finding.verdict}**: {text(words.sentence(finding.reason))}", "\n".join(issues)]


def text(value: str) -> str:
    """``value`` on one line with every character that Markdown or HTML would act on made inert.

    >>> text("<b>|[x](y)|</b> *loud* test_accuracy")
    '&lt;b&gt;\\\\|\\\\[x\\\\](y)\\\\|&lt;/b&gt; \\\\*loud\\\\* test_accuracy'
    """
    value = " ".join(value.split())
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    value = re.sub(r"([\\`*\[\]|~])", r"\\\1", value)
    # Inside a word an underscore is plain; at the edge of one it would start emphasis.
    value = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", value)
    return re.sub(r"^([#+\-=]|\d+[.)](?=\s))", r"\\\1", value)


def code(value: str) -> str:
    """``value`` as an inline code span whatever backticks it holds."""
    value = " ".join(value.split())
    if not value:
        return ""
    fence = "`" * (_longest_run_of_ticks(value) + 1)
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    return f"{fence}{pad}{value}{pad}{fence}"


def block(value: str, language: str = "") -> str:
    """``value`` as a fenced code block whose fence is longer than any inside."""
    fence = "`" * max(3, _longest_run_of_ticks(value) + 1)
    return f"{fence}{language}\n{value.rstrip()}\n{fence}"


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are already escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in body)])


def cell(value: Scalar) -> str:
    """A table cell: numbers to four digits, booleans as words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, (int, float)):
        return words.number(value)
    return text(value)


def _summary(run: Run) -> list[str]:
    scores = [finding.score for finding in run.findings if finding.score is not None]
    metrics = [("Tracks verified" if run.kind == "verify" else "Claims examined", str(len(run.findings)))]
    metrics += [
        (words.WORDS[verdict].count, f"{count} {words.WORDS[verdict].icon}") for verdict, count in run.counts.items()
    ]
    if scores:
        metrics.append(("Lowest score", f"{words.number(min(scores))}/100"))
    seeds = sorted({seed for finding in run.findings for seed in finding.seeds})
    body = [
        [
            str(finding.number) if finding.number is not None else "—",
            text(words.named(finding)),
            f"{words.WORDS[finding.verdict].icon} {finding.verdict}",
            words.number(finding.score),
            finding.evidence.value if finding.evidence else "—",
            words.duration(finding.seconds),
        ]
        for finding in run.findings
    ]
    sentences = [
        f"- {words.WORDS[f.verdict].icon} **{f.verdict}** — {text(f.claim)} {text(words.sentence(f.reason))}"
        for f in run.findings
    ]
    return [
        "## Executive summary",
        f"**{words.summary(run)}** Completed in {words.duration(run.seconds)}.",
        "\n".join(sentences),
        "### Overall results",
        rows(("Metric", "Value"), metrics),
        "### Track summary",
        rows(("#", "Track", "Status", "Score", "Evidence", "Time"), body),
        f"**Seeds**: {', '.join(map(str, seeds))}"
        if seeds
        else "**Seeds**: none; every claim here is deterministic or was not run",
        f"**Reproduce**: {code(run.command)}" if run.command else "",
    ]


def _finding(finding: Finding) -> list[str]:
    word = words.WORDS[finding.verdict]
    status = [f"{word.icon} **Status**: {finding.verdict}"]
    if finding.score is not None:
        status.append(f"**Score**: {words.number(finding.score)}/100")
    status.append(f"**Time**: {words.duration(finding.seconds)}")
    parts = [f"## {text(words.title(finding))}", " | ".join(status)]
    if finding.evidence is not None:
        meaning = words.EVIDENCE_MEANING[finding.evidence.value]
        parts.append(f"**Evidence level**: {finding.evidence.value} ({meaning})")
    parts.append(f"**Claim**: {text(finding.claim)}")
    parts.append(f"**Experiment**: {text(finding.experiment)}" if finding.experiment else "")
    parts.append(f"**Verdict**: {text(words.sentence(finding.reason))}")
    parts += _measurements(finding)
    parts += [part for table in finding.tables for part in _table(table)]
    parts += [part for figure in finding.figures for part in _figure(figure)]
    parts.append(f"**Key finding**: {text(finding.key_finding)}" if finding.key_finding else "")
    parts += _checks(finding)
    parts += _problems(finding)
    parts += _list("### Limitations", finding.limitations)
    parts += _list("### Areas for improvement", finding.improvements)
    if finding.varied:
        parts.append(f"**Varied{' by the seed' if finding.seeds else ''}**: {text(', '.join(finding.varied))}")
    parts.append(f"**Seeds**: {', '.join(map(str, finding.seeds))}" if finding.seeds else "")
    parts.append(f"**Re-run**: {code(finding.rerun)}" if finding.rerun else "")
    return parts


def _measurements(finding: Finding) -> list[str]:
    if not finding.measurements:
        return []
    body = []
    for measurement in finding.measurements:
        method = "—"
        if measurement.interval is not None:
            method = f"{words.number(100 * measurement.interval.confidence)} % {measurement.interval.method}"
        body.append(
            [
                text(measurement.name),
                words.number(measurement.value),
                text(measurement.unit) if measurement.unit != "1" else "—",
                str(measurement.n),
                words.interval(measurement.interval),
                text(method),
                words.region(measurement),
                measurement.source,
            ]
        )
    parts = [rows(("Measurement", "Value", "Unit", "n", "Interval", "Method", "Claim allows", "Source"), body)]
    decided = words.headline(finding)
    worst = words.worst(decided) if decided else None
    if decided and worst:
        parts.append(f"**{words.worst_label(decided)}**: {worst[0]} ({words.number(worst[1])})")
    return parts


def _table(table: Table) -> list[str]:
    header = [text(column) for column in table.columns]
    parts = [f"**{text(table.title)}**", rows(header, ([cell(value) for value in row] for row in table.rows))]
    return [*parts, f"*{text(table.note)}*" if table.note else ""]


def _figure(figure: Figure) -> list[str]:
    caption = f" {text(figure.caption)}" if figure.caption else ""
    return [f"*Picture in the HTML report*: {text(figure.question)}{caption}"]


def _checks(finding: Finding) -> list[str]:
    parts = []
    if finding.checks:
        body = [
            [text(c.name), f"{words.WORDS[c.verdict].icon} {c.verdict}", text(c.reason), text(c.label)]
            for c in finding.checks
        ]
        parts += ["### Checks", rows(("Check", "Outcome", "Why", "Kind"), body)]
    if finding.controls:
        body = [
            [text(c.name), c.kind, text(c.expected), text(c.observed), words.control_sentence(c)]
            for c in finding.controls
        ]
        parts += ["### Controls", rows(("Control", "Kind", "Expected", "Observed", "Outcome"), body)]
    return parts


def _problems(finding: Finding) -> list[str]:
    parts = []
    for issue in finding.issues:
        parts.append(f"### Issue ({issue.severity}): {text(issue.title)}")
        parts.append(
            f"- **Where**: {text(issue.location)}\n- **Cause**: {text(issue.cause)}\n- **Fix**: {text(issue.fix)}"
        )
        parts.append(block(issue.script, "python") if issue.script else "")
    for failure in finding.failures:
        parts.append(f"### Failure ({text(failure.kind)}): {text(failure.label)}")
        parts.append(text(failure.message))
        parts.append(block(failure.traceback) if failure.traceback else "")
    return parts


def _environment(run: Run) -> list[str]:
    environment: Environment = run.environment
    revision = code(environment.git_revision) if environment.git_revision else "—"
    if environment.git_dirty is not None:
        revision += " with uncommitted changes" if environment.git_dirty else " (clean)"
    facts = [
        ("Python", text(environment.python)),
        ("Platform", text(environment.platform)),
        ("CPU", text(environment.cpu)),
        ("Cores / threads", f"{environment.cores} / {environment.threads}"),
        ("Git revision", revision),
        *((text(name), text(version)) for name, version in environment.packages.items()),
        *((text(name), text(value)) for name, value in environment.determinism.items()),
    ]
    parts = ["---", "## Environment", rows(("Item", "Value"), facts)]
    if run.config:
        parts += ["### Configuration", block(json.dumps(run.config, indent=1, default=str), "json")]
    return parts


def _list(heading: str, items: Sequence[str]) -> list[str]:
    return [heading, "\n".join(f"- {text(item)}" for item in items)] if items else []


def _longest_run_of_ticks(value: str) -> int:
    return max((len(ticks) for ticks in re.findall("`+", value)), default=0)
