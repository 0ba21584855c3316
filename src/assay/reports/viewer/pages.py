"""The viewer's own pages: the list of runs and the trends. Runs and comparisons are the same pages as on disk."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from assay.reports import words
from assay.reports.html import asset, date, environment, policy, verdict_bar
from assay.reports.viewer.library import Listed
from assay.reports.viewer.trends import matrices, revision


def list_page(entries: list[Listed], *, folder: str) -> str:
    """Every run with its verdict, running ones first, with boxes to choose what to compare."""
    rows = [_row(entry) for entry in entries]
    ended = [row for row in rows if not row["progress"]]
    audits = [row for row in ended if row["run"] is not None and row["run"].kind == "audit"]
    others = [row for row in ended if row not in audits]
    lists = [(title, mine) for title, mine in (("Verifications and benchmarks", others), ("Audits", audits)) if mine]
    return _render("runs.html", rows=rows, lists=lists, folder=folder)


def trends_page(entries: list[Listed]) -> str:
    """Each claim over all finished runs."""
    runs = [(entry.name, entry.run) for entry in entries if entry.run is not None]
    return _render("trends.html", matrices=matrices(runs), count=len(runs))


def progress_json(entries: list[Listed]) -> str:
    """What the list page asks for every second: the state of each running verification."""
    return json.dumps([{"name": entry.name, **progress_facts(entry)} for entry in entries if entry.progress])


def progress_facts(entry: Listed) -> dict[str, Any]:
    """Counts and words of a running verification."""
    progress = entry.progress
    assert progress is not None
    left = progress.seconds_left
    failed = sum(track.failed for track in progress.tracks)
    return {
        "done": progress.done,
        "total": progress.total,
        "failed": failed,
        "left": f"about {words.duration(left)} left" if left is not None else "",
        "tracks": [
            {
                "name": track.name or f"track {track.number}",
                "done": track.done + track.failed,
                "total": track.total,
                "state": track.verdict or ("running" if track.running else "waiting"),
            }
            for track in progress.tracks
        ],
    }


def _row(entry: Listed) -> dict[str, Any]:
    run = entry.run
    if run is None:
        return {"entry": entry, "progress": progress_facts(entry) if entry.progress else None, "run": None}
    return {
        "entry": entry,
        "progress": None,
        "run": run,
        "title": words.run_title(run),
        "created": date(run.created),
        "summary": words.summary(run),
        "bar": verdict_bar(run.counts),
        "revision": revision(run) if run.environment.git_revision else "—",
        "time": words.duration(run.seconds) if run.seconds else "—",
    }


def _render(template: str, **values: Any) -> str:
    css, script = asset("viewer.css"), asset("viewer.js")
    return (
        environment()
        .get_template(template)
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=policy(css, script, connect="'self'", form="'self'"),
            **values,
        )
    )
