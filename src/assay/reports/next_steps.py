"""What a reader would type next, from what a run left open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.protocols import SEEDS, Budget
from assay.reports import words
from assay.results import Finding, Run, Verdict

_OPEN = (Verdict.INCONCLUSIVE, Verdict.PARTIAL)


@dataclass(frozen=True)
class NextStep:
    """A command to paste, why, and how long it will take by what the run itself took (None: not known)."""

    why: str
    command: str
    seconds: float | None = None


def next_steps(run: Run) -> tuple[NextStep, ...]:
    """At most one step for what is undecided and one for what crashed; nothing for a run that answered everything."""
    steps = []
    undecided = [f for f in run.findings if f.verdict in _OPEN and f.seeds]
    budget = _next_budget(run.budget)
    if run.kind == "verify" and undecided and budget and all(f.number is not None for f in undecided):
        numbers = " ".join(str(f.number) for f in undecided)
        steps.append(
            NextStep(
                f"Undecided: {_listed(undecided)}.",
                f"assay verify {numbers} --budget {budget}",
                _cost(undecided, SEEDS[budget], run.environment.cores),
            )
        )
    elif undecided and run.kind == "bench" and "--seeds" in undecided[0].rerun:
        steps.append(_more_of_a_benchmark(undecided))
    elif undecided and len(undecided) == 1 and undecided[0].rerun and run.kind != "verify":
        told = "Undecided: the same command with more seeds or inputs may decide it."
        steps.append(NextStep(told, undecided[0].rerun))
    crashed = [f for f in run.findings if f.verdict is Verdict.ERROR]
    if crashed and run.command:
        steps.append(
            NextStep(
                f"Could not be measured: {_listed(crashed)}. What finished is kept; the same command "
                "runs only the rest.",
                run.command,
            )
        )
    return tuple(steps)


def _more_of_a_benchmark(undecided: Sequence[Finding]) -> NextStep:
    """One command for every undecided task of a benchmark: their own commands differ in the task alone."""
    tail = undecided[0].rerun.partition(" --")[2]
    same = [f for f in undecided if f.rerun.partition(" --")[2] == tail]
    tasks = dict.fromkeys(f.rerun.partition(" --")[0].removeprefix("assay bench ") for f in same)
    command = _more_seeds(f"assay bench {' '.join(tasks)} --{tail}")
    return NextStep(f"Undecided: {_listed(same)}. More seeds may decide.", command)


def _more_seeds(command: str) -> str:
    """The command with as many seeds as the next budget has, or twice as many as it had.

    >>> _more_seeds("assay bench digits --seeds 3 --seed 42"), _more_seeds("assay bench digits --seeds 30")
    ('assay bench digits --seeds 10 --seed 42', 'assay bench digits --seeds 60')
    """
    return re.sub(r"(?<=--seeds )\d+", lambda found: str(_next_count(int(found[0]))), command)


def _next_count(seeds: int) -> int:
    return next((count for count in sorted(SEEDS.values()) if count > seeds), 2 * seeds)


def _next_budget(budget: str) -> Budget | None:
    names = sorted(SEEDS, key=SEEDS.__getitem__)
    return next((later for name, later in pairwise(names) if name == budget), None)


def _cost(findings: Sequence[Finding], seeds: int, cores: int) -> float | None:
    # Cells that are done are not run again; each further seed costs what one cost so far.
    more = sum(f.seconds / len(f.seeds) * max(0, seeds - len(f.seeds)) for f in findings)
    return more / max(1, cores) if more else None


def _listed(findings: Sequence[Finding]) -> str:
    names = [str(f.number) if f.number is not None else words.heading(f) for f in findings]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
