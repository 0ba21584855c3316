"""Planted and healthy twins judged by audit_same and by what people use: writes docs/benchmarks/same.md.

    python -m benchmarks.same                         # both draws, every judge (about half an hour on one core)
    python -m benchmarks.same --only "second draw"    # one of them; a command that was stopped goes on where it was

The allowance was set on the first draw; the second draw was made once, after the code was frozen: the page says at
which revision of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from assay.audits.same import audit_same
from assay.probe import tree
from assay.stats import binomial_interval
from benchmarks.revision import revision_of

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "same"
sys.path.insert(0, str(ROOT / "tests" / "planted" / "same"))

SEEDS = {"in-sample": 0, "second draw": 4711}
FROZEN = ("src/assay/probe", "src/assay/audits/same", "tests/planted/same")
"""The code under test and its subjects, whose revision stands on the page."""


@dataclass(frozen=True)
class Judged:
    """What one judge said of one twin: its verdict, whether it differs, and where."""

    draw: str
    judge: str
    name: str
    family: str
    planted: bool
    differs: bool
    exact_module: bool | None = None
    share: float = 0.0
    verdict: str = ""
    reason: str = ""
    untouched: bool = True
    seconds: float = 0.0
    revision: str = ""


def main() -> None:
    """Judge every twin and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=2, help="draws of every plant and rewriting per seed")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "same.md")
    parser.add_argument("--only", choices=list(SEEDS), help="judge one draw and write no page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    BUILD.mkdir(parents=True, exist_ok=True)
    for draw, seed in SEEDS.items():
        if options.only in (None, draw):
            judge(draw, seed, options.draws)
    for name, why in _absent().items():
        print(f"no twins by {name}: {why}")
    if options.only is None:
        options.out.write_text(page(_lines(), options.draws), encoding="utf-8")
        print(f"written to {options.out}")


def judge(draw: str, seed: int, draws: int) -> None:
    """Appends what every judge says of every twin that has not been judged yet."""
    place = BUILD / f"{draw.replace(' ', '-')}.jsonl"
    done = {one.name for one in _lines() if one.draw == draw}
    revision = revision_of(FROZEN)
    with place.open("a") as out:
        for twin in _twins(seed, draws, done):
            if twin.name not in done:
                started = time.process_time()
                for one in _judge(draw, twin):
                    seconds = time.process_time() - started if one.judge == "audit_same" else 0.0
                    out.write(json.dumps({**asdict(one), "seconds": seconds, "revision": revision}) + "\n")
                out.flush()


def _lines() -> list[Judged]:
    files = sorted(BUILD.glob("*.jsonl"))
    return [Judged(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


def _twins(seed: int, draws: int, done: set[str]) -> Iterable[Any]:
    import planted_twins

    yield from planted_twins.healthy(seed, draws=draws, compiled=True, known=done)
    yield from planted_twins.planted(seed, draws=draws)


def _absent() -> dict[str, str]:
    from planted_rewritings import absent

    return dict(absent())


def _judge(draw: str, twin: Any) -> Iterable[Judged]:
    bad = twin.module is not None
    before = _states(twin)
    finding = audit_same(twin.reference, twin.candidate, twin.sample, **twin.contract)
    where = finding.issues[0].location if finding.issues else ""
    exact = None if twin.module in (None, "*") else where == twin.module
    share = finding.measurements[0].value or 0.0
    said = str(finding.verdict)
    untouched = all(torch.equal(a, b) for a, b in zip(before, _states(twin), strict=True))
    yield Judged(draw, "audit_same", twin.name, twin.family, bad, said == "FAIL", exact, share, said, finding.reason,
                 untouched)  # fmt: skip
    for name, alike in PEERS.items():
        yield Judged(draw, name, twin.name, twin.family, bad, not _alike(twin, alike))


def _states(twin: Any) -> list[torch.Tensor]:
    """Every weight and buffer of both, and the mode of every module."""
    modules = [one for one in (twin.reference, twin.candidate) if isinstance(one, torch.nn.Module)]
    modes = [torch.tensor([module.training for module in one.modules()]) for one in modules]
    return modes + [v.detach().clone() for one in modules for v in [*one.parameters(), *one.buffers()]]


def _alike(twin: Any, alike: Callable[[Any, Any], bool]) -> bool:
    """A peer at its defaults on the outputs of one call, as it is used; one that refuses has noticed something."""
    args = twin.sample if isinstance(twin.sample, tuple) else (twin.sample,)
    ours, theirs = twin.reference(*args), twin.candidate(*args)
    pairs = zip(tree.tensors(ours), tree.tensors(theirs), strict=True)
    try:
        return all(alike(a.detach(), b.detach()) for a, b in pairs)
    except RuntimeError:  # allclose of two dtypes
        return False


def _assert_close(a: Any, b: Any) -> bool:
    try:
        torch.testing.assert_close(b, a)
    except AssertionError:
        return False
    return True


def _dynamo(a: Any, b: Any) -> bool:
    from torch._dynamo.utils import same

    return bool(same(a, b))


PEERS: dict[str, Callable[[Any, Any], bool]] = {
    "torch.allclose": lambda a, b: bool(torch.allclose(a, b)),
    "torch.testing.assert_close": _assert_close,
    "torch._dynamo.utils.same": _dynamo,
}


def page(judged: list[Judged], draws: int) -> str:
    """The page: sensitivity and specificity with exact bounds, by judge and draw, and by family."""
    seconds = sum(one.seconds for one in judged)
    lines = [
        "# Is it the same? Planted and healthy twins",
        "",
        f"`python -m benchmarks.same --draws {draws}` wrote this page ({seconds:.0f} s of CPU time in audits, torch "
        f"{torch.__version__}). A planted twin is a copy of a reference model with one mistake; a healthy one is the "
        "same computation written, ordered, laid out or compiled in another way. Peers compare the outputs of one call "
        "at their defaults. Intervals are exact (95 %). The allowance was set on the in-sample draw; the second draw "
        "(other weights, inputs and modules) was made once, after the code was frozen. Found is a FAIL, accepted is a "
        "PASS; a PARTIAL is neither, and is listed below. A compiled model that takes forces inside its forward pass "
        "is not among the healthy twins: torch.compile has no double backward, it raises on ordinary inputs: a FAIL.",
        "",
        *(f"- {draw}: seed {seed}, code and twins at revision {_revisions(judged, draw)}"
          for draw, seed in SEEDS.items()),
        "",
        "| draw | judge | planted found | healthy accepted | module exact |",
        "|---|---|---|---|---|",
    ]
    for draw in SEEDS:
        for judge in ("audit_same", *PEERS):
            some = [j for j in judged if j.draw == draw and j.judge == judge]
            found = _share([j.differs for j in some if j.planted])
            kept = _share([_accepts(j) for j in some if not j.planted])
            exact = _share([bool(j.exact_module) for j in some if j.exact_module is not None])
            lines.append(f"| {draw} | `{judge}` | {found} | {kept} | {exact if judge == 'audit_same' else ''} |")
    own = [j for j in judged if j.judge == "audit_same"]
    healthy = [j.share for j in own if not j.planted]
    broken = [j.share for j in own if j.planted and "weight x" in j.name]
    lines += [
        "",
        f"In units of the allowance the worst quantity of a healthy twin reached {max(healthy):.2f} at most, that of "
        f"one with a weight moved by ten allowances or more {min(broken):.2g} at least.",
        "",
        "| family | planted | found by audit_same | by allclose | healthy | accepted by audit_same | by allclose |",
        "|---|---|---|---|---|---|---|",
    ]
    for family in dict.fromkeys(j.family for j in own):
        lines.append(_family(judged, family))
    missed = [f"{j.draw}: {j.name}" for j in own if (not j.differs if j.planted else not _right(j))]
    partly = [f"- {j.draw}, {j.name}: {j.reason}" for j in own if not j.planted and j.verdict == "PARTIAL"]
    kinds = sorted({j.name.split("/")[1] for j in own if j.planted})
    ways = sorted({j.name.split("/")[1] for j in own if not j.planted})
    wrong = [f"{j.draw}: {j.name}" for j in own if j.exact_module is False and j.differs]
    loose = [j for j in judged if j.judge == "torch.allclose" and j.planted and not j.differs]
    unseen = sorted({j.name.split("/")[1] for j in loose})
    same = _share([j.untouched for j in own])
    well = {draw: [j.differs for j in own if j.draw == draw and not j.planted] for draw in SEEDS}
    blamed = "; ".join(f"{draw} {_share(some)}" for draw, some in well.items())
    lines += ["", f"False alarms (healthy twins that are a FAIL): {blamed}.", "",
              f"Reference and candidate left bit-identical: {same}.", "",
              f"Wrong answers of audit_same: {', '.join(missed) or 'none'}.", "",
              f"Other module named: {', '.join(wrong) or 'none'}.", "",
              f"Plants that `torch.allclose` passed at least once: {', '.join(unseen) or 'none'}.", "",
              f"Kinds of plants: {', '.join(kinds)}.", "", f"Kinds of healthy twins: {', '.join(ways)}.", "",
              "Healthy twins that are PARTIAL, with what they lack:", "", *(partly or ["none"]), ""]  # fmt: skip
    return "\n".join(lines)


def _accepts(one: Judged) -> bool:
    return one.verdict == "PASS" if one.judge == "audit_same" else not one.differs


def _right(one: Judged) -> bool:
    """A healthy twin that is accepted, or told what it lacks."""
    return one.verdict in ("PASS", "PARTIAL")


def _revisions(judged: list[Judged], draw: str) -> str:
    return ", ".join(sorted({j.revision for j in judged if j.draw == draw})) or "unknown"


def _family(judged: list[Judged], family: str) -> str:
    def count(judge: str, planted: bool) -> tuple[int, int]:
        some = [j for j in judged if j.family == family and j.judge == judge and j.planted == planted]
        return sum(j.differs if planted else _accepts(j) for j in some), len(some)

    (found, planted), (kept, healthy) = count("audit_same", True), count("audit_same", False)
    other, _ = count("torch.allclose", True)
    loose, _ = count("torch.allclose", False)
    return f"| {family} | {planted} | {found} | {other} | {healthy} | {kept} | {loose} |"


def _share(right: list[bool]) -> str:
    if not right:
        return ""
    interval = binomial_interval(sum(right), len(right))
    return f"{sum(right)}/{len(right)} ({interval.low:.1%} to {interval.high:.1%})"


if __name__ == "__main__":
    main()
