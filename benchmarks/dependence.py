"""Causal leaks in two released versions of transformers, and planted leaks: writes docs/benchmarks/dependence.md.

    python -m benchmarks.dependence                 # makes its environments under build/, audits, writes the page
    python -m benchmarks.dependence --only planted  # the planted suite alone
    python -m benchmarks.dependence --reuse         # pages again from the lines of an earlier run

Each environment is a venv with one pinned transformers and the torch of constraints.txt; packages that this interpreter
has already are seen from there too. The second draw of the planted suite was made once, after the code was frozen.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

from assay.stats import binomial_interval
from benchmarks.revision import revision_of

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "dependence"
VERSIONS = ("5.17.0", "5.22.2")
KNOWN = ("roformer", "big_bird", "rembert", "megatron-bert", "doge")
"""The five leaks of 5.17.0 that 5.22.2 mends (transformers#48745)."""
EXAMINED = ROOT / "benchmarks" / "dependence_examined.json"
"""What a person found on looking at each alarm, by type."""
SEEDS = {"in-sample": 0, "second draw": 4711}
FROZEN = ("src/assay/probe", "src/assay/audits/dependence", "tests/planted/dependence")
"""The code under test and its subjects, whose revision stands on the page."""


def main() -> None:
    """Run what is asked for and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["planted", "transformers"])
    parser.add_argument("--reuse", action="store_true", help="do not audit again what build/dependence/*.jsonl holds")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "dependence.md")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    planted_file = BUILD / "planted.json"
    if options.only != "transformers" and not (options.reuse and planted_file.exists()):
        planted_file.write_text(json.dumps(planted(options.draws)))
    if options.only != "planted":
        for version in VERSIONS:
            lines = BUILD / f"{version}.jsonl"
            if not (options.reuse and lines.exists()):
                audit(version, lines)
    parts = [HEAD]
    if planted_file.exists():
        parts.append(planted_page(json.loads(planted_file.read_text()), options.draws))
    runs = {v: [json.loads(line) for line in (BUILD / f"{v}.jsonl").read_text().splitlines()]
            for v in VERSIONS if (BUILD / f"{v}.jsonl").exists()}  # fmt: skip
    if runs:
        parts.append(transformers_page(runs, json.loads(EXAMINED.read_text()) if EXAMINED.exists() else {}))
    options.out.write_text("\n".join(parts), encoding="utf-8")
    print(f"written to {options.out}")


def environment(version: str) -> Path:
    """The python of a venv with this transformers, made if it is not there."""
    place = BUILD / f"transformers-{version}"
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        venv.create(place, with_pip=False)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
        seen = [p for p in sys.path if p.endswith("site-packages")]
        (packages / "base.pth").write_text("\n".join([*seen, str(ROOT / "src")]) + "\n")
        subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-c",
                        str(ROOT / "constraints.txt"), f"transformers=={version}", "torch"], check=True)  # fmt: skip
        (place / "ready").touch()
    return python


def audit(version: str, lines: Path) -> None:
    """One JSON line per causal-LM type of this version."""
    python, worker = environment(version), ROOT / "benchmarks" / "_dependence_worker.py"
    with lines.with_suffix(".partial").open("w") as out:
        subprocess.run([str(python), str(worker)], check=True, stdout=out)
    lines.with_suffix(".partial").rename(lines)


def planted(draws: int) -> list[dict[str, Any]]:
    """Every planted leak and healthy twin of both draws, judged."""
    sys.path.insert(0, str(ROOT / "tests" / "planted" / "dependence"))
    import planted_leaks

    from assay import audit_dependence

    judged, revision = [], revision_of(FROZEN)
    for draw, seed in SEEDS.items():
        for case in planted_leaks.suite(seed, draws=draws):
            started = time.process_time()
            finding = audit_dependence(case.build(), case.sample, case.depends)
            where = finding.issues[0].location.split(" (its own")[0] if finding.issues else ""
            asked = case.module not in (None, "*")
            judged.append({
                "draw": draw, "name": case.name, "family": case.family, "planted": case.module is not None,
                "verdict": str(finding.verdict), "revision": revision,
                "exact": (where == (case.module or "(model)")) if asked else None,
                "seconds": time.process_time() - started,
            })  # fmt: skip
    return judged


HEAD = """# What does it depend on? Planted leaks and released models

`python -m benchmarks.dependence` makes the environments, runs everything and writes this page. Intervals are exact
(95 %).
"""


def planted_page(judged: list[dict[str, Any]], draws: int) -> str:
    """Sensitivity and specificity by draw and family."""
    lines = [
        "## Planted leaks and their healthy twins",
        "",
        f"{draws} draws of weights and inputs of each case; the second draw (seed {SEEDS['second draw']}) was made "
        f"once, after the code was frozen (revision {', '.join(sorted({j['revision'] for j in judged}))}).",
        "",
        "| draw | leaks found | healthy accepted | module exact | CPU seconds, median |",
        "|---|---|---|---|---|",
    ]
    for draw in SEEDS:
        some = [j for j in judged if j["draw"] == draw]
        times = sorted(j["seconds"] for j in some)
        lines.append(f"| {draw} | {_share([j['verdict'] == 'FAIL' for j in some if j['planted']])} "
                     f"| {_share([j['verdict'] == 'PASS' for j in some if not j['planted']])} "
                     f"| {_share([j['exact'] for j in some if j['exact'] is not None])} "
                     f"| {times[len(times) // 2]:.2f} |")  # fmt: skip
    right = {True: "FAIL", False: "PASS"}
    wrong = [f"{j['draw']}: {j['name']}" for j in judged if j["verdict"] != right[j["planted"]] or j["exact"] is False]
    lines += ["", f"Wrong answers or modules: {', '.join(wrong) or 'none'}.", ""]
    lines += ["| family | leaks | healthy |", "|---|---|---|"]
    for family in dict.fromkeys(j["family"] for j in judged):
        some = [j for j in judged if j["family"] == family]
        lines.append(f"| {family} | {sum(j['planted'] for j in some)} | {sum(not j['planted'] for j in some)} |")
    return "\n".join([*lines, ""])


def transformers_page(runs: dict[str, list[dict[str, Any]]], examined: dict[str, str]) -> str:
    """Every causal-LM type of both versions: alarms in full, the rest counted."""
    lines = [
        "## Every causal-LM type of transformers, tiny and random",
        "",
        "Two blocks of 32 features, 12 random tokens, two rows, float32, evaluation mode. *Moved* is the largest",
        "movement of a logit that must not move; *half* is the usual test by hand (the second half of the tokens",
        "changed, the first half of the logits compared), which an `allclose` with atol 1e-3 accepts below 1e-3.",
        "",
        "| version | types | audited | clean | alarms | undecided | not built | seconds a model, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for version, every in runs.items():
        some = [one for one in every if "type" in one]
        by = {kind: [o for o in some if o["verdict"] == kind] for kind in ("PASS", "FAIL", "INCONCLUSIVE", "NOT BUILT")}
        times = sorted(o["seconds"] for o in some if "seconds" in o) or [0.0]
        lines.append(f"| {version} | {len(some)} | {len(some) - len(by['NOT BUILT'])} | {len(by['PASS'])} "
                     f"| {len(by['FAIL'])} | {len(by['INCONCLUSIVE'])} | {len(by['NOT BUILT'])} "
                     f"| {times[len(times) // 2]:.2f} |")  # fmt: skip
    lines += ["", "The five leaks mended by transformers#48745:", "",
              "| type | " + " | ".join(f"{v}: verdict, moved, half" for v in runs) + " |",
              "|---|" + "---|" * len(runs)]  # fmt: skip
    for kind in KNOWN:
        cells = [next((_cell(o) for o in every if o.get("type") == kind), "not there") for every in runs.values()]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines += ["", "Every alarm, with what a look by hand says:", ""]
    lines += ["| version | type | moved | half | first leaking module | looked at |", "|---|---|---|---|---|---|"]
    for version, every in runs.items():
        for one in every:
            if one.get("verdict") in ("FAIL", "INCONCLUSIVE"):
                where = one["location"].split(" (its own")[0] or one["reason"][:80]
                looked = examined.get(one["type"], "not examined")
                numbers = f"{_number(one['moved'])} | {_number(one['allclose'])}"
                lines.append(f"| {version} | {one['type']} | {numbers} | {where} | {looked} |")
    lines += ["", "Not built from a tiny configuration (nothing is said of them):", ""]
    for version, every in runs.items():
        failed = [f"{o['type']} ({o['reason'][:70]})" for o in every if o.get("verdict") == "NOT BUILT"]
        lines.append(f"- {version}: {'; '.join(failed) or 'none'}")
    return "\n".join([*lines, ""])


def _cell(one: dict[str, Any]) -> str:
    if one["verdict"] == "NOT BUILT":
        return "not built"
    return f"{one['verdict']}, {_number(one['moved'])}, {_number(one['allclose'])}"


def _number(value: Any) -> str:
    return "0" if value == 0 else f"{value:.2g}" if isinstance(value, int | float) else str(value)


def _share(right: list[bool]) -> str:
    if not right:
        return ""
    interval = binomial_interval(sum(right), len(right))
    return f"{sum(right)}/{len(right)} ({interval.low:.1%} to {interval.high:.1%})"


if __name__ == "__main__":
    main()
