"""The list of planted and clean models, and the record of what every checker says about each of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planted_symmetry import peers
from planted_symmetry.families import families
from planted_symmetry.judge import audit, clean_audit, score
from planted_symmetry.operators import operators
from planted_symmetry.plant import healthy, planted

CLEAN_SEEDS = (0, 1, 2)
KINDS = ("forward", "latent", "backward")


@dataclass(frozen=True)
class Task:
    """One model to be audited: a clean one (seed, trained) or a planted one (operator, depth, magnitude)."""

    name: str
    kind: str
    run: Callable[[], dict[str, Any]]


def tasks(*, only: Sequence[str] = ()) -> Iterator[Task]:
    """All clean models, then all planted ones, mixed, so that every n-th of the list stands for the whole."""
    known = {name: family for name, family in families().items() if not only or name in only}
    for family in known.values():
        for seed in CLEAN_SEEDS:
            for trained in (False, True):
                name = f"clean {family.name} {seed} {'trained' if trained else 'init'}"
                yield Task(name, "clean", _clean(family.name, seed, trained))
    chosen = [
        (operator, depth, magnitude)
        for kind in KINDS
        for operator in operators(kind)
        if operator.family in known
        for depth, magnitude in operator.settings
    ]
    # A stride that shares no factor with the length visits everything once, families mixed.
    stride = next(s for s in range(37, 10_000) if _coprime(s, len(chosen)))
    order = [(i * stride) % len(chosen) for i in range(len(chosen))]
    for operator, depth, magnitude in [chosen[i] for i in order]:
        name = f"{operator.family} / {operator.name} / depth {depth} / {magnitude:g}"
        yield Task(name, operator.kind, _planted(operator, depth, magnitude))


def run(
    todo: list[Task], *, records: Path | None = None, revision: str = "", say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Runs every task; with ``records`` (JSON lines) those finished at this revision are kept and not run again."""
    done = {name: one for name, one in finished(records).items() if one["revision"] == revision}
    found = []
    if records is not None:
        records.write_text("".join(json.dumps(one) + "\n" for one in done.values()), encoding="utf-8")
    for number, task in enumerate(todo, start=1):
        if task.name not in done:
            done[task.name] = {"task": task.name, "kind": task.kind, "revision": revision, **task.run()}
            if records is not None:
                with records.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[task.name]) + "\n")
            say(f"[{number}/{len(todo)}] {task.name}: {_short(done[task.name])}")
        found.append(done[task.name])
    return found


def finished(records: Path | None) -> dict[str, dict[str, Any]]:
    """What a file of records holds, by the name of the task."""
    if records is None or not records.exists():
        return {}
    return {one["task"]: one for one in map(json.loads, records.read_text(encoding="utf-8").splitlines())}


def _clean(family_name: str, seed: int, trained: bool) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        family = families()[family_name]
        model = healthy(family, seed, trained=trained)
        finding = clean_audit(model, family, seed)
        return {
            "family": family_name,
            "alarm": not finding.passed,
            "reason": finding.reason,
            "labels": sorted({check.label for check in finding.checks if check.label}),
            "e3nn single": _alarm(peers.e3nn_accepts(model, family, double=False)),
            "e3nn double": _alarm(peers.e3nn_accepts(model, family, double=True)),
            "template": not peers.template_accepts(model, family),
            "template gradient": not peers.template_gradient_accepts(model, family),
            "template layers": peers.template_names(model, family) is not None,
        }

    return run


def _planted(operator: Any, depth: int, magnitude: float) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        family = families()[operator.family]
        subject = planted(family, operator, depth, magnitude)
        result = score(subject, audit(subject))
        seen = dataclasses.asdict(result)
        seen.pop("kind")
        seen["generators"] = sorted(result.generators)
        seen["truth"] = {"excess": result.truth.excess, "relative": result.truth.relative}
        named = peers.template_names(subject.model, family)
        return {
            **seen,
            "depth": depth,
            "counts": result.counts,
            "attributed": result.attributed,
            "e3nn single": _alarm(peers.e3nn_accepts(subject.model, family, double=False)),
            "e3nn double": _alarm(peers.e3nn_accepts(subject.model, family, double=True)),
            "template": not peers.template_accepts(subject.model, family),
            "template gradient": not peers.template_gradient_accepts(subject.model, family),
            "template names": named == subject.place,
        }

    return run


def _alarm(accepted: bool | None) -> bool | None:
    return None if accepted is None else not accepted


def _short(record: dict[str, Any]) -> str:
    if record["kind"] == "clean":
        return f"ALARM: {record['reason']}" if record["alarm"] else "no alarm"
    if not record["counts"]:
        return f"below ten times the floor ({max(record['truth']['excess'].values()):.2g}), caught={record['caught']}"
    caught = "caught" if record["caught"] else "MISSED"
    return f"{caught}, {record['near']} ({record['named']}), cause {record['cause']} ({record['title']})"


def _coprime(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1
