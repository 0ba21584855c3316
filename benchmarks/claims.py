"""The page of all claims, docs/results/claims.md: every number of the original, and what became of it here.

    python benchmarks/claims.py run OUT [TRACK ...]     every claim at standard budget; the same command continues
    python benchmarks/claims.py page [RUN ...]          take finished runs in and write the page and its pictures

Findings that were taken in are kept in docs/results/data/claims.json, so the page is written again from what is
committed. Which numbers the original had, and what they asked, is in original_claims.json beside this file. Nothing on
the page is typed.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.registry import Track, registry
from assay.reports.charts.figure import draw
from assay.results import Figure, Finding, Run, load_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "claims.md"
PICTURES = ROOT / "docs" / "results" / "claims"
KEPT = ROOT / "docs" / "results" / "data" / "claims.json"
ORIGINAL = Path(__file__).with_name("original_claims.json")
SEED = 42
"""The first seed of a verification that names none."""
OURS = (131, 132, 133, 134)
"""Claims of ours beside the original's: the feedback-alignment protocol."""
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#5f5b54}.grid{stroke:#e3dfd6}.base{stroke:#5f5b54}"
    ".axis-name{font-weight:600}.reference{stroke:#5f5b54;stroke-width:1.25px;stroke-dasharray:5 4;fill:none}"
    ".line{fill:none;stroke-width:2px}.dots{fill:none;stroke-width:6.5px;stroke-linecap:round}.hollow{fill:none;"
    "stroke:#fff;stroke-width:3px;stroke-linecap:round}.line,.dots,.hollow,.slope{vector-effect:non-scaling-stroke}"
    ".end{stroke:none;font-weight:600}"
)
COLOURS = ("#1c5a92", "#b85c00", "#1b7a6e", "#8a3f8f", "#7a6a10", "#b3364b", "#4a5aa8", "#57534d")
LABELS = {"tested": "tested here", "covered": "covered", "left out": "left out"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("tracks", nargs="*")
    running.add_argument("--workers", type=int, default=1)
    page = commands.add_parser("page")
    page.add_argument("runs", nargs="*", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.out, given.tracks, workers=given.workers)
    else:
        write_page(given.runs)


def run(out: Path, tracks: Sequence[str], *, workers: int) -> None:
    """Each claim as a run of its own, so that what has finished can be shown while the rest is computed."""
    for track in tracks or [str(t.number) for t in registry.ordered() if t.module.startswith("assay.tracks")]:
        command = [sys.executable, "-m", "assay", "verify", track, "--budget", "standard", "--workers", str(workers)]
        subprocess.run([*command, "--out", str(out / track), "--store", str(out / "cells")], check=False)


def write_page(runs: Sequence[Path]) -> None:
    """Take ``runs`` in and write everything anew from what is kept."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for path in runs:
        found = load_run(path)
        kept |= {finding.name: _kept(finding, found) for finding in found.findings}
    kept = dict(sorted(kept.items(), key=lambda item: item[1]["finding"]["number"]))
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    results = {name: (Finding.model_validate(entry["finding"]), entry) for name, entry in kept.items()}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for finding, _ in results.values():
        if finding.figures:
            (PICTURES / f"{finding.number}.svg").write_text(picture(finding.figures[0]) + "\n", encoding="utf-8")
    original = json.loads(ORIGINAL.read_text(encoding="utf-8"))
    PAGE.write_text(render(original, results), encoding="utf-8")


def _kept(finding: Finding, found: Run) -> dict[str, Any]:
    """What the page needs of a finding: tables and all pictures but the first stay in the run's own report."""
    environment = found.environment
    slim = finding.model_copy(update={"figures": finding.figures[:1], "tables": (), "experiment": ""})
    return {
        "finding": slim.model_dump(mode="json"), "budget": found.budget, "created": str(found.created),
        "machine": environment.cpu, "torch": environment.packages.get("torch", ""),
        "revision": environment.git_revision, "first_seed": found.config["seeds"][0],
    }  # fmt: skip


def picture(figure: Figure) -> str:
    """The figure as an SVG file that stands alone: its style inside, on white, names at columns and ends of lines."""
    colours = "".join(
        f".s{i}{{stroke:{c}}}.end.s{i}{{fill:{c};stroke:none}}.s{i}.bars{{fill:{c}}}" for i, c in enumerate(COLOURS)
    )
    svg = str(draw(figure, identifier=figure.key))
    head, _, body = svg.partition(">")
    named = [s for s in figure.series if s.style == "dots" and s.name not in figure.categories]
    kinds = [(figure.series.index(s) % len(COLOURS), s.name) for s in named] if len(named) > 1 else []
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', head)
    assert size is not None
    width, height = int(size[1]) + 40, int(size[2])
    head = head.replace(size[0], f'viewBox="-10 0 {width} {height + 16 * len(kinds)}"')
    key = "".join(f'<text x="54" y="{height + 4 + 16 * k}" class="end s{c}">\u25cf {html.escape(name)}</text>'
                  for k, (c, name) in enumerate(kinds))
    back = '<rect x="-10" y="-8" width="200%" height="200%" fill="#fff"/>'
    inside = body.removesuffix("</svg>")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}{colours}</style>{back}{inside}{key}</svg>'


