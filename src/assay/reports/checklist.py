"""Answers to the reproducibility questions of the NeurIPS paper checklist, filled from what the run recorded.

A run can answer only what it holds. Where it holds nothing, the answer says so and leaves the question to the author.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from assay.reports import words
from assay.reports.citation import citation
from assay.reports.markdown import code, text
from assay.results import Finding, Run, Verdict


@dataclass(frozen=True)
class Answer:
    """One question, the answer the run supports and the evidence for it."""

    question: str
    answer: str
    justification: str


def checklist(run: Run) -> str:
    """The answers as Markdown."""
    parts = [f"# Checklist answers for {text(words.run_title(run))}", f"Run {code(run.id)}. {text(words.summary(run))}"]
    for answer in answers(run):
        parts.append(
            f"## {answer.question}\n\n**Answer**: {answer.answer}\n\n**Justification**: {answer.justification}"
        )
    return "\n\n".join(parts) + "\n"


def answers(run: Run) -> tuple[Answer, ...]:
    """The answers in the order of the checklist."""
    return (
        _claims(run),
        _limitations(run),
        _reproducibility(run),
        _code(run),
        _settings(run),
        _significance(run),
        _compute(run),
    )


def _claims(run: Run) -> Answer:
    weak = [f for f in run.findings if f.verdict is not Verdict.PASS]
    if not run.findings:
        return Answer("Claims", "No", "The run examined no claim.")
    if not weak:
        return Answer("Claims", "Yes", f"All {len(run.findings)} claims passed: {_names(run.findings)}.")
    listed = "; ".join(f"{text(words.title(f))}: {f.verdict} ({text(f.reason)})" for f in weak)
    passed = len(run.findings) - len(weak)
    return Answer(
        "Claims", "No", f"{passed} of {len(run.findings)} claims passed. State these as they came out: {listed}."
    )


def _limitations(run: Run) -> Answer:
    named = [f"{text(words.title(f))}: {text(' '.join(f.limitations))}" for f in run.findings if f.limitations]
    if not named:
        return Answer("Limitations", "To be answered by the author", "The run records no limitation.")
    return Answer("Limitations", "Yes", " ".join(named))


def _reproducibility(run: Run) -> Answer:
    commands = [code(f.rerun) for f in run.findings if f.rerun]
    question = "Experimental result reproducibility"
    if not commands and not run.command:
        return Answer(question, "No", "The run records no command.")
    whole = f"The whole run: {code(run.command)}. " if run.command else ""
    seeds = sorted({seed for f in run.findings for seed in f.seeds})
    with_seeds = f" Seeds: {', '.join(map(str, seeds))}." if seeds else ""
    return Answer(question, "Yes", f"{whole}Each claim: {', '.join(commands) or 'no own command'}.{with_seeds}")


def _code(run: Run) -> Answer:
    environment = run.environment
    if not environment.git_revision:
        return Answer(
            "Open access to data and code", "To be answered by the author", "The run records no revision of the code."
        )
    state = {
        True: "with uncommitted changes, so the revision alone does not reproduce it",
        False: "clean",
        None: "state unknown",
    }
    where = f"Code revision {code(environment.git_revision)} ({state[environment.git_dirty]})"
    return Answer(
        "Open access to data and code",
        "To be answered by the author",
        f"{where}. Results file SHA-256 {citation(run).fingerprint}. Say where both can be had.",
    )


def _settings(run: Run) -> Answer:
    named = [f"{text(words.title(f))}: {text(f.experiment)}" for f in run.findings if f.experiment]
    config = ", ".join(f"{text(str(k))} = {text(str(v))}" for k, v in run.config.items())
    if not named and not config:
        return Answer("Experimental setting and details", "No", "The run records no experiment description.")
    tail = f" Configuration: {config}." if config else ""
    return Answer("Experimental setting and details", "Yes", " ".join(named) + tail)


def _significance(run: Run) -> Answer:
    question = "Experiment statistical significance"
    rows = []
    for finding in run.findings:
        decided = words.headline(finding)
        if decided is None or decided.interval is None:
            continue
        interval = decided.interval
        varied = f"; the seed varies {text(', '.join(finding.varied))}" if finding.varied else ""
        rows.append(
            f"{text(words.title(finding))}: {text(decided.name)} {words.number(decided.value)} "
            f"{words.interval(interval)}, {words.number(100 * interval.confidence)} % {text(interval.method)}, "
            f"n = {decided.n}{varied}."
        )
    without = len(run.findings) - len(rows)
    note = (
        f" {without} claim(s) rest on no interval: deterministic, not measured, or a single observation."
        if without
        else ""
    )
    if not rows:
        return Answer(question, "No", f"No claim rests on an interval.{note}")
    return Answer(question, "Yes", " ".join(rows) + note)


def _compute(run: Run) -> Answer:
    environment = run.environment
    machine = ", ".join(
        part for part in (environment.cpu, f"{environment.cores} cores" if environment.cores else "") if part
    )
    versions = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    if not machine and not run.seconds:
        return Answer("Experiments compute resources", "To be answered by the author", "The run records no machine.")
    return Answer(
        "Experiments compute resources",
        "Yes",
        f"{text(machine or 'machine not recorded')}; {words.duration(run.seconds)} in all; "
        f"{environment.threads} thread(s) per worker; {text(versions or 'versions not recorded')}.",
    )


def _names(findings: Iterable[Finding]) -> str:
    return ", ".join(text(words.title(finding)) for finding in findings)
