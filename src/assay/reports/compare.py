"""What changed between two runs: verdicts, the same seeds' numbers, the environment. No inference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from assay.reports import words
from assay.results import Environment, Evidence, Finding, Frozen, Measurement, Run, Verdict

Change = Literal["same", "better", "worse", "added", "missing"]


class Difference(Frozen):
    """One measurement in both runs: its two values and, where seeds are shared, the second minus the first by seed."""

    name: str
    unit: str
    before: float | None
    after: float | None
    seeds: tuple[int, ...] = ()
    differences: tuple[float, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether every shared number is exactly equal, as a deterministic rerun should be."""
        same_value = self.before == self.after or (_is_nan(self.before) and _is_nan(self.after))
        return same_value and not any(self.differences)

    @property
    def mean(self) -> float | None:
        """The mean of the per-seed differences; None without shared seeds."""
        return math.fsum(self.differences) / len(self.differences) if self.differences else None


class ClaimChange(Frozen):
    """One claim in both runs, or in one of them."""

    key: str
    title: str
    claim: str
    before: Verdict | None
    after: Verdict | None
    reason: str = ""
    score_before: float | None = None
    score_after: float | None = None
    evidence_before: Evidence | None = None
    evidence_after: Evidence | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def change(self) -> Change:
        """ "missing" if the second run did not ask it; "worse" if its verdict is more severe, "better" if less.

        A PASS on less evidence than before is worse, on more it is better: a confirmed claim is not a smoke test.
        """
        if self.before is None:
            return "added"
        if self.after is None:
            return "missing"
        if self.after is self.before:
            old, new = _level(self.evidence_before), _level(self.evidence_after)
            if self.after is not Verdict.PASS or old is None or new is None or old == new:
                return "same"
            return "worse" if new < old else "better"
        return "worse" if self.after.severity > self.before.severity else "better"

    @property
    def regression(self) -> bool:
        """Whether the claim got worse, or had passed and is no longer examined."""
        return self.change == "worse" or (self.change == "missing" and self.before is Verdict.PASS)


class EnvironmentChange(Frozen):
    """One fact of the environment that differs."""

    name: str
    before: str
    after: str


class Comparison(Frozen):
    """Two runs side by side; ``before`` and ``after`` are their ids."""

    before: str
    after: str
    before_title: str
    after_title: str
    before_created: str
    after_created: str
    claims: tuple[ClaimChange, ...]
    environment: tuple[EnvironmentChange, ...]

    @property
    def regressions(self) -> tuple[ClaimChange, ...]:
        """Claims that got worse or vanished after passing."""
        return tuple(claim for claim in self.claims if claim.regression)

    @property
    def changed(self) -> tuple[ClaimChange, ...]:
        """Claims whose verdict differs, or that only one run holds."""
        return tuple(claim for claim in self.claims if claim.change != "same")


def compare(before: Run, after: Run) -> Comparison:
    """What changed from ``before`` to ``after``, claim by claim.

    Claims are matched by track number, else by name and subject, and only if they claim the same in the same words: a
    track that now claims something else is one claim gone and another come. Numbers are subtracted seed by seed;
    whether a difference is more than chance is a question for ``assay.stats``, with a margin fixed beforehand.

    >>> run = Run(id="r", created="2026-01-01")
    >>> compare(run, run).regressions
    ()
    """
    old, new = _by_key(before.findings), _by_key(after.findings)
    for key in [key for key in old if key in new and _words(old[key]) != _words(new[key])]:
        gone = old.pop(key)
        old[f"{key}: {gone.claim}"] = gone
    keys = [*new, *(key for key in old if key not in new)]
    return Comparison(
        before=before.id,
        after=after.id,
        before_title=before.title,
        after_title=after.title,
        before_created=before.created,
        after_created=after.created,
        claims=tuple(_change(key, old.get(key), new.get(key)) for key in keys),
        environment=tuple(environment_changes(before, after)),
    )


def environment_changes(before: Run, after: Run) -> Iterable[EnvironmentChange]:
    """Every fact of the environment, command or configuration in which two runs differ."""
    old, new = _facts(before), _facts(after)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield EnvironmentChange(name=name, before=old.get(name, "absent"), after=new.get(name, "absent"))


def claim_key(finding: Finding) -> str:
    """What makes a finding the same claim in another run."""
    return f"track {finding.number}" if finding.number is not None else f"{finding.name} / {finding.subject}"


def _by_key(findings: Iterable[Finding]) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    for finding in findings:
        key, copy = claim_key(finding), 2
        while key in found:
            key, copy = f"{claim_key(finding)} ({copy})", copy + 1
        found[key] = finding
    return found


def _change(key: str, old: Finding | None, new: Finding | None) -> ClaimChange:
    shown = new or old
    assert shown is not None
    return ClaimChange(
        key=key,
        title=words.named(shown),
        claim=shown.claim,
        before=old.verdict if old else None,
        after=new.verdict if new else None,
        reason=new.reason if new else "not examined in the second run",
        score_before=old.score if old else None,
        score_after=new.score if new else None,
        evidence_before=old.evidence if old else None,
        evidence_after=new.evidence if new else None,
        differences=tuple(_differences(old, new)) if old and new else (),
    )


def _differences(old: Finding, new: Finding) -> Iterable[Difference]:
    known = {measurement.name: measurement for measurement in old.measurements}
    for after in new.measurements:
        before = known.get(after.name)
        # A changed unit makes the subtraction meaningless, so such a pair is left out.
        if before is not None and before.unit == after.unit:
            yield _difference(before, after)


def _difference(before: Measurement, after: Measurement) -> Difference:
    old = dict(zip(before.seeds, before.values, strict=False))
    new = dict(zip(after.seeds, after.values, strict=False))
    shared = tuple(sorted(old.keys() & new.keys()))
    return Difference(
        name=after.name,
        unit=after.unit,
        before=before.value,
        after=after.value,
        seeds=shared,
        differences=tuple(new[seed] - old[seed] for seed in shared),
    )


def _facts(run: Run) -> dict[str, str]:
    environment: Environment = run.environment
    dirty = {None: "unknown", True: "uncommitted changes", False: "clean"}[environment.git_dirty]
    return {
        "command": run.command,
        "budget": run.budget,
        "git revision": environment.git_revision,
        "git state": dirty,
        "python": environment.python,
        "platform": environment.platform,
        "cpu": environment.cpu,
        "cores": str(environment.cores),
        "threads": str(environment.threads),
        **{f"package {name}": version for name, version in environment.packages.items()},
        **{f"determinism {name}": value for name, value in environment.determinism.items()},
        **{f"config {name}": str(value) for name, value in run.config.items() if name != "plan"},
    }


def _words(finding: Finding) -> list[str]:
    return finding.claim.casefold().split()


def _level(evidence: Evidence | None) -> int | None:
    return None if evidence is None else list(Evidence).index(evidence)


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)
