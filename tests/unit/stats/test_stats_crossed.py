"""Seeds x items: a verdict about data like the test set, calibrated where an interval over seeds alone is not."""

import numpy as np
import pytest
from scipy import special

from assay import stats
from assay.errors import InputError
from assay.results import Region, Verdict
from assay.stats.answers import Answers
from assay.stats.crossed import crossed

MARGIN = 0.03


def drawn(generator, seeds, items, gap, *, fixed=0.9, discordant=0.06) -> np.ndarray:
    """Differences in {-1, 0, 1}; a share of the items answers every seed alike."""
    up, down = (discordant + gap) / 2, (discordant - gap) / 2

    def answers(*shape):
        u = generator.random(shape)
        return np.where(u < up, 1, np.where(u < up + down, -1, 0)).astype(np.int8)

    same = generator.random(items) < fixed
    return np.where(same, answers(items), answers(seeds, items))


def as_answers(rows: np.ndarray) -> Answers:
    return Answers(tuple(range(len(rows))), tuple(rows), (np.arange(rows.shape[1]),) * len(rows))


def test_the_parts_of_the_variance_are_those_of_the_two_way_table():
    rows = drawn(np.random.default_rng(0), 5, 200, -0.01, fixed=0.5)
    found = crossed(as_answers(rows))
    seeds, items = rows.shape
    y = rows.astype(float)
    rest = y - y.mean(1)[:, None] - y.mean(0)[None, :] + y.mean()
    square_items = seeds * y.mean(0).var(ddof=1)
    square_rest = (rest**2).sum() / ((seeds - 1) * (items - 1))
    assert found.mean == pytest.approx(y.mean())
    assert found.over_seeds == pytest.approx(y.mean(1).var(ddof=1) / seeds)
    assert found.over_items == pytest.approx((square_items - square_rest) / (seeds * items))
    assert found.shared == pytest.approx(np.mean([y[s] @ y[t] / items for s in range(5) for t in range(5) if s != t]))


def test_the_same_answers_in_another_order_say_the_same_if_the_items_are_named():
    generator = np.random.default_rng(1)
    rows = drawn(generator, 4, 120, 0.0)
    orders = [generator.permutation(120) for _ in rows]
    moved = Answers((0, 1, 2, 3), tuple(r[o] for r, o in zip(rows, orders, strict=True)), tuple(orders))
    straight, named = crossed(as_answers(rows)), crossed(moved)
    assert named.over_items == pytest.approx(straight.over_items)
    assert named.interval(0.05).low == pytest.approx(straight.interval(0.05).low)


def test_the_interval_holds_what_the_tests_do_not_reject():
    found = crossed(as_answers(drawn(np.random.default_rng(2), 5, 300, -0.01)))
    for level in (0.05, 0.01):
        interval = found.interval(level)
        assert found.p_value(interval.low, above=True) == pytest.approx(level, rel=1e-6)
        assert found.p_value(interval.high, above=False) == pytest.approx(level, rel=1e-6)


@pytest.mark.parametrize(("seeds", "items"), [(3, 300), (10, 300), (3, 3000), (20, 1000)])
def test_at_the_margin_the_crossed_test_passes_one_time_in_twenty_and_the_seeds_alone_far_more(seeds, items):
    generator, repeats = np.random.default_rng(seeds + items), 400
    alone = crossing = 0
    quantile = float(special.stdtrit(seeds - 1, 0.95))
    for _ in range(repeats):
        found = crossed(as_answers(drawn(generator, seeds, items, -MARGIN)))
        alone += found.mean + MARGIN > quantile * np.sqrt(found.over_seeds)
        crossing += found.mean + MARGIN > found.half(-MARGIN, 0.05) and MARGIN - found.mean > found.half(MARGIN, 0.05)
    assert alone / repeats > 0.16
    assert crossing / repeats <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / repeats)


