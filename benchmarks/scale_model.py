"""A model of very large runs: 10^6 cells on 10^3 nodes, with the overheads measured on one machine put in.

    python -m benchmarks.engine --json benchmarks/overheads.json     # measure the overheads (idle machine)
    python -m benchmarks.scale_model                                 # the tables of docs/guides/scale.md
    python -m benchmarks.scale_model --cells 1000000 --nodes 1000 --cores 8 --seconds 60

An event simulation. One driver serves completions one after another, each taking as long as was measured; a core goes
on at once with the cell queued behind the finished one and waits only when the driver is behind. Nodes fail at random
and come back; what they were running is run again. Not in the model: the network, Ray's own scheduler, and stragglers
beyond the spread of cell times.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OVERHEADS = Path(__file__).parent / "overheads.json"
NEVER = float("inf")
OPERATIONS = {"read when planned": 1, "claim": 1, "read when claimed": 1, "write": 1, "give back": 1}
"""Store operations of one cell; a driver alone needs no others."""
OBJECT_STORE_SECONDS = 0.03
OBJECT_STORE_CALLS = 32
"""Assumed, not measured: latency of a request to an object store. The number in flight is what the engine uses."""


@dataclass(frozen=True)
class Scenario:
    """What is asked of the model; times in seconds."""

    cells: int = 1_000_000
    nodes: int = 1000
    cores: int = 8
    seconds: float = 60.0
    spread: float = 0.5
    completion: float = 1 / 500
    hours_between_failures: float = 1000.0
    """Of one node."""
    repair: float = 300.0
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """What came of it; ``busy`` is useful work over all cores and the whole time."""

    duration: float
    busy: float
    driver_busy: float
    failures: int
    run_again: int
    lost_seconds: float


def simulate(scenario: Scenario) -> Outcome:
    """The run of a scenario, cell by cell."""
    draw = random.Random(scenario.seed)
    cores = scenario.nodes * scenario.cores
    rate = 1 / (scenario.hours_between_failures * 3600) if scenario.hours_between_failures else 0.0
    waiting, running = scenario.cells, 0
    driver = useful = lost = worked = 0.0  # when the driver is free, and sums of seconds
    failures = again = 0
    began = [NEVER] * cores  # when the running cell began; NEVER: idle
    queued = [NEVER] * cores  # when the cell behind it arrived; NEVER: none
    turn = [0] * cores  # which end of a core's is still to be believed
    events: list[tuple[float, int, int]] = []  # (when, core, turn), or (when, -1 - node, 0) for a failure

    def begin(core: int, at: float) -> None:
        # Log-normal with mean ``seconds``: cell times are skewed.
        shape = scenario.spread
        need = scenario.seconds * (draw.lognormvariate(-shape * shape / 2, shape) if shape else 1.0)
        began[core] = at
        turn[core] += 1
        heapq.heappush(events, (at + need, core, turn[core]))

    def serve(at: float) -> float:
        """When the driver, asked now, has dealt with it."""
        nonlocal driver, worked
        driver = max(driver, at) + scenario.completion
        worked += scenario.completion
        return driver

    for core in list(range(cores)) * 2:  # a cell for every core, then one queued behind each
        if waiting:
            waiting -= 1
            at = serve(0.0)
            if began[core] == NEVER:
                running += 1
                begin(core, at)
            else:
                queued[core] = at
    for node in range(scenario.nodes if rate else 0):
        heapq.heappush(events, (draw.expovariate(rate), -1 - node, 0))
    while running:
        now, core, which = heapq.heappop(events)
        if core < 0:  # a node fails: its cells begin again when it is back
            failures += 1
            back = now + scenario.repair
            first = (-1 - core) * scenario.cores
            for each in range(first, first + scenario.cores):
                if began[each] != NEVER:
                    lost += max(now - began[each], 0.0)
                    again += 1
                    begin(each, back)
            heapq.heappush(events, (back + draw.expovariate(rate), core, 0))
            continue
        if which != turn[core]:
            continue  # the end of a cell that a failure took
        useful += now - began[core]
        served = serve(now)
        ready, queued[core] = queued[core], NEVER
        if waiting:
            waiting -= 1
            queued[core] = served
        if ready == NEVER and queued[core] != NEVER:
            ready, queued[core] = queued[core], NEVER
        if ready == NEVER:
            began[core] = NEVER
            running -= 1
        else:
            begin(core, max(now, ready))
    return Outcome(driver, useful / (cores * driver), worked / driver, failures, again, lost)


def store_seconds(cells: int, measured: dict[str, float]) -> tuple[float, float]:
    """Seconds the store operations of so many cells take: on the measured disk, and on an object store (assumed)."""
    names = {
        "read when planned": "microseconds to read a cell", "claim": "microseconds to claim a cell",
        "read when claimed": "microseconds to read a cell", "write": "microseconds a cell in a durable batch of 64",
        "give back": "microseconds to give a claim back",
    }
    disk = cells * sum(measured[names[operation]] * count for operation, count in OPERATIONS.items()) / 1e6
    return disk, cells * sum(OPERATIONS.values()) * OBJECT_STORE_SECONDS / OBJECT_STORE_CALLS


def overheads(found: dict[str, Any]) -> str:
    """What was measured, as the first table of docs/guides/scale.md."""
    title = f"Measured on {found['cores']} cores (load before: {found['load']:.2f}):"
    lines = [title, "", "| what | measured |", "|---|---:|"]
    for name, value in found["measured"].items():
        if name.startswith("busy"):
            lines.append(f"| {name}, cells of one second | {value:.1%} |")
        else:
            lines.append(f"| {name} | {value:.{1 if value < 10 else 0}f} |")
    return "\n".join(lines)


def report(cells: int, nodes: int, cores: int, lengths: list[float], hours: float, measured: dict[str, float]) -> str:
    """The second table of docs/guides/scale.md."""
    rate = measured["completions a second"]
    lines = [
        f"{cells} cells on {nodes} nodes of {cores} cores; one driver, {rate:.0f} completions a second (measured);",
        f"each node fails every {hours:g} h on average and is back after 5 min.",
        "",
        "| cell | duration | cores busy | driver busy | node failures | cells run again | core-hours lost to faults |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for length in lengths:
        got = simulate(Scenario(cells, nodes, cores, length, completion=1 / rate, hours_between_failures=hours))
        lines.append(
            f"| {length:g} s | {got.duration / 3600:.2f} h | {got.busy:.1%} | {got.driver_busy:.0%} | {got.failures} "
            f"| {got.run_again} | {got.lost_seconds / 3600:.1f} |"
        )
    disk, objects = store_seconds(cells, measured)
    total = cells * sum(OPERATIONS.values())
    again = cells * measured["microseconds to read a cell"] / 1e6
    lines += [
        "",
        f"Store: {total} operations, {disk / 60:.0f} min of one driver on the measured disk; on an object store "
        f"{objects / 60:.0f} min at an assumed {OBJECT_STORE_SECONDS:g} s a call, {OBJECT_STORE_CALLS} at once.",
        f"A driver that dies near the end looks {cells} cells up again in {again / 60:.1f} min; what was running or on "
        "its way to the disk, at most two cells a core, is run again.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0, 600.0], help="mean cell times")
    parser.add_argument("--hours-between-failures", type=float, default=1000.0, help="of one node; 0: never")
    parser.add_argument("--overheads", type=Path, default=OVERHEADS, help="written by benchmarks.engine --json")
    asked = parser.parse_args()
    found = json.loads(asked.overheads.read_text())
    print(overheads(found), end="\n\n")
    print(report(asked.cells, asked.nodes, asked.cores, asked.seconds, asked.hours_between_failures, found["measured"]))


if __name__ == "__main__":
    main()
