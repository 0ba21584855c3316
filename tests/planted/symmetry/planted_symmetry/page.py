"""The page of results: every number is computed from the records, with exact binomial bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from assay.stats import binomial_interval

Record = dict[str, Any]

INTRODUCTION = """Written by `python benchmarks/symmetry_suite.py --all`; do not edit. A planted model counts as broken
only if a plain loop in float64 says so: its error exceeds ten times the float32 rounding of the same pair. Intervals
are exact (Clopper-Pearson, 95 %). An alarm on a clean model is any verdict but PASS of an audit with nothing switched
off. Defects of the auditor that earlier runs of this suite brought to light were mended before this run, so the
figures are not those of models it had never seen."""

PEERS = """The first e3nn column is `assert_equivariant` with its defaults on a float32 model (tolerance 1e-3), the
second on a float64 model (tolerance 1e-9); it speaks of rotations, parity and translations only, so the other families
are left out of its columns; the EGNN defects that only permutations show are outside what it claims, and are counted
here as not found. The template is the usual loop (100 transformations, relative error below 1e-5, the dtype
of the model), repaired so that it runs; its layers are fed with the model's own input, as it says."""


def page(records: list[Record], *, planned: int) -> str:
    """Markdown with the summary, the table beside other checkers, and a table per operator."""
    clean = [one for one in records if one["kind"] == "clean"]
    forward = [one for one in records if one["kind"] == "forward" and one["counts"]]
    below = [one for one in records if one["kind"] == "forward" and not one["counts"]]
    latent = [one for one in records if one["kind"] == "latent"]
    backward = [one for one in records if one["kind"] == "backward"]
    parts = [
        "# Symmetry auditor: the planted suite",
        INTRODUCTION,
        f"{len(records)} of {planned} models: {len(clean)} clean, {len(forward)} planted and broken, {len(below)} "
        f"planted with an error below that, {len(latent)} latent, {len(backward)} with a wrong backward pass. "
        f"Revision of the code: {', '.join(sorted({one.get('revision') or 'unknown' for one in records}))}.",
        "## Summary",
        _summary(clean, forward, below, latent, backward),
        "## Beside other checkers",
        _peers(clean, forward, latent, backward),
        PEERS,
        "## By operator",
        _operators([*forward, *latent, *backward]),
        "## What went wrong",
        _wrong(clean, [*forward, *latent, *backward]),
    ]
    return "\n\n".join(parts) + "\n"


def rate(good: int, n: int) -> str:
    """A share with its exact interval."""
    if n == 0:
        return "none run"
    interval = binomial_interval(good, n)
    return f"{good}/{n} = {good / n:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def share(records: Iterable[Record], test: Callable[[Record], bool]) -> str:
    """The rate at which a record passes a test."""
    kept = list(records)
    return rate(sum(test(one) for one in kept), len(kept))


def _summary(clean: list[Record], forward: list[Record], below: list[Record], latent: list[Record],
             backward: list[Record]) -> str:  # fmt: skip
    caught = [one for one in forward if one["caught"]]
    near = Counter(one["near"] for one in caught)
    cause = Counter(one["cause"] for one in caught)
    rows = [
        ("recall, errors above 10x the floor", share(forward, lambda one: one["caught"]), "100 %"),
        *[(f"recall, planted with magnitude {size:g}",
           share([one for one in forward if one["magnitude"] == size], lambda one: one["caught"]), "100 %")
          for size in sorted({one["magnitude"] for one in forward}, reverse=True)],
        ("false alarms on clean models (3 seeds, initial and trained)", share(clean, lambda one: one["alarm"]), "0"),
        ("exact module named", rate(near["exact"], len(caught)), ">= 95 %"),
        ("exact module or its parent", rate(near["exact"] + near["parent"], len(caught)), "100 %"),
        ("module, parent or block", rate(near["exact"] + near["parent"] + near["block"], len(caught)), ""),
        ("exactly the broken generators reported", share(caught, lambda one: one["attributed"]), ""),
        ("cause right", rate(cause["right"], len(caught)), ""),
        ("cause unspecific", rate(cause["unspecific"], len(caught)), ""),
        ("cause wrong", rate(cause["wrong"], len(caught)), "0"),
        ("latent defects caught", share(latent, lambda one: one["caught"]), "100 %"),
        ("latent defects named by parameter", share(latent, lambda one: one["near"] == "exact"), "100 %"),
        ("wrong backward caught", share(backward, lambda one: one["caught"]), "100 %"),
        ("wrong backward, exact module named", share(backward, lambda one: one["near"] == "exact"), ""),
        ("wrong backward, cause right", share(backward, lambda one: one["cause"] == "right"), ""),
        ("caught although below 10x the floor", share(below, lambda one: one["caught"]), ""),
    ]
    return _table(("measure", "result [95 %]", "target"), rows)


def _peers(clean: list[Record], forward: list[Record], latent: list[Record], backward: list[Record]) -> str:
    hidden = [*latent, *backward]
    rows = [
        ("broken models found", *_row(forward, "caught")),
        ("latent and backward defects found", *_row(hidden, "caught", gradient=True)),
        *[(f"found, planted with magnitude {size:g}",
           *_row([one for one in forward if one["magnitude"] == size], "caught"))
          for size in sorted({one["magnitude"] for one in forward}, reverse=True)],
        ("false alarms on clean models", *_row(clean, "alarm", gradient=True)),
        (
            "guilty module named",
            share(forward, lambda one: one["near"] == "exact"),
            "not offered",
            "not offered",
            share(forward, lambda one: one["template names"]),
        ),
        ("cause and fix given", "yes", "no", "no", "no"),
    ]
    return _table(("", "Assay", "e3nn, float32", "e3nn, float64", "template"), rows)


def _row(records: list[Record], ours: str, *, gradient: bool = False) -> list[str]:
    cells = [share(records, lambda one: one[ours])]
    for column in ("e3nn single", "e3nn double"):
        cells.append(share([one for one in records if one[column] is not None], lambda one, c=column: one[c]))
    cells.append(share(records, lambda one: one["template"] or (gradient and one["template gradient"])))
    return cells


def _operators(planted: list[Record]) -> str:
    rows = []
    for key in sorted({(one["family"], one["operator"]) for one in planted}):
        mine = [one for one in planted if (one["family"], one["operator"]) == key]
        near, titles = Counter(one["near"] for one in mine), Counter(one["title"] for one in mine)
        rows.append((
            *key, f"{sum(one['caught'] for one in mine)}/{len(mine)}",
            f"{near['exact']} / {near['parent']} / {near['block']}", titles.most_common(1)[0][0],
            f"{sum(one['cause'] == 'right' for one in mine)}/{len(mine)}",
        ))  # fmt: skip
    return _table(("family", "operator", "caught", "exact / parent / block", "usual diagnosis", "cause right"), rows)


def _wrong(clean: list[Record], planted: list[Record]) -> str:
    lines = [f"- false alarm: {one['task']}: {one['reason']}" for one in clean if one["alarm"]]
    for one in planted:
        worst = max(one["truth"]["excess"].values())
        if not one["caught"]:
            lines.append(f"- missed: {one['task']} ({worst:.2g} times the floor)")
        elif one["near"] != "exact":
            lines.append(f"- {one['near']}: {one['task']}: named `{one['named'] or 'the model'}` for `{one['place']}`")
        elif one["cause"] == "wrong":
            lines.append(f"- other cause: {one['task']}: diagnosed as \"{one['title']}\"")
    return "\n".join(lines) or "Nothing: every model was judged right, every module named exactly, every cause right."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