def test_one_sided_differences_on_few_items_are_not_certainty():
    rows = np.zeros((10, 250), dtype=np.int8)
    assert crossed(as_answers(rows)).interval(0.05).high > 2.9 / 250  # no item differs: 1 in 83 is not excluded
    rows[:, 0] = -1
    assert crossed(as_answers(rows)).interval(0.05).low < -0.01


def test_more_seeds_on_the_same_items_do_not_make_a_population():
    generator = np.random.default_rng(5)
    rows = drawn(generator, 20, 400, -0.005, fixed=1.0)
    wide, wider = crossed(as_answers(rows)).interval(0.05), crossed(as_answers(rows[:3])).interval(0.05)
    assert wide.high - wide.low == pytest.approx(wider.high - wider.low, rel=0.15)


def correctness(rows):
    """Two arms whose answers differ as ``rows`` say."""
    return ({s: [bool(d >= 0) for d in row] for s, row in enumerate(rows)},
            {s: [bool(d <= 0) for d in row] for s, row in enumerate(rows)})  # fmt: skip


def test_parity_says_which_population_it_speaks_of():
    rows = drawn(np.random.default_rng(8), 5, 2000, 0.0)
    ours, theirs = correctness(rows)
    both = stats.paired_answers(ours, theirs)
    a, b = ([100 * np.mean(arm[s]) for s in range(5)] for arm in (ours, theirs))
    of_data = stats.parity(a, b, margin=3.0, answers=both, scale=100.0, unit="pp")
    of_items = stats.parity(a, b, margin=3.0, items=2000, scale=100.0, unit="pp")
    assert (of_data.measurement.about, of_items.measurement.about) == ("data like it", "this test set")
    assert "this speaks of data like it" in of_data.reason
    assert of_data.verdict is Verdict.PASS
    assert of_data.method == "seeds x items crossed, 5 x 2000"
    assert of_data.power is not None
    assert of_data.power > 0.8
    width = [d.measurement.interval.high - d.measurement.interval.low for d in (of_data, of_items)]
    assert width[0] > 2 * width[1]
    assert 0 < of_data.minimal_margin < 3


def test_answers_that_are_not_those_of_the_gaps_are_refused():
    ours, theirs = correctness(drawn(np.random.default_rng(9), 3, 50, 0.0))
    both = stats.paired_answers(ours, theirs)
    with pytest.raises(InputError, match="answers that give the gaps compared"):
        stats.parity([0.9, 0.9, 0.8], [0.9, 0.8, 0.8], margin=0.03, answers=both)
    with pytest.raises(InputError, match="answers of the seeds that are compared"):
        stats.parity([0.9, 0.9, 0.8], [0.9, 0.8, 0.8], margin=0.03, answers=both, seeds=(7, 8, 9))
    with pytest.raises(InputError, match="the same test items in every arm and seed"):
        stats.paired_answers({1: [True, True]}, {1: [True, True, False]})
    with pytest.raises(InputError, match="at least two seeds"):
        crossed(stats.paired_answers({1: [True, True]}, {1: [True, False]}))


def test_answers_survive_a_record():
    correct = [bool(i % 3) for i in range(1001)]
    assert stats.unpack(stats.pack(correct), 1001) == correct
    assert stats.unpack_items(stats.pack_items([1, 2**64 - 1])) == [1, 2**64 - 1]
    with pytest.raises(InputError, match="answers to 2000 items"):
        stats.unpack(stats.pack(correct), 2000)
    with pytest.raises(InputError, match="packed answers"):
        stats.unpack("not base64!", 3)


def test_the_power_stated_is_about_the_power_there_is():
    generator, repeats, region = np.random.default_rng(11), 200, Region(low=-MARGIN, high=MARGIN)
    stated, passed = [], 0
    for _ in range(repeats):
        found = crossed(as_answers(drawn(generator, 5, 500, 0.0)))
        stated.append(found.power(region, 0.05))
        passed += all(abs(found.mean - edge) > found.half(edge, 0.05) for edge in (-MARGIN, MARGIN))
    assert np.mean(stated) == pytest.approx(passed / repeats, abs=0.12)
