"""The multi-task results of docs/results/bench.md: tune every arm alike, run the benchmark, write the page.

    python benchmarks/tasks.py tune  [TASK ...]            search settings, write studies/arms/chosen/TASK.json
    python benchmarks/tasks.py run   OUT --seeds 5 [TASK ...] [--rules ...] [--models ...]
    python benchmarks/tasks.py                             the quick part: digits and control, timed
    python benchmarks/tasks.py page  [RUN ...] [--add]     docs/results/bench.md and bench.json from finished runs,
                                                           before those it has, or the page again from bench.json

``tune`` and ``run`` resume: the same command after a kill goes on where it stopped. Nothing on the page is typed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CHOSEN = ROOT / "src" / "assay" / "studies" / "arms" / "chosen"
PAGE = ROOT / "docs" / "results" / "bench.md"
AT_REST: dict[str, Any] = {"gamma": 0.25, "beta": None, "sweeps": [200, 200], "tolerance": 5e-4, "bound": 2.0}
"""Real feedback, both phases until they rest, and weights that let them: a row far from rest shows little about
equilibria. The bound was chosen by the sweeps it saves on digits, at the tuning seed; it was not searched."""
BOTH = ("learning_rate", "input_noise")
"""What is searched for every rule alike; gamma, nudge and tolerance of EP are fixed, not tuned per task."""
TRIALS = 30
LARGE: dict[str, Any] = {"hidden": [256, 128], "epochs": 8, "batch_size": 100, "learning_rate": 0.0015, **AT_REST}
CONTROL: dict[str, Any] = {"hidden": [64, 64], "batch_size": 64, "input_noise": 0.02, **AT_REST, "bound": 1.5}
"""At a bound of 2 the gain of the loop, gamma bound^2, is 1: here networks came to rest in several places."""
SEARCHES: dict[str, dict[str, Any]] = {
    # trials, horizon and the fixed settings are the same for every rule
    "digits": {"trials": TRIALS, "settings": {"hidden": [128, 64], "epochs": 40, "batch_size": 32, **AT_REST}},
    "cartpole-bc": {"trials": TRIALS, "settings": {**CONTROL, "epochs": 8}},
    "acrobot-bc": {"trials": TRIALS, "settings": {**CONTROL, "epochs": 15}},
    "mnist": {"trials": TRIALS, "settings": {**LARGE, "input_noise": 0.3}},
    "fashion-mnist": {"trials": TRIALS, "settings": {**LARGE, "input_noise": 0.1}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=False)
    tuning = commands.add_parser("tune")
    tuning.add_argument("tasks", nargs="*", default=list(SEARCHES))
    tuning.add_argument("--rules", nargs="+", default=["eqprop", "backprop"])
    running = commands.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("tasks", nargs="*", default=list(SEARCHES))
    running.add_argument("--rules", nargs="+", default=["backprop", "eqprop"])
    running.add_argument("--models", nargs="+", default=["mlp"])
    running.add_argument("--seeds", type=int, default=5)
    running.add_argument("--workers", type=int)
    page = commands.add_parser("page")
    page.add_argument("runs", nargs="*", type=Path)
    page.add_argument("--add", action="store_true", help="keep the runs the page has")
    given = parser.parse_args()
    {"tune": tune, "run": run, "page": write_page, None: quick}[given.command](given)


def quick(given: argparse.Namespace) -> None:
    """Digits and control at quick budget from an empty store: meant to fit in ten minutes on two cores."""
    del given
    from assay.studies.bench import bench

    with tempfile.TemporaryDirectory() as folder:
        found = bench("digits", "cartpole-bc", "acrobot-bc", store=folder)
    for finding in found.findings:
        print(f"{finding.verdict:12s} {finding.name}: {finding.key_finding}")
    print(f"{found.seconds:.0f} s on {found.environment.cores} cores (target 600)")


def tune(given: argparse.Namespace) -> None:
    """Search settings of every rule on every task, with the same number of trials."""
    from assay.studies.tune import save_settings, tune

    for task in given.tasks:
        for rule in given.rules:
            found = tune(task, rule=rule, search=BOTH, **SEARCHES[task])
            save_settings(CHOSEN / f"{task}.json", [found])
            print(f"{task} {rule}: validation {found.told}, {found.settings}", flush=True)


def run(given: argparse.Namespace) -> None:
    """The benchmark at standard budget; its report and its cells lie in ``out``."""
    from assay.reports import save_report
    from assay.studies.bench import bench

    found = bench(*given.tasks, rules=given.rules, models=given.models, budget="standard", seeds=given.seeds,
                  store=given.out / "cells", workers=given.workers)
    save_report(found, given.out)
    for finding in found.findings:
        print(f"{finding.verdict:12s} {finding.name}: {finding.key_finding or finding.reason}")


def write_page(given: argparse.Namespace) -> None:
    """The results page and its data; every number comes out of the runs."""
    from assay.results import Run, load_run

    kept = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8")) if given.add or not given.runs else []
    runs = [*map(load_run, given.runs), *map(Run.model_validate, kept)]
    lines = ["# Benchmark results", "", "Written by `python benchmarks/tasks.py page`; do not edit. What the columns "
             "mean: [the benchmark](../guides/benchmark.md). All numbers are in [bench.json](bench.json).", "",
             "![Verdicts and intervals, task by task](../images/gallery/results-benchmark.png)", "",
             *glance(runs), ""]
    notes: dict[str, str] = {}
    for found in runs:
        lines += section(found)
        notes.update({table.title: table.note for table in found.tables if table.note})
    lines += ["## How to read the tables", "", *(f"* **{title}.** {note}" for title, note in notes.items())]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if not given.runs:
        return
    data = [found.model_dump(mode="json", exclude={"environment": {"git_dirty"}}) for found in runs]
    for content in data:
        for finding in content["findings"]:
            for failure in finding["failures"]:
                failure["traceback"] = ""
    PAGE.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"written: {PAGE}")


def glance(runs: Any) -> list[str]:
    """Every finding of every run in one table."""
    columns = ("task", "arm", "accuracy [%]", "backprop [%]", "gap [pp]", "90 % interval", "seeds",
               "return", "backprop's", "gamma", "sweeps", "residual", "cosine to the gradient", "at rest?", "minutes",
               "backprop's", "verdict")
    rows = []
    for ran, finding in ((one, finding) for one in runs for finding in one.findings):
        task, _, arm = finding.name.partition("/")
        by_name = {m.name: m for m in finding.measurements}

        def value(name: str, digits: int, *, per: float = 1.0, found: Any = by_name) -> str:
            one = next((m for key, m in found.items() if key.startswith(name)), None)
            return "" if one is None or one.value is None else f"{one.value / per:.{digits}f}"

        baseline = next((n.partition(", ")[2] for n in by_name if n.startswith("accuracy, backprop")), "backprop")
        gap = by_name.get("accuracy gap")
        limits = gap.interval if gap is not None else None
        rows.append((
            task, arm, value(f"accuracy, {arm}", 2), value(f"accuracy, {baseline}", 2), value("accuracy gap", 2),
            f"[{limits.low:+.2f}, {limits.high:+.2f}]" if limits else "", gap.n if gap is not None else "",
            value(f"return, {arm}", 1), value(f"return, {baseline}", 1),
            *rest_columns(resting(ran, finding)),
            value(f"training time, {arm}", 1, per=60), value(f"training time, {baseline}", 1, per=60), finding.verdict,
        ))
    note = ("Minutes are wall clock of one training on one core of a machine that did other work too. Residual: the "
            "largest of all steps and seeds; cosine: the smallest over epochs and seeds, with the gradient of the "
            "settled network (rows older than that look know the last epoch alone, and say so below). At "
            "rest: residual below 0.001 and cosine 0.99 or more; far from rest: residual 0.1 or more, or a lower "
            "cosine. A row far from rest, or with gamma 0.05 or less, shows little about equilibria: weak feedback "
            "approaches backprop.")
    return ["## At a glance", "", *markdown(columns, rows), "", note]


def resting(found: Any, finding: Any) -> Any:
    """How the relaxations of a row ended; None for rules that do not relax."""
    from assay.studies.bench.rest import ArmRest

    task, _, arm = finding.name.partition("/")
    by_name = {m.name: m for m in finding.measurements}
    # Runs made before the whole training was watched have the last epoch alone.
    residual = by_name.get(f"largest residual of the training, {arm}") or by_name.get(
        f"largest residual of the last epoch, {arm}")
    if residual is None:
        return None
    cosines = [value for name in ("cosine with the true gradient", "smallest cosine along the training")
               if (one := by_name.get(f"{name}, {arm}")) for value in one.values]
    settings = found.config["settings"].get(task, {}).get(arm, {})
    looped = arm.endswith("/looped")  # one layer: there is no feedback to weaken
    return ArmRest(None if looped else settings.get("gamma"), tuple(settings.get("sweeps", ())), max(residual.values),
                min(cosines, default=None))


def rest_columns(rest: Any) -> tuple[str, ...]:
    """Gamma, sweeps, residual, cosine and whether the arm was at rest."""
    if rest is None:
        return ("",) * 5
    return ("" if rest.gamma is None else f"{rest.gamma:g}", "/".join(map(str, rest.sweeps)), f"{rest.residual:.2g}",
            "" if rest.cosine is None else f"{rest.cosine:.4f}", rest.words)


def section(found: Any) -> list[str]:
    """One run as Markdown: how it was made, its verdicts, its tables, its settings."""
    place = found.environment
    packages = ", ".join(f"{name} {place.packages[name]}" for name in ("torch", "numpy") if name in place.packages)
    lines = [
        f"## {', '.join(dict.fromkeys(f.name.partition('/')[0] for f in found.findings))}: "
        f"{len(found.config['seeds'])} seed{'s' if len(found.config['seeds']) > 1 else ''}", "",
        f"`{found.command}`", "",
        f"{found.created}, {place.cpu or place.platform}, {place.cores} cores, Python {place.python}, {packages}, "
        f"revision {place.git_revision[:10] or 'unknown'}; seeds {', '.join(map(str, found.config['seeds']))}.", "",
    ]
    for finding in found.findings:
        evidence = f", {finding.evidence} evidence" if finding.evidence else ""
        lines += [f"* **{finding.name}**: {finding.verdict}{evidence}. {finding.key_finding}. {finding.reason}."]
        rest = resting(found, finding)
        first = [rest.limitation] if rest is not None and rest.limitation else []
        lines += [f"  * {note}" for note in dict.fromkeys([*first, *finding.limitations])]
        lines += [f"  * {c.name}: {c.verdict}. {c.reason}" for c in finding.checks if "return" in c.name]
        lines += [f"  * {c.name}: expected {c.expected}, observed {c.observed}" for c in finding.controls]
        lines += [f"  * {m.name}: {m.value:.4g} (n = {m.n})" for m in finding.measurements
                  if m.name.startswith(("cosine", "smallest cosine", "largest residual", "processor"))]
    several = len({f.name.partition("/")[0] for f in found.findings}) > 1
    for table in (table for table in found.tables if several or table.title != "Over all tasks"):
        lines += ["", f"### {table.title}", "", *markdown(table.columns, table.rows)]
    rows = [(task, arm, json.dumps({k: v for k, v in values.items() if k != "source"}), values["source"])
            for task, arms in found.config["settings"].items() for arm, values in arms.items()]
    return [*lines, "", "### Settings", "", *markdown(("task", "arm", "settings", "found by"), rows), ""]


def markdown(columns: Any, rows: Any) -> list[str]:
    """A table in Markdown; empty cells where there is no number."""
    def cell(value: object) -> str:
        return "" if value is None else str(value).replace("|", "\\|")

    body = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body]


if __name__ == "__main__":
    main()
