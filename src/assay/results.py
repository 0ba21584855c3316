"""Frozen results: a Run holds Findings, a Finding holds Measurements, and every one of them survives a JSON round trip.

This module knows no renderer, no engine and no torch: a run made on one machine opens on any other. Reports compute
nothing, so whatever a reader should see (an interval, a verdict, a picture's points) is already in here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from assay.errors import NotPassed, SchemaError
from assay.figures import Figure, Panel, Reference, Series, Table
from assay.frozen import Frozen, Scalar

SCHEMA_VERSION = 2
"""Raised when a reader of the previous version would misread a file; older files stay readable."""


class Verdict(StrEnum):
    """What the evidence says of a claim. Not run, crashed and undecided are never a pass.

    >>> Verdict.worst([Verdict.PASS, Verdict.INCONCLUSIVE])
    <Verdict.INCONCLUSIVE: 'INCONCLUSIVE'>
    """

    PASS = "PASS"
    PARTIAL = "PARTIAL"
    STUB = "STUB"
    INCONCLUSIVE = "INCONCLUSIVE"
    FAIL = "FAIL"
    ERROR = "ERROR"

    @property
    def severity(self) -> int:
        """0 for PASS up to 5 for ERROR; the order of ``worst``."""
        return list(Verdict).index(self)

    @property
    def exit_code(self) -> int:
        """0 PASS, 1 FAIL, 3 undecided, 4 ERROR (2 is kept for usage errors)."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.ERROR: 4}.get(self, 3)

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """The worst verdict of several; of none at all, INCONCLUSIVE: nothing was shown."""
        return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.INCONCLUSIVE)


class Evidence(StrEnum):
    """How much evidence a verdict rests on. Computed by ``assay.stats.evidence``, never declared."""

    SMOKE = "smoke"
    DIRECTIONAL = "directional"
    CONFIRMED = "confirmed"
    REPLICATED = "replicated"


class Interval(Frozen):
    """A confidence interval and how it was made."""

    low: float
    high: float
    confidence: float
    method: str

    def __str__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}] ({self.confidence:.0%}, {self.method})"


