"""How a claim becomes a verdict, the figures of docs/explanations/statistics.md: python docs/examples/statistics.py"""

from assay import stats

TABLE = {  # candidate and baseline of a published benchmark: mean, standard deviation, seeds
    "Digits": ((94.63, 0.73, 3), (97.04, 0.35, 3)),
    "MNIST": ((94.22, 0.08, 3), (94.91, 0.05, 3)),
    "Fashion-MNIST": ((83.32, 0.21, 3), (83.25, 0.33, 3)),
    "CartPole": ((97.13, 1.64, 3), (99.80, 0.08, 3)),
    "Acrobot": ((96.83, 1.17, 3), (97.97, 0.47, 3)),
}


def benchmark() -> None:
    """Five gaps below 3 points: how many are at parity?"""
    alone = {row: stats.parity_from_summary(*arms, margin=3.0, unit="pp") for row, arms in TABLE.items()}
    together = dict(zip(alone, stats.holm_decisions(list(alone.values())), strict=True))
    for row, decision in alone.items():
        interval = decision.measurement.interval
        print(
            f"{row:13} gap {decision.measurement.value:5.2f} [{interval.low:5.2f}, {interval.high:5.2f}]  "
            f"p {decision.p_value:<8.3g} {decision.verdict:12}  "
            f"Holm {together[row].p_value:<8.3g} {together[row].verdict}"
        )
    print("all five:", stats.all_hold(list(alone.values())).verdict)


def chance() -> None:
    """12.5 % against 10.0 %."""
    guard = stats.above_chance({"backprop": 12.5, "eqprop": 10.0}, items=40, chance=0.10, scale=100)
    decision = stats.parity([10.0], [12.5], margin=3.0, unit="pp", guards=[guard])
    print(f"{decision.verdict}: {decision.reason}")


def few_seeds() -> None:
    """What a number of seeds can and cannot show."""
    for n in (3, 5, 10, 20):
        print(
            f"{n:2} seeds: smallest margin {stats.minimal_margin(1.0, n):.2f} SD, "
            f"collapse rate not excluded {stats.unexcluded_collapse_rate(n):.0%}, "
            f"all solved supports {stats.binomial_interval(n, n, confidence=0.90).low:.1%}"
        )
    print("seeds for 3 pp at an SD of 1.5 pp:", stats.seeds_needed(3.0, 1.5), "at 3 pp:", stats.seeds_needed(3.0, 3.0))
    print(f"false parity of TOST at a true gap of 4 pp, n = 3: {stats.power(3.0, 1.5, 3, gap=4.0):.1%}")


def no_spread() -> None:
    """Five seeds, one answer."""
    for items in (None, 100, 360):
        decision = stats.parity([0.975] * 5, [0.970] * 5, margin=0.03, items=items)
        print(f"items={items}: {decision.verdict}: {decision.reason}")


if __name__ == "__main__":
    for example in (benchmark, chance, few_seeds, no_spread):
        print(f"# {example.__doc__}")
        example()
