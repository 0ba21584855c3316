"""Seeds trained as one batched program are, to the last bit, the seeds trained one by one; or they are not stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from assay.learning import TrainResult, many, stacked, train_many
from assay.models import EnergyMLP
from assay.protocols import Split
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator

SEEDS, BATCH, ROWS = 3, 32, 73


@dataclass(frozen=True)
class Noise:
    """Pictures of nothing: bits are all that matters here."""

    train: Split
    validation: Split
    test: Split
    name: str = "noise"
    classes: int = 10
    data_hash: str = "noise"


def tasks(count: int = SEEDS) -> list[Noise]:
    found = []
    for seed in range(count):
        generator = torch_generator(seed, "noise")
        parts = [Split(torch.randn(n, 64, generator=generator), torch.randint(0, 10, (n,), generator=generator))
                 for n in (ROWS, 40, 40)]
        found.append(Noise(*parts))
    return found


def networks(kind: str) -> tuple[list[nn.Module], Any]:
    nets = [EnergyMLP([64, 128, 64, 10], gamma=0.25, seed=seed) for seed in range(SEEDS)]
    if kind == "eqprop":
        return list(nets), EqProp(beta=0.5, sweeps=(4, 3))
    plain = [net.feedforward() for net in nets]
    if kind == "frozen body":
        for parameter in (p for model in plain for p in list(model.parameters())[:-2]):
            parameter.requires_grad_(False)
    return list(plain), Backprop()


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the stacks that were really trained."""
    seen: list[int] = []
    real = many._side_by_side
    monkeypatch.setattr(many, "_side_by_side", lambda models, *rest, **more: (
        seen.append(len(models)), real(models, *rest, **more))[1])
    return seen


def trained(kind: str, side_by_side: bool | None) -> tuple[list[nn.Module], tuple[TrainResult, ...]]:
    models, rule = networks(kind)
    results = train_many(models, tasks(), rule, seeds=range(SEEDS), epochs=4, batch_size=BATCH, input_noise=0.15,
                         side_by_side=side_by_side)
    return models, results


def facts(result: TrainResult) -> tuple[Any, ...]:
    epochs = [(e.number, e.loss, e.validation_accuracy, e.residual, e.status) for e in result.history]
    return result.test_accuracy, result.validation_accuracy, result.test_loss, result.diverged, result.seed, epochs


@pytest.mark.parametrize("kind", ["eqprop", "backprop", "frozen body"])
def test_a_whole_training_side_by_side_has_the_bits_of_training_apart(kind: str, stacks: list[int]) -> None:
    models, grouped = trained(kind, None)
    alone, apart = trained(kind, False)
    assert [facts(result) for result in grouped] == [facts(result) for result in apart]
    for a, b in zip(models, alone, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    # Where this machine's batched kernels add in another order the library declines, and says so by training apart.
    models, rule = networks(kind)
    same = stacked.same_bits(models, tasks(), rule, batch_size=BATCH, optimiser=torch.optim.Adam)
    assert stacks == ([SEEDS] if same else [])


@pytest.mark.parametrize("kind", ["eqprop", "backprop"])
def test_one_bit_of_difference_in_a_step_forbids_stacking(
    kind: str, stacks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stacked.step_stacked

    def off_by_a_bit(rule: Any, like: nn.Module, parameters: Any, x: torch.Tensor, y: torch.Tensor) -> stacked.Stepped:
        stepped = real(rule, like, parameters, x=x, y=y)
        if x.shape[1] == ROWS % BATCH:  # in the last, shorter batch only
            gradient = parameters[-1].grad
            gradient[-1, -1] = torch.nextafter(gradient[-1, -1], torch.tensor(2.0))
        return stepped

    monkeypatch.setattr(stacked, "step_stacked", off_by_a_bit)
    _, grouped = trained(kind, None)
    assert stacks == []
    assert [facts(result) for result in grouped] == [facts(result) for result in trained(kind, False)[1]]


def test_looking_for_equal_bits_leaves_models_and_rule_alone() -> None:
    models, rule = networks("eqprop")
    before = [p.clone() for model in models for p in model.parameters()]
    stacked.same_bits(models, tasks(), rule, batch_size=BATCH, optimiser=torch.optim.Adam)
    after = [p for model in models for p in model.parameters()]
    assert all(torch.equal(p, q) and q.grad is None for p, q in zip(before, after, strict=True))
    assert rule.last is None


@pytest.mark.parametrize(("rule", "widths"), [
    (EqProp(beta=0.5, sweeps=(30, 10), tolerance=1e-4), (64, 32, 32, 10)),
    (EqProp(beta=0.5, sweeps=(4, 3)), (64, 32, 10)),
    (EqProp(nudge="tangent", sweeps=(4, 3)), (64, 32, 32, 10)),
], ids=["tolerance", "one hidden layer", "tangent"])
def test_what_would_wait_for_the_slowest_network_is_not_stacked_unasked(
    rule: EqProp, widths: tuple[int, ...], stacks: list[int]
) -> None:
    for side_by_side in (None, True):
        models = [EnergyMLP(widths, gamma=0.25, seed=seed) for seed in range(SEEDS)]
        train_many(models, tasks(), rule, seeds=range(SEEDS), epochs=1, batch_size=BATCH, side_by_side=side_by_side)
    assert stacks == [SEEDS], "only where it was insisted on"


@pytest.mark.parametrize("module", [nn.Dropout(0.5), nn.Softmax(dim=1), nn.BatchNorm1d(16)])
def test_a_network_whose_rows_or_steps_are_not_independent_is_trained_apart(
    module: nn.Module, stacks: list[int]
) -> None:
    with torch.random.fork_rng():
        models = [nn.Sequential(nn.Linear(64, 16), module, nn.Linear(16, 10)) for _ in range(SEEDS)]
        train_many(models, tasks(), Backprop(), seeds=range(SEEDS), epochs=1, batch_size=BATCH)
    assert stacks == []


@pytest.mark.parametrize("side_by_side", [True, False])
def test_callbacks_see_every_network_at_every_epoch_as_it_is_then(side_by_side: bool) -> None:
    models, rule = networks("backprop")
    seen: list[tuple[int, int, float]] = []

    def size(model: nn.Module) -> float:
        return float(next(model.parameters()).detach().sum())

    def look(epoch: Any, model: nn.Module) -> None:
        seen.append((epoch.number, [id(each) for each in models].index(id(model)), size(model)))

    train_many(models, tasks(), rule, seeds=range(SEEDS), epochs=2, batch_size=BATCH, side_by_side=side_by_side,
               callbacks=[look])
    assert sorted(each[:2] for each in seen) == [(epoch, which) for epoch in (1, 2) for which in range(SEEDS)]
    last = {which: value for epoch, which, value in seen if epoch == 2}
    assert last == {which: size(model) for which, model in enumerate(models)}
    assert all(value != last[which] for epoch, which, value in seen if epoch == 1)
