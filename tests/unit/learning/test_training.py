"""The one training loop: any rule, any module, seeds with separate streams, divergence reported."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from assay.errors import InputError
from assay.learning import evaluate, train, train_many
from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.protocols import Split
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator


@dataclass(frozen=True)
class Clouds:
    """Three Gaussian clouds: a task any rule learns in an instant."""

    train: Split
    validation: Split
    test: Split
    name: str = "clouds"
    classes: int = 3
    data_hash: str = "clouds"


def clouds(seed=0, shape=(6,)):
    generator = torch_generator(seed, "clouds")
    centres = 1.5 * torch.randn(3, math.prod(shape), generator=generator)

    def part(rows):
        y = torch.randint(0, 3, (rows,), generator=generator)
        x = centres[y] + 0.5 * torch.randn(rows, math.prod(shape), generator=generator)
        return Split(x.view(rows, *shape), y)

    return Clouds(part(120), part(60), part(60))


@pytest.mark.parametrize(("build", "rule"), [
    (lambda: EnergyMLP([6, 16, 16, 3]), EqProp(beta=0.3, sweeps=(4, 3))),
    (lambda: EnergyMLP([6, 16, 16, 3], readout="squared"), EqProp(beta=0.3, sweeps=(8, 6))),
    (lambda: EnergyMLP([6, 16, 16, 3], activation="clipped"), EqProp(beta=0.3, sweeps=(4, 3))),
    (lambda: EnergyMLP([6, 16, 16, 3], activation="smooth"), EqProp(nudge="tangent", sweeps=(4, 3))),
    (lambda: LoopedMLP(6, 16, 3), EqProp(beta=0.3, sweeps=(10, 8))),
    (lambda: LoopedMLP(6, 16, 3, tied=False), EqProp(beta=0.3, nudge="asymmetric", sweeps=(10, 8))),
    (lambda: EnergyMLP([6, 16, 16, 3], sweeps=5), Backprop()),
    (lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), Backprop()),
], ids=["eqprop", "squared", "clipped", "smooth tangent", "looped", "untied", "unrolled", "plain"])
def test_every_rule_and_model_learns_three_clouds(build, rule):
    result = train(build(), clouds(), rule, epochs=12, seed=0, learning_rate=1e-2)
    assert result.test_accuracy > 0.9 and result.validation_accuracy > 0.9
    assert result.diverged is None and len(result.history) == 12
    assert result.history[-1].loss < result.history[0].loss


def test_a_convolutional_energy_network_learns():
    result = train(EnergyConv((1, 4, 4), [8], classes=3), clouds(shape=(1, 4, 4)), EqProp(beta=0.3, sweeps=(4, 3)),
                   epochs=12, seed=0, learning_rate=1e-2)
    assert result.test_accuracy > 0.9


def test_token_tasks_are_trained_and_every_position_counts():
    generator = torch_generator(0, "tokens")
    tokens = (torch.randint(0, 3, (rows, 3), generator=generator) for rows in (300, 40, 50))
    task = Clouds(*(Split(x, x.flip(1)) for x in tokens))
    result = train(EnergyAttention(3, length=3, width=16), task, EqProp(beta=0.5, sweeps=(6, 4)), epochs=8, seed=0,
                   learning_rate=1e-2, warmup=0.1)
    assert result.test_accuracy > 0.95
    assert evaluate(EnergyAttention(3, length=3, width=16), task.test).total == 150


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    def run(seed):
        model = EnergyMLP([6, 8, 3], seed=0)
        return train(model, clouds(), EqProp(), epochs=2, seed=seed, input_noise=0.1).history[-1].loss

    assert run(1) == run(1) != run(2)


def test_order_and_noise_do_not_depend_on_the_model_or_the_rule():
    batches = []

    @dataclass(frozen=True)
    class Spy:
        rule: object

        def backward(self, model, x, y):
            batches.append(x.clone())
            return self.rule.backward(model, x, y)

    before = torch.get_rng_state()
    for model, rule in ((EnergyMLP([6, 8, 3], seed=5), EqProp()), (nn.Linear(6, 3), Backprop())):
        train(model, clouds(), Spy(rule), epochs=2, seed=3, input_noise=0.2)
    half = len(batches) // 2
    assert all(torch.equal(a, b) for a, b in zip(batches[:half], batches[half:], strict=True))
    # nn.Linear above draws from the global generator; the loop itself must not.
    after_models = torch.get_rng_state()
    train(EnergyMLP([6, 8, 3]), clouds(), EqProp(), epochs=1, seed=0, input_noise=0.1)
    assert torch.equal(torch.get_rng_state(), after_models) and before is not None


def test_the_history_shows_residuals_and_the_worst_status():
    result = train(EnergyMLP([6, 8, 8, 3], gamma=1.0), clouds(), EqProp(sweeps=(2, 1)), epochs=2, seed=0)
    assert all(epoch.residual > 0 and epoch.status == "truncated" for epoch in result.history)
    plain = train(nn.Linear(6, 3), clouds(), Backprop(), epochs=1, seed=0)
    assert plain.history[0].residual is None and plain.history[0].status is None


def test_divergence_stops_training_with_a_reason_and_keeps_the_last_good_parameters():
    model = EnergyMLP([6, 8, 8, 3], activation="identity", gamma=1.0, seed=0)
    result = train(model, clouds(), EqProp(sweeps=(100, 50)), epochs=5, seed=0,
                   optimiser=lambda p: torch.optim.SGD(p, lr=50.0))
    assert result.diverged is not None and "epoch 1" in result.diverged and "diverged" in result.diverged
    assert len(result.history) == 1 and result.history[0].status == "diverged"
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_an_infinite_loss_is_reported_not_stepped_on():
    model = nn.Linear(6, 3)
    with torch.no_grad():
        model.weight.fill_(1e38)
    result = train(model, clouds(), Backprop(), epochs=2, seed=0)
    assert "the loss is" in result.diverged


def test_any_optimiser_schedule_and_callback_can_be_given():
    rates = []
    make = torch.optim.SGD
    kept = {}

    def optimiser(parameters):
        kept["optimiser"] = make(parameters, lr=1.0)
        return kept["optimiser"]

    def note(epoch, model):
        rates.append(kept["optimiser"].param_groups[0]["lr"])

    train(nn.Linear(6, 3), clouds(), Backprop(), epochs=4, seed=0, optimiser=optimiser, callbacks=[note])
    assert rates == pytest.approx([0.5 * (1 + math.cos(math.pi * k / 4)) for k in (1, 2, 3, 4)])
    rates.clear()
    train(nn.Linear(6, 3), clouds(), Backprop(), epochs=2, seed=0, optimiser=optimiser, callbacks=[note],
          schedule=lambda progress: 0.3)
    assert rates == pytest.approx([0.3, 0.3])


def test_augmentation_gets_its_own_stream():
    seen = []

    def flip(x, generator):
        seen.append(float(torch.rand(1, generator=generator)))
        return x.flip(1)

    for _ in range(2):
        train(nn.Linear(6, 3), clouds(), Backprop(), epochs=1, seed=0, augment=flip)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_mode_is_restored_and_the_test_part_can_be_left_alone():
    model = nn.Linear(6, 3).eval()
    result = train(model, clouds(), Backprop(), epochs=1, seed=0, test=False)
    assert math.isnan(result.test_accuracy) and not model.training and 0 <= result.validation_accuracy <= 1


@pytest.mark.parametrize("settings", [
    {"epochs": 0}, {"epochs": 1, "batch_size": 0}, {"epochs": 1, "input_noise": -1.0},
    {"epochs": 1, "schedule": "cosin"},
    {"epochs": 1, "warmup": 1.0}, {"epochs": 1, "seed": -1},
])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(InputError):
        train(nn.Linear(6, 3), clouds(), Backprop(), **{"seed": 0, **settings})


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(InputError, match="trainable"):
        train(nn.Linear(6, 3).requires_grad_(False), clouds(), Backprop(), epochs=1, seed=0)


@pytest.mark.parametrize("nudge", ["centered", "richardson", "tangent"])
def test_many_seeds_side_by_side_are_the_seeds_one_by_one(nudge):
    def run(side_by_side):
        models = [EnergyMLP([6, 12, 12, 3], seed=seed).double() for seed in range(3)]
        parts = [clouds(seed) for seed in range(3)]
        tasks = [Clouds(*(Split(s.x.double(), s.y) for s in (t.train, t.validation, t.test))) for t in parts]
        results = train_many(models, tasks, EqProp(beta=0.3, nudge=nudge, sweeps=(4, 3)), seeds=range(3), epochs=3,
                             input_noise=0.1, side_by_side=side_by_side)
        return models, results

    (stacked, fast), (alone, slow) = run(True), run(False)
    assert [r.test_accuracy for r in fast] == [r.test_accuracy for r in slow]
    for a, b in zip(stacked, alone, strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            # Adam divides by gradients: rounding of 1e-16 in a gradient near 1e-8 may move a step by 1e-8 of its size.
            torch.testing.assert_close(p, q, rtol=0, atol=1e-8)


def test_what_cannot_be_stacked_is_trained_one_by_one_or_refused_when_insisted_on():
    models = [nn.Linear(6, 3) for _ in range(2)]
    results = train_many(models, [clouds(), clouds()], Backprop(), seeds=(0, 1), epochs=1)
    assert len(results) == 2
    with pytest.raises(InputError, match="stacked"):
        train_many(models, [clouds(), clouds()], Backprop(), seeds=(0, 1), epochs=1, side_by_side=True)
    with pytest.raises(InputError, match="as many models"):
        train_many(models, [clouds()], Backprop(), seeds=(0, 1), epochs=1)


def test_if_one_of_many_diverges_each_gets_its_own_verdict():
    def build(scale):
        model = EnergyMLP([6, 8, 8, 3], activation="identity", gamma=1.0, seed=0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        return model

    results = train_many([build(0.3), build(100.0)], [clouds(), clouds()], EqProp(sweeps=(60, 10)), seeds=(0, 1),
                         epochs=1, learning_rate=1e-4)
    assert results[0].diverged is None and results[1].diverged is not None
