"""Parts of the results page that put several arms beside each other: verdicts, penalty sweep, depth ladder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay import stats
from assay.studies.reproduce.compare import by_arm, by_length, compare, correct_rows, quantity
from assay.studies.reproduce.published import FIGURES, LADDER_CLIMB, PUBLISHED_VERDICTS, PublishedNumber

if TYPE_CHECKING:
    from assay.audits.credit.depth import Utility

Arms = Mapping[str, Mapping[int, Mapping[str, Any]]]
BLOCKS = 4


def verdict_section(arms: Arms, order: Sequence[str]) -> str:
    """Every arm judged by the published rule, seed by seed, beside the source's verdict, and by paired intervals."""
    rows = []
    for arm in order:
        if arm == "frozen" or not arms.get(arm) or not arms.get("frozen"):
            continue
        ours = published_verdicts(arms, arm)
        source = PUBLISHED_VERDICTS.get(arm)
        utility = depth_utility(arms, arm)
        rows.append(
            (
                arm,
                f"{source[0]}, {source[1]} fired" if source else "",
                "; ".join(f"{seed}: {verdict}, {fired} fired" for seed, (verdict, fired) in ours.items()),
                _same_verdict(source, list(ours.values())),
                f"{utility.verdict.value}: {utility.reason}",
            )
        )
    if not rows:
        return "The frozen baseline was not run."
    return table(("arm", "source", "ours, published rule, by seed", "reproduces", "depth utility, intervals"), rows)


def penalty_section(arms: Arms) -> str:
    """The sweep: accuracy, size of the stream, alignment and depth utility at every lambda, beside the source."""
    found = sorted((a for a in arms if "lambda" in a or a in ("bp", "dfa-block")), key=_by_rule_and_lambda)
    if not any("lambda" in arm for arm in found):
        return "Not run."
    rows = []
    for arm in found:
        runs = arms[arm]
        seen = [run["diagnostics"] for run in runs.values()]
        nulls = [_average(d["null_mean"][1:]) for d in seen if d["null_sd"][0] is not None]
        signal = interval([_average(d["cosine"][1:]) for d in seen], "+.3f") if nulls else "1 (the gradient itself)"
        rows.append(
            (
                arm,
                len(runs),
                interval([run["accuracy"] for run in runs.values()], ".3f"),
                _published(arm, "accuracy", runs),
                sizes([d["norms"][-1] for d in seen]),
                _published(arm, "|h_L|", runs),
                sizes([max(d["growth"]) for d in seen]),
                sizes([d["gradient"][-1] for d in seen]),
                signal,
                interval(nulls, "+.3f") if nulls else "",
                depth_utility(arms, arm).reason if arms.get("frozen") else "",
            )
        )
    columns = ("arm", "seeds", "accuracy", "source (reproduces)", "|h_L|", "source (reproduces)", "largest growth",
               "|g_L|", "mean cosine, h_1 to h_L", "the same, fresh B", "depth utility")  # fmt: skip
    return table(columns, rows)


def ladder_section(arms: Arms) -> str:
    """Accuracy by the number of last blocks that learned, and whether the published shape is there."""
    if not any("-last" in arm for arm in arms):
        return "Not run."
    rows, climbs = [], {}
    for rule in ("bp", "dfa-block"):
        steps = {0: "frozen", **{k: f"{rule}-last{k}" for k in range(1, BLOCKS)}, BLOCKS: rule}
        rows.append((rule, *(interval([r["accuracy"] for r in arms.get(a, {}).values()], ".3f") or "not run"
                             for a in steps.values())))  # fmt: skip
        pairs = [(arms[rule][s]["accuracy"], arms["frozen"][s]["accuracy"])
                 for s in sorted(arms.get(rule, {}).keys() & arms.get("frozen", {}).keys())]  # fmt: skip
        climbs[rule] = interval([100 * (a - b) for a, b in pairs], "+.1f")
    low, high = (f"{100 * value:g}" for value in LADDER_CLIMB)
    text = (
        f"From no trained block to all {BLOCKS}, backprop gains {climbs['bp']} pp (source: {low} to {high} pp) and DFA "
        f"{climbs['dfa-block']} pp (source: best with no trained block)."
    )
    return text + "\n\n" + table(("rule", *(f"last {k} learn" for k in range(BLOCKS + 1))), rows)


def length_section(records: Sequence[Mapping[str, Any]]) -> str:
    """Figures of runs as long as the source's, beside those of the same seed at the length of the table above."""
    chosen, rows = by_arm(records), []
    for (arm, epochs), runs in sorted(by_length(records).items()):
        for seed, run in sorted(runs.items()):
            short = chosen[arm].get(seed)
            if short is None or epochs <= int(short["setting"]["epochs"]):
                continue
            rows += [(arm, seed, _name(f), f"{f.value:g}", f"{quantity(short, f):.3g} ({short['setting']['epochs']})",
                      f"{quantity(run, f):.3g} ({epochs})", _nearer(quantity(short, f), quantity(run, f), f))
                     for f in FIGURES if f.arm == arm and f.epochs == epochs and f.quantity != "gain over frozen"]
    if not rows:
        return "No arm was trained longer than in the table above."
    counted = [row[-1] for row in rows]
    text = (f"Of {len(rows)} figures {counted.count('nearer')} come nearer to the published one with the source's "
            f"length, {counted.count('further')} get further from it. One seed has no interval: this tells whether "
            "length could be the reason, not whether a figure reproduces.")
    columns = ("arm", "seed", "figure", "published", "ours (epochs)", "ours, longer (epochs)", "with length")
    return text + "\n\n" + table(columns, rows)


