"""The reproduction as a Run: one finding per arm with published figures, the comparison as tables, all as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.results import Check, Control, Failure, Finding, Measurement, Region, Run, Table, Verdict
from assay.studies.reproduce.compare import Reproduced, by_arm, compare_all
from assay.studies.study import make_run

Record = Mapping[str, Any]


def report(records: Sequence[Record], failures: Sequence[Failure], *, command: str, seconds: float) -> Run:
    """The run: an arm passes if all its figures reproduce, fails if one does not, and is undecided otherwise."""
    compared = [c for c in compare_all(records) if c.verdict is not None]
    arms = list(dict.fromkeys(c.figure.arm for c in compared))
    findings = [_finding(arm, [c for c in compared if c.figure.arm == arm], records) for arm in arms]
    if failures:
        findings.append(
            Finding(
                subject="training runs",
                claim="Every run finishes.",
                verdict=Verdict.ERROR,
                reason=f"{len(failures)} run(s) failed: {failures[0].message}",
                failures=tuple(failures),
            )
        )
    return make_run(
        "reproduce", "The feedback-alignment protocol, run again", findings, identity={"arms": arms}, command=command,
        seconds=seconds, tables=(_table(compared), _runs(records)),
    )


def _finding(arm: str, compared: Sequence[Reproduced], records: Sequence[Record]) -> Finding:
    same_length = [c for c in compared if c.epochs == c.figure.epochs]
    judged = same_length or list(compared)
    verdict = Verdict.worst(c.outcome for c in judged if c.outcome is not None)
    worst = max(judged, key=lambda c: (c.outcome or Verdict.STUB).severity)
    found = by_arm(records)[arm]
    controls = [pair for record in found.values() for pair in record["diagnostics"]["controls"]]
    told = bool(controls) and all(pair["true"] > 0.9 and abs(pair["random"]) < 0.5 for pair in controls)
    note = "" if same_length else "; no published figure has our number of epochs: compared across lengths"
    return Finding(
        subject=f"ResMLP, {arm}" if found[min(found)]["setting"]["arch"] == "resmlp" else arm,
        name=f"fa-protocol-{arm}",
        claim="Our figures lie within the margin of the published ones.",
        verdict=verdict,
        reason=f"{worst.figure.quantity}{' better than published' if worst.better else ''}: {worst.reason}{note}",
        measurements=tuple(_measurement(c) for c in compared if c.mean is not None and math.isfinite(c.mean)),
        checks=tuple(
            Check(name=_label(c), verdict=c.outcome or Verdict.STUB, reason=c.reason, label=c.word) for c in compared
        ),
        controls=(
            Control(
                name="perturbation with the true gradient",
                kind="known-good",
                expected="rho above 0.9",
                observed=f"at least {min((p['true'] for p in controls), default=math.nan):.3f}",
                separated=told,
            ),
            Control(
                name="perturbation with a random signal",
                kind="known-bad",
                expected="|rho| below 0.5",
                observed=f"at most {max((abs(p['random']) for p in controls), default=math.nan):.3f}",
                separated=told,
            ),
        ),
        seeds=tuple(sorted(found)),
        varied=("initialisation", "data order", "augmentation", "feedback matrices"),
    )


def _measurement(c: Reproduced) -> Measurement:
    return Measurement(
        name=_label(c),
        value=c.mean,
        n=len(c.values),
        interval=c.interval,
        possible=Region(low=0.0, high=1.0) if c.figure.quantity == "accuracy" else None,
        values=c.values,
        seeds=c.seeds,
        note=f"published {c.figure.value:g} after {c.figure.epochs} epochs, ours after {c.epochs}",
    )


def _label(c: Reproduced) -> str:
    place = f" at h_{c.figure.depth}" if c.figure.depth is not None else ""
    return f"{c.figure.quantity}{place} (published after {c.figure.epochs} epochs)"


def _table(compared: Sequence[Reproduced]) -> Table:
    return Table(
        title="Published figures beside ours",
        columns=("arm", "figure", "published", "ours", "seeds", "epochs", "reproduces"),
        rows=tuple(
            (
                c.figure.arm,
                _label(c),
                c.figure.value,
                c.mean,
                len(c.values),
                c.epochs,
                c.word,
            )
            for c in compared
        ),
    )


def _runs(records: Sequence[Record]) -> Table:
    return Table(
        title="Training runs",
        columns=("run", "accuracy", "|h_L|", "|g_L|", "largest growth", "seconds"),
        rows=tuple(
            (
                str(r["name"]),
                float(r["accuracy"]),
                *_sizes(r["diagnostics"]),
                round(float(r["seconds"]), 1),
            )
            for r in records
        ),
    )


def _sizes(found: Mapping[str, Any] | None) -> tuple[float | None, float | None, float | None]:
    """|h_L|, |g_L| and the largest growth; None for a model without blocks."""
    if found is None:
        return None, None, None
    return float(found["norms"][-1]), float(found["gradient"][-1]), float(max(found["growth"]))
