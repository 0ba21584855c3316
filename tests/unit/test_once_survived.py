"""Changes of one line that once slipped past every test, each met by a claim that it breaks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from assay import EqProp, stats
from assay.audits.equilibrium.lipschitz import attack, trace
from assay.audits.equilibrium.step_maps import StepMap
from assay.audits.symmetry.measure.endtoend import Errors
from assay.audits.symmetry.measure.quotients import quotient
from assay.audits.symmetry.measure.tolerance import judge
from assay.engine import CostModel, Store, StoredCell, content_key, execute
from assay.errors import InputError
from assay.learning.training import rate_factor
from assay.models import LoopedMLP
from assay.protocols import Cell, CellResult
from assay.results import Verdict
from assay.stats.intervals import spreadless

UNITS, STEEP = 16, 3.0


def _peaked(states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A step whose stretch, 0.15 exp(3 mean), is largest in one corner of its box, where no random state comes."""
    (s,) = states
    return (0.05 * torch.exp(STEEP * s.mean(1, keepdim=True)).expand_as(s),)


def test_the_attack_climbs_to_a_peak_that_neither_the_path_nor_random_states_meet() -> None:
    subject = StepMap(_peaked, (torch.zeros(2, UNITS, dtype=torch.float64),), ((0.0, 1.0),))
    path = trace(subject, 8)
    climbed = attack(subject, path, seed=0).lower
    stayed = attack(subject, path, seed=0, climbs=0).lower
    supremum = 0.05 * STEEP * math.exp(STEEP)
    assert climbed > 2 * stayed
    assert 0.9 * supremum < climbed <= supremum * (1 + 1e-12), "a lower bound, and nearly the truth"


@pytest.mark.parametrize(("lower", "upper", "verdict"), [
    (1 + 5e-7, 1 + 5e-7, Verdict.PASS), (1 + 5e-6, 1 + 6e-6, Verdict.FAIL), (0.9, 1 + 5e-6, Verdict.INCONCLUSIVE),
])
def test_what_rounding_explains_neither_fails_a_limit_nor_keeps_it_from_passing(lower, upper, verdict) -> None:
    assert stats.constrained(lower, upper, 1.0, rounding=1e-6).verdict is verdict


@pytest.mark.parametrize("nudge", ["tangent", "centered", "one-sided", "richardson", "holomorphic(4)"])
def test_estimators_that_need_symmetric_weights_refuse_untied_ones(nudge: str) -> None:
    model, x, y = LoopedMLP(6, 8, 3, tied=False), torch.zeros(2, 6), torch.zeros(2, dtype=torch.long)
    with pytest.raises(InputError, match="symmetric weights"):
        EqProp(nudge=nudge, sweeps=(4, 3)).backward(model, x, y)


def test_the_warm_up_rises_from_its_first_step_and_ends_at_the_whole_rate() -> None:
    factor = rate_factor("constant", steps=10, warmup=0.4)
    assert [factor(step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert rate_factor("cosine", steps=10, warmup=0.0)(0) == 1.0


class _Second:
    """An executor that is given only what nobody finished, and asks whether the claims of the rest are free by then."""

    def __init__(self, store: Path, finished: str) -> None:
        self.store, self.finished, self.free = store, finished, False

    def places(self) -> int:
        return 1

    def run(self, cells, *, notify):
        for cell in cells:
            assert cell.key != self.finished, "it was finished elsewhere and is run again"
            with Store(self.store).claims() as others:
                self.free = others.take(self.finished)
            yield [CellResult(cell=cell, record={"n": 2}, failure=None, seconds=1.0)]


def test_the_claim_of_a_cell_that_another_driver_finished_is_given_back_at_once(tmp_path: Path) -> None:
    one, two = (Cell(key=content_key({"n": n}), target="json:loads", payload={}, label="c", group="g") for n in (1, 2))
    store, asked = Store(tmp_path), []
    looked = store.get_all

    def later(keys):
        """The first look finds nothing; by the second the other driver has stored it."""
        found = list(looked(keys))
        if not asked:
            asked.append(True)
            Store(tmp_path).put_all([StoredCell(one.key, "1", "g", 1.0, {"n": 1})])
        return found

    store.get_all = later  # type: ignore[method-assign]
    executor = _Second(tmp_path, one.key)
    results = execute([one, two], store=store, executor=executor)  # type: ignore[arg-type]
    assert sorted(result.record["n"] for result in results) == [1, 2]
    assert executor.free, "another driver that asks for it must not wait for the end of this one"


@pytest.mark.parametrize(("times", "label"), [(7.0, "FLOAT-LIMITED"), (12.0, "BROKEN"), (70.0, "BROKEN")])
def test_an_error_beyond_eight_estimates_of_rounding_is_a_break(times: float, label: str) -> None:
    """The factor is set by hand: it must neither call rounding a break nor let ten times rounding pass."""
    one, rounding = torch.ones(4, dtype=torch.float64), 1e-7
    errors = Errors(output="y", screened=times * rounding * one, low=times * rounding * one, high=None,
                    bound=rounding * one, cluster=torch.arange(4), element=torch.arange(4),
                    sampled=torch.ones(4).bool(), elements=4, left=0.0, suspects=0, spread=1.0, not_finite=0,
                    estimated=True)  # fmt: skip
    assert judge(errors, low_dtype=torch.float32).label == label


def test_a_wrong_derivative_a_kink_and_a_right_one_are_told_apart() -> None:
    smooth, curved = math.sin, lambda t: 50 * t * t + t
    assert not quotient(1.0, smooth, 1.0).differs and not quotient(1.0, curved, 1.0).differs
    wrong = quotient(1.2, curved, 1.0)
    assert wrong.differs and not wrong.kinked, "curvature is not a kink"
    kink = quotient(1.0, lambda t: max(t, 0.0), 1.0)
    assert kink.kinked and not kink.differs, "at a kink every backward pass may choose its side"
    assert quotient(math.nan, smooth, 1.0).differs


def test_values_that_differ_by_the_rounding_of_what_they_were_taken_from_have_no_spread() -> None:
    values = (1e-15, 2e-15, 3e-15)
    assert not spreadless(values) and spreadless(values, size=1.0)
    assert not spreadless((0.1, 0.2, 0.3), size=1.0) and spreadless((5.0, 5.0, 5.0))


def test_the_longest_of_few_cells_is_not_taken_for_the_longest_ever_seen() -> None:
    costs = CostModel()
    for seconds in (*([1.0] * 99), 1000.0):
        costs.learn("g", seconds)
    assert costs.left({"g": 1}, {}, workers=100) < 100, "one of a hundred took long: the next one probably does not"
    assert costs.left({"g": 10_000}, {}, workers=10**6) == 1000.0, "of ten thousand one will"