def shallow_section(arms: Arms, frozen: Mapping[int, Mapping[str, Any]]) -> str:
    """The model without its blocks beside the one whose blocks are frozen."""
    runs = arms.get("resmlp-shallow-bp", {})
    if not runs:
        return "Not run."
    gaps = [100 * (run["accuracy"] - frozen[seed]["accuracy"]) for seed, run in runs.items() if seed in frozen]
    found = interval([run["accuracy"] for run in runs.values()], ".3f")
    beside = f": {interval(gaps, '+.1f')} pp beside frozen blocks of the same seed" if gaps else ""
    return (f"Embedding, terminal norm and head without any block, trained by backprop, reach {found}{beside}. "
            "A rule that does not clear this uses no depth, whatever its blocks do.")


def _name(figure: PublishedNumber) -> str:
    return figure.quantity + (f" at h_{figure.depth}" if figure.depth is not None else "")


def _nearer(short: float, longer: float, figure: PublishedNumber) -> str:
    """Which of two values is nearer to a figure, in the units that it is judged in."""
    if figure.below:
        return "both below" if max(short, longer) < figure.value else "not below"
    scale = math.log10 if figure.logarithmic else float
    before, after = (abs(scale(value) - scale(figure.value)) for value in (short, longer))
    return "nearer" if after < before else "further" if after > before else "the same"


def depth_utility(arms: Arms, arm: str) -> Utility:
    """Paired gap to the frozen baseline with its guards."""
    from assay.audits.credit.depth import Baselines, judge_utility

    rows = {"rule": correct_rows(arms[arm]), "frozen": correct_rows(arms["frozen"])}
    if arms.get("bp"):
        rows["backprop"] = correct_rows(arms["bp"])
    return judge_utility(Baselines(rows))


def published_verdicts(arms: Arms, arm: str) -> dict[int, tuple[str, str]]:
    """The published rule at each seed: its verdict and what fired."""
    from assay.audits.credit.published import Published

    frozen = [run["accuracy"] for run in arms["frozen"].values()]
    verdicts = {}
    for seed, run in sorted(arms[arm].items()):
        d = run["diagnostics"]
        result = Published(max(d["growth"]), d["gradient"][-1], run["accuracy"] - _average(frozen))
        fired = [name for name, fires in zip(("D1", "D2", "D3"), result.flags, strict=True) if fires]
        verdicts[seed] = (result.verdict, ", ".join(fired) or "nothing")
    return verdicts


def interval(values: Sequence[float], form: str) -> str:
    """Mean and 95 % t interval over seeds; one value alone has none."""
    if not values:
        return ""
    found = stats.mean_interval(values) if len(values) > 1 else None
    mean = f"{_average(values):{form}}"
    return f"{mean} [{found.low:{form}}, {found.high:{form}}]" if found else f"{mean} (one seed)"


def sizes(values: Sequence[float]) -> str:
    """Geometric mean and 95 % t interval of the logarithms."""
    logs = [math.log10(value) for value in values]
    found = stats.mean_interval(logs) if len(logs) > 1 else None
    mean = f"{10 ** _average(logs):.2g}"
    return f"{mean} [{10**found.low:.2g}, {10**found.high:.2g}]" if found else f"{mean} (one seed)"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(name.replace("|", "\\|") for name in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _same_verdict(source: tuple[str, str] | None, ours: Sequence[tuple[str, str]]) -> str:
    if source is None:
        return "not published"
    verdicts = {verdict.startswith(source[0]) for verdict, _ in ours}
    if len(verdicts) > 1:
        return "undecided: seeds differ"
    if not verdicts.pop():
        return "**no**"
    return "yes" if all(fired == source[1] for _, fired in ours) else "the verdict yes, what fired **no**"


def _published(arm: str, quantity: str, runs: Mapping[int, Mapping[str, Any]]) -> str:
    figures = [f for f in FIGURES if f.arm == arm and f.quantity == quantity and f.epochs == _epochs(runs)]
    return "; ".join(f"{f.value:g} ({compare(f, runs).word})" for f in figures)


def _epochs(runs: Mapping[int, Mapping[str, Any]]) -> int:
    return int(next(iter(runs.values()))["setting"]["epochs"])


def _by_rule_and_lambda(arm: str) -> tuple[str, float]:
    rule, _, value = arm.partition("-lambda")
    return rule, float(value or 0)


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
