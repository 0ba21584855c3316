"""Claims in five lines: a healthy subject passes, a broken one does not, controls run as arms by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay import claims, tasks
from assay.errors import InputError
from assay.registry import registry
from assay.results import Verdict
from assay.studies.arms.brought import Here

QUICK = {"epochs": 4, "learning_rate": 1e-2}


class Rule:
    """Backprop times ``sign``."""

    sign = 1.0

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        (self.sign * loss).backward()
        return loss.detach()


class Uphill(Rule):
    sign = -1.0


def net(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def blobs(seed: int) -> Any:
    return tasks.blobs(seed=seed, train=300, validation=60, test=400)


@pytest.fixture(autouse=True)
def no_trace() -> Iterator[None]:
    registry.load()
    before = dict(registry.tracks)
    yield
    registry.tracks.clear()
    registry.tracks.update(before)


def verdict_of(number: int, store: Any, seeds: int = 3) -> Any:
    (finding,) = assay.verify(number, seeds=seeds, store=store, executor=Here()).findings
    return finding


def test_parity_tells_a_healthy_rule_from_a_broken_one(tmp_path: Any) -> None:
    claims.parity(9500, "own-rule", rule=Rule, task=blobs, model=net, margin=6, settings=QUICK)
    claims.parity(9501, "uphill", rule=Uphill, task=blobs, model=net, margin=6, settings=QUICK)
    good, bad = verdict_of(9500, tmp_path), verdict_of(9501, tmp_path)
    assert good.verdict is Verdict.PASS, good.reason
    assert bad.verdict is not Verdict.PASS
    assert {control.kind for control in good.controls} == {"known-good", "known-bad"}
    assert good.claim == "Rule/net is within ± 6 pp of backprop/net on blobs."
    assert good.tables or good.figures


def test_solving_needs_enough_seeds_and_better_needs_a_gap(tmp_path: Any) -> None:
    claims.solves(9502, "solved", rule=Rule, task=blobs, model=net, score=60, rate=0.2, settings=QUICK)
    claims.better(9503, "superior", rule=Rule, task=blobs, model=net, margin=5, settings=QUICK)
    assert verdict_of(9502, tmp_path).verdict is Verdict.PASS
    assert verdict_of(9503, tmp_path).verdict is Verdict.FAIL


def test_an_audit_holds_and_the_rule_turned_uphill_is_its_control(tmp_path: Any) -> None:
    sample = (torch.randn(8, 16, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4)
    claims.holds(9504, "true-gradient", audit=assay.audit_gradient, model=net, sample=sample, rule=Rule)
    claims.holds(9505, "false-gradient", audit=assay.audit_gradient, model=net, sample=sample, rule="fa-layer")
    good = verdict_of(9504, tmp_path)
    assert good.verdict is Verdict.PASS, good.reason
    assert claims.BROKEN.removeprefix("control: ") in {control.name for control in good.controls}
    assert verdict_of(9505, tmp_path).verdict is Verdict.FAIL


def test_what_cannot_be_claimed_is_refused_when_it_is_made() -> None:
    with pytest.raises(InputError, match="other than the backprop"):
        claims.parity(9506, "nothing", rule="backprop", task="digits", margin=1)
    with pytest.raises(InputError, match="settings= and device="):
        claims.parity(9506, "nothing", rule="eqprop", task="digits", margin=1, epochs=3)