class Region(Frozen):
    """The values a claim allows; None is unbounded. Evidence inside it is a PASS, disjoint from it a FAIL."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None:
            return "anything" if self.high is None else f"<= {self.high:.4g}"
        return f">= {self.low:.4g}" if self.high is None else f"{self.low:.4g} to {self.high:.4g}"

    def judge(self, interval: Interval | None) -> Verdict:
        """PASS if the interval lies inside, FAIL if it is disjoint, INCONCLUSIVE otherwise.

        No interval, or one with a NaN end, decides nothing.
        """
        if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
            return Verdict.INCONCLUSIVE
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if low <= interval.low and interval.high <= high:
            return Verdict.PASS
        if interval.high < low or interval.low > high:
            return Verdict.FAIL
        return Verdict.INCONCLUSIVE


def _cut(data: dict[str, Any]) -> dict[str, Any]:
    possible, interval = data.get("possible"), data.get("interval")
    if not isinstance(possible, Region) or not isinstance(interval, Interval):
        return data
    low = interval.low if possible.low is None else max(interval.low, possible.low)
    high = interval.high if possible.high is None else min(interval.high, possible.high)
    if (low, high) == (interval.low, interval.high) or low > high:
        return data
    return {**data, "interval": interval.model_copy(update={"low": low, "high": high})}


class Measurement(Frozen):
    """One number with everything needed to judge it.

    ``n`` counts independent observations, ``of`` says of what (seeds, inputs, test items). With n = 1 there is no
    interval: None, not width 0. ``values`` holds the observations by ``seeds`` when there are few enough to show.
    ``possible`` is what the quantity can be at all (an accuracy is 0 to 100 %); an interval made by a formula that
    does not know it is cut there.
    """

    name: str
    value: float | None
    unit: str = "1"
    n: int = 1
    interval: Interval | None = None
    source: Literal["measured", "derived"] = "measured"
    region: Region | None = None
    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    note: str = ""
    about: str = ""
    """What the interval generalises to, where that is a question: "this test set" or "data like it"."""
    of: str = ""
    possible: Region | None = None

    @model_validator(mode="before")
    @classmethod
    def _cut_at_the_possible(cls, data: Any) -> Any:
        return _cut(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _one_value_per_seed(self) -> Self:
        if self.seeds and len(self.seeds) != len(self.values):
            raise ValueError(f"measurement {self.name!r} has {len(self.values)} values for {len(self.seeds)} seeds")
        if self.interval is not None and self.n < 2 and self.source == "measured":
            raise ValueError(f"measurement {self.name!r} has n = {self.n}: a single observation has no interval")
        return self


class Check(Frozen):
    """One guard or sub-test inside a finding: what was asked, what came out, why.

    ``aside`` says why a check that did not pass does not count against the claim; without it, it does.
    """

    name: str
    verdict: Verdict
    reason: str
    label: str = ""
    aside: str = ""


class Control(Frozen):
    """A subject whose answer is known beforehand. ``separated`` says whether the check told it for what it is."""

    name: str
    kind: Literal["known-good", "known-bad"]
    expected: str
    observed: str
    separated: bool


class Issue(Frozen):
    """A diagnosed defect: where, how bad, why, what to do, and a script that reproduces it."""

    title: str
    location: str
    severity: Literal["high", "medium", "low"]
    cause: str
    fix: str
    script: str = ""


class Failure(Frozen):
    """A piece of work that raised, hung, ran out of memory or was killed."""

    label: str
    kind: str
    message: str
    traceback: str = ""


class Finding(Frozen):
    """What was claimed of a subject, what came out, and everything a reviewer needs to check it."""

    subject: str
    claim: str
    verdict: Verdict
    reason: str
    number: int | None = None
    name: str = ""
    title: str = ""
    """The name for a person to read; ``name`` is the one to type."""
    experiment: str = ""
    key_finding: str = ""
    score: float | None = None
    evidence: Evidence | None = None
    headline: str | None = None
    """The name of the measurement that decided, drawn against its region in the overview."""
    measurements: tuple[Measurement, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    checks: tuple[Check, ...] = ()
    controls: tuple[Control, ...] = ()
    issues: tuple[Issue, ...] = ()
    failures: tuple[Failure, ...] = ()
    limitations: tuple[str, ...] = ()
    improvements: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    """Sources of variance the seed changed: initialisation, data order, split, feedback matrices, ..."""
    seeds: tuple[int, ...] = ()
    seconds: float = 0.0
    rerun: str = ""

    @property
    def passed(self) -> bool:
        """True for PASS alone."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """One line: everything else is in the report."""
        line = " ".join(f"{self.verdict}: {self.reason}".split())
        return f"Finding({self.subject!r}, {line if len(line) <= 200 else line[:199] + '…'})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows: verdict, reason and issues; `save_report` makes the whole page."""
        issues = "".join(
            f"<li><b>{escape(i.title)}</b> at <code>{escape(i.location)}</code>: {escape(i.cause)}<br>"
            f"<i>Do</i>: {escape(i.fix)}</li>"
            for i in self.issues
        )
        head = f"<b>{self.verdict}</b> {escape(self.subject)}: {escape(self.reason)}"
        return f"<div>{head}{f'<ul>{issues}</ul>' if issues else ''}</div>"

    def measurement(self, name: str) -> Measurement:
        """The measurement called ``name``; KeyError with the known names if there is none."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(f"no measurement {name!r}; there are: {', '.join(m.name for m in self.measurements)}")

    def raise_unless_passed(self) -> Self:
        """This finding if it passed; otherwise a NotPassed error that says why."""
        if not self.passed:
            raise NotPassed(f"{self.subject}: {self.verdict}: {self.reason}", self)
        return self


class Environment(Frozen):
    """Where and with what a run was made."""

    python: str = ""
    platform: str = ""
    cpu: str = ""
    cores: int = 0
    threads: int = 1
    packages: dict[str, str] = Field(default_factory=dict)
    determinism: dict[str, str] = Field(default_factory=dict)
    git_revision: str = ""
    git_dirty: bool | None = None


class Run(Frozen):
    """One verification, audit or benchmark: its findings, in the order asked for."""

    schema_version: int = SCHEMA_VERSION
    id: str
    kind: Literal["verify", "audit", "bench", "reproduce", "selftest"] = "verify"
    title: str = ""
    created: str
    command: str = ""
    budget: str = ""
    seconds: float = 0.0
    environment: Environment = Environment()
    config: dict[str, Any] = Field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    digest: str = ""
    """SHA-256 of everything else, written with the file: a file changed afterwards no longer fits it."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings; everything asked for stays in the denominator."""
        return Verdict.worst(finding.verdict for finding in self.findings)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many findings came out as each verdict, zeros included."""
        return {verdict: sum(f.verdict is verdict for f in self.findings) for verdict in Verdict}

    @property
    def altered(self) -> bool:
        """Whether the run is no longer what its digest was computed of; False for a run that has none."""
        return bool(self.digest) and self.digest != self._content_digest()

    def to_json(self) -> str:
        """The run as indented JSON, the content of ``run.json``, sealed with its digest.

        A digest that is there is kept: a run that was altered after it was written stays recognisable as such.
        """
        sealed = self if self.digest else self.model_copy(update={"digest": self._content_digest()})
        return sealed.model_dump_json(indent=1) + "\n"

    def _content_digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"digest"}).encode()).hexdigest()

    @staticmethod
    def from_json(text: str | bytes, *, where: str = "run") -> Run:
        """The run stored in ``text``; SchemaError if it is corrupt or from a newer Assay."""
        try:
            raw = json.loads(text)
        except RecursionError:
            raise SchemaError(f"{where} is nested too deeply to be a run; it was not written by Assay") from None
        except ValueError as error:
            raise SchemaError(f"{where} is not valid JSON ({error}); it may be truncated: make the run again") from None
        version = raw.get("schema_version") if isinstance(raw, dict) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise SchemaError(f"{where} is not an Assay run: no schema_version; expected a run.json")
        if version > SCHEMA_VERSION:
            raise SchemaError(
                f"{where} has schema version {version}; this Assay reads up to {SCHEMA_VERSION}: upgrade it"
            )
        try:
            return Run.model_validate(raw)
        except RecursionError:
            raise SchemaError(f"{where} is nested too deeply to be a run; it was not written by Assay") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "top level"
            raise SchemaError(
                f"{where} does not fit schema version {version}: {place}: {first['msg']}; the file was altered"
            ) from None


def load_run(path: str | Path) -> Run:
    """The run in a folder or a run.json file.

    Raises SchemaError with one clear line when the file is missing, corrupt or from a newer Assay.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "run.json"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SchemaError(f"cannot read {file}: {error.strerror}; expected a run folder or a run.json") from None
    return Run.from_json(data, where=str(file))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of run.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Run.model_json_schema(mode="serialization")}


__all__ = [
    "SCHEMA_VERSION", "Check", "Control", "Environment", "Evidence", "Failure", "Figure", "Finding", "Frozen",
    "Interval", "Issue", "Measurement", "Panel", "Reference", "Region", "Run", "Scalar", "Series", "Table", "Verdict",
    "json_schema", "load_run",
]