Results = Mapping[str, tuple[Finding, Mapping[str, Any]]]


def render(original: Mapping[str, Any], results: Results) -> str:
    """The whole page."""
    claims = original["claims"]
    counted = {status: sum(claim["status"] == status for claim in claims) for status in LABELS}
    tested = {claim["by"] for claim in claims if claim["status"] == "tested"}
    shown = [registry.find(number) for number in sorted(tested | set(OURS))]
    verdicts = [results[t.name][0].verdict.value for t in shown if t.name in results]
    summary = ", ".join(f"{verdicts.count(v)} {v}" for v in ("PASS", "FAIL", "INCONCLUSIVE", "PARTIAL", "ERROR")
                        if v in verdicts)  # fmt: skip
    lines = [
        "# The claims of equilibrium propagation, tested", "",
        "Written by `python benchmarks/claims.py page`; do not edit. A claim that is false comes out FAIL with its "
        "numbers: that is a result. Margins were fixed before any run; controls whose answer is known ran beside every "
        "claim and had to be told apart, or there is no verdict.", "",
        f"{len(verdicts)} of {len(shown)} claims have run at standard budget (10 seeds): {summary or 'none yet'}.", "",
        "## Every number of the original", "",
        f"Source: {original['source']}. {len(claims)} numbers, three of them (10, 11, 27) removed by the original: "
        f"{counted['tested']} tested here, {counted['covered']} covered by an audit, the benchmark or another claim, "
        f"{counted['left out']} left out.", "",
        "| # | the original asks | here | verdict | note |", "|---|---|---|---|---|",
        *(_row(claim, results) for claim in claims), "",
        "## The claims", "",
    ]  # fmt: skip
    for track in shown:
        lines += _section(track, results.get(track.name))
    return "\n".join(lines).rstrip() + "\n"


def _row(claim: Mapping[str, Any], results: Results) -> str:
    by = claim.get("by")
    verdict, here = "", LABELS[claim["status"]]
    if by is not None:
        track = registry.find(by)
        here += f": [{track.number}](#{track.number}-{track.name})"
        if claim["status"] == "tested":
            verdict = results[track.name][0].verdict.value if track.name in results else "not run yet"
    return f"| {claim['number']} | {claim['title']}: {claim['asks']} | {here} | {verdict} | {claim.get('why', '')} |"


def _section(track: Track, result: tuple[Finding, Mapping[str, Any]] | None) -> list[str]:
    lines = [f"### {track.number} {track.name}", "", f"**{track.claim}**", ""]
    first = result[1].get("first_seed", SEED) if result else SEED
    start = f" --seed {first}" if first != SEED else ""
    command = f"`assay verify {track.number} --budget standard{start}`"
    if result is None:
        return [*lines, f"Not run at standard budget yet: {command}", ""]
    finding, entry = result
    seeds = len(finding.seeds)
    lines += [
        f"{finding.verdict.value}, {finding.evidence} evidence. {finding.key_finding}", "",
        f"* why: {finding.reason}",
        *(f"* {control.kind} control, {control.name}: {'told apart' if control.separated else 'NOT told apart'} "
          f"({control.observed})" for control in finding.controls),
        *(f"* limit: {text}" for text in finding.limitations),
        f"* {command}, {seeds} seeds; cells took {finding.seconds / 60:.1f} minutes by the clock of a shared machine; "
        f"{entry['created'][:10]}, torch {entry['torch']}", "",
    ]  # fmt: skip
    if finding.figures:
        lines += [f"![{finding.figures[0].question}](claims/{track.number}.svg)", ""]
    return lines


if __name__ == "__main__":
    main()
