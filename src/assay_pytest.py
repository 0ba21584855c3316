"""The pytest plugin: findings as assertions, and INCONCLUSIVE as an outcome of its own.

It lives beside the package so that pytest starts without importing assay or torch; both are imported when a fixture is
used. A test whose finding is undecided is neither passed nor failed: it shows as ``I`` in the progress line, as
``1 inconclusive`` in the last line and with its reason under ``-ra`` or ``-rI``.

    def test_parity(assay_check):
        assay_check(assay.verify(2, seeds=10))

Options: ``--assay-strict``, or ``assay_strict = true`` in the pytest section of pyproject.toml, makes an undecided
finding fail its test. ``--assay-report PATH`` writes every finding that was checked as one report: a folder, or one
.html, .md, .json, .xml, .tex or .csv file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.results import Finding, Run
    from assay.stats import Decision

INCONCLUSIVE = "assay_inconclusive"
"""The user property that marks an undecided test; it travels with the report, also between processes."""
UNDECIDED = pytest.StashKey[list[str]]()
SEEN = pytest.StashKey[list[str]]()
"""Findings as JSON: of a test on its item, of a session on the configuration."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "count undecided findings (INCONCLUSIVE, PARTIAL, STUB) as failures"
    parser.getgroup("assay").addoption("--assay-strict", action="store_true", default=None, help=help_text)
    parser.getgroup("assay").addoption(
        "--assay-report", metavar="PATH", help="write every finding that assay_check saw as one report"
    )
    parser.addini("assay_strict", help_text, type="bool", default=False)


@pytest.fixture
def assay_check(request: pytest.FixtureRequest) -> Callable[[Finding | Run | Decision], None]:
    """A function that asserts a finding, every finding of a run, or a decision of assay.stats.

    PASS goes on. FAIL and ERROR fail the test with the reason, the measurements and the tables. Anything undecided lets
    the test go on, and if nothing else fails the test counts as inconclusive, or as failed under --assay-strict.
    """

    def check(subject: Finding | Run | Decision) -> None:
        from assay.errors import expected
        from assay.results import Finding, Run
        from assay.stats import Decision

        if isinstance(subject, Run):
            if not subject.findings:
                _undecided(request, "the run has no findings: nothing was shown")
            for finding in subject.findings:
                check(finding)
            return
        if isinstance(subject, Decision):
            subject = Finding(
                subject=subject.claim,
                claim=subject.claim,
                verdict=subject.verdict,
                reason=subject.reason,
                measurements=(subject.measurement,),
                checks=subject.checks,
            )
        if not isinstance(subject, Finding):
            raise expected(
                "a Finding, a Run or a Decision",
                given=type(subject).__name__,
                do="pass what assay.verify, an audit or a comparison of assay.stats returned",
            )
        if request.config.getoption("--assay-report"):
            request.node.stash.setdefault(SEEN, []).append(subject.model_dump_json())
        request.node.user_properties.append(("assay", f"{subject.subject}: {subject.verdict}: {subject.reason}"))
        if subject.verdict in ("FAIL", "ERROR"):
            pytest.fail(describe(subject), pytrace=False)
        if not subject.passed:
            _undecided(request, f"{subject.subject}: {subject.verdict}: {subject.reason}", describe(subject))

    return check


@pytest.fixture
def assert_equivariant() -> Callable[..., Any]:
    """``assay.symmetry.assert_equivariant``, imported when the fixture is used."""
    import importlib

    function: Callable[..., Any] = importlib.import_module("assay.symmetry").assert_equivariant
    return function


def describe(finding: Finding) -> str:
    """The finding as plain text: verdict and reason, then measurements, failed checks, issues, failures and tables."""
    lines = [f"{finding.subject}: {finding.verdict}: {finding.reason}"]
    if finding.claim and finding.claim != finding.subject:
        lines.append(f"claim: {finding.claim}")
    if finding.measurements:
        columns = ("measurement", "value", "n", "interval", "claimed")
        lines += [
            "",
            *_aligned(
                columns,
                [
                    (
                        m.name,
                        f"{_shown(m.value)} {'' if m.unit == '1' else m.unit}".strip(),
                        m.n,
                        m.interval or "none",
                        m.region or "",
                    )
                    for m in finding.measurements
                ],
            ),
        ]
    lines += [f"{check.verdict} {check.name}: {check.reason}" for check in finding.checks if check.verdict != "PASS"]
    lines += [f"issue at {issue.location}: {issue.title}; {issue.cause}; {issue.fix}" for issue in finding.issues]
    lines += [f"failed: {f.label}: {f.kind}: {f.message}\n{f.traceback}".rstrip() for f in finding.failures]
    for table in finding.tables:
        lines += ["", table.title, *_aligned(table.columns, table.rows)]
    if finding.rerun:
        lines += ["", f"again: {finding.rerun}"]
    return "\n".join(lines)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        # An attribute of the report travels between the processes of pytest-xdist; a stash does not.
        report.__dict__["assay_findings"] = item.stash.get(SEEN, [])
    undecided = item.stash.get(UNDECIDED, [])
    if call.when == "call" and undecided and report.outcome == "passed":
        # pytest knows three outcomes; of these "skipped" is the one that is neither success nor failure.
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, f"inconclusive: {'; '.join(undecided)}")
        for properties in (report.user_properties, item.user_properties):  # the second reaches the JUnit file
            properties.append((INCONCLUSIVE, "; ".join(undecided)))
    return report


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--assay-report") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(config), "assay-report")


class _Reporter:
    """Gathers the findings of all tests, of other processes too, and writes them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        from assay.reports.save import check_place

        self.place = check_place(str(config.getoption("--assay-report")))
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.found += getattr(report, "assay_findings", [])

    def pytest_sessionfinish(self) -> None:
        from datetime import UTC, datetime

        from assay.environment import capture
        from assay.reports import save_report
        from assay.results import Finding, Run

        now = datetime.now(UTC)
        findings = tuple(Finding.model_validate_json(text) for text in self.found)
        run = Run(id=f"pytest-{now:%Y%m%d-%H%M%S}", kind="audit", title="Findings of the tests", command="pytest",
                  created=now.isoformat(timespec="seconds"), environment=capture(), findings=findings)
        save_report(run, self.place)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.line(f"assay report of {len(self.found)} findings: {self.place}")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    if report.when == "call" and report.skipped and _reason(report) is not None:
        return "inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = terminalreporter.stats.get("inconclusive", [])
    if reports and set(config.getoption("reportchars")) & set("aAI"):
        terminalreporter.section("inconclusive: neither passed nor failed")
        for report in reports:
            terminalreporter.line(f"INCONCLUSIVE {report.nodeid} - {_reason(report)}", yellow=True)


def _undecided(request: pytest.FixtureRequest, reason: str, text: str | None = None) -> None:
    strict = request.config.getoption("--assay-strict")
    if request.config.getini("assay_strict") if strict is None else strict:
        pytest.fail(f"{text or reason}\nundecided, and --assay-strict is set", pytrace=False)
    request.node.stash.setdefault(UNDECIDED, []).append(reason)


def _reason(report: pytest.TestReport) -> object:
    return next((value for name, value in report.user_properties if name == INCONCLUSIVE), None)


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    cells = [tuple(columns), *(tuple(_shown(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
