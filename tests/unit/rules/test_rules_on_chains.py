"""The rules that need layers: what they take, what they refuse, and that a training loop can use them as any other."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.errors import InputError
from assay.learning import evaluate, train
from assay.learning.names import RULES, named_rule
from assay.probe.chain import layers_of
from assay.protocols import is_local
from assay.rules import (
    DualPropagation,
    ForwardForward,
    ForwardGradient,
    LocalHeads,
    Pepita,
    PredictiveCoding,
    TargetPropagation,
)
from assay.seeding import torch_generator
from assay.solving.solution import Diverged

NAMES = [name for name, named in RULES.items() if named.made_by]
ANY_MODEL = ("weight-perturbation", "forward-gradient")
GENERATOR = torch_generator(0, "chains")
X, Y = torch.rand(16, 8, generator=GENERATOR), torch.randint(3, (16,), generator=GENERATOR)
Z = torch.randn(16, 3, generator=GENERATOR)


def net():
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Sequential(nn.Linear(12, 12), nn.Tanh()), nn.Linear(12, 3))


def pictures():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))


def test_layers_are_cut_behind_activations_and_shapes_belong_to_the_next():
    found = layers_of(pictures(), rule="a test")
    assert [layer.name for layer in found] == ["0", "4"]
    assert [type(m).__name__ for m in found[0].drive] == ["Conv2d", "AvgPool2d"]
    assert [type(m).__name__ for m in found[1].drive] == ["Flatten", "Linear"]
    assert [layer.name for layer in layers_of(net(), rule="a test")] == ["0", "2.0", "3"]


def test_the_layers_in_turn_are_the_model():
    model = pictures()
    h = torch.rand(5, 1, 4, 4)
    outputs = model(h)
    for layer in layers_of(model, rule="a test"):
        h = layer(h)
    torch.testing.assert_close(h, outputs)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_gets_a_gradient_the_loss_is_detached_and_calls_add_up(name):
    model = net()
    rule = named_rule(name, model, seed=1)
    loss = rule.backward(model, X, Y)
    assert loss.dim() == 0 and not loss.requires_grad and is_local(rule)
    assert all(bool(p.grad.any()) for p in model.parameters())
    first = [p.grad.clone() for p in model.parameters()]
    twin = copy.deepcopy(rule)
    model.zero_grad(set_to_none=True)
    rule.backward(model, X, Y)
    second = [p.grad.clone() for p in model.parameters()]
    for p, gradient in zip(model.parameters(), first, strict=True):
        p.grad = gradient.clone()
    twin.backward(model, X, Y)
    for p, a, b in zip(model.parameters(), first, second, strict=True):
        torch.testing.assert_close(p.grad, a + b)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_frozen_is_left_alone(name):
    model = net()
    model[0].requires_grad_(False)
    named_rule(name, model).backward(model, X, Y)
    assert model[0].weight.grad is None and model[3].weight.grad is not None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "forward-forward"])
def test_regressions_are_taken_where_the_rule_has_an_error_to_send(name):
    model = net()
    named_rule(name, model).backward(model, X, Z)
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("name", ["pc", "pc-errors", "pc-fixed", "dual", "pepita", "local-heads", "node-perturbation"])
def test_convolutions_are_taken(name):
    model = pictures()
    named_rule(name, model).backward(model, torch.rand(6, 1, 4, 4), torch.arange(6) % 3)
    assert all(bool(p.grad.any()) for p in model.parameters())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ANY_MODEL])
def test_a_model_that_is_no_chain_is_refused_in_one_line(name):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return self.layer(x)

    model = Own()
    with pytest.raises(InputError, match="Sequential"):
        named_rule(name, model).backward(model, X, Y)


def test_modules_that_would_not_answer_alike_twice_are_refused_by_name():
    with pytest.raises(InputError, match="'1' is a Dropout"):
        layers_of(nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 3)), rule="a test")
    with pytest.raises(InputError, match="BatchNorm1d"):
        layers_of(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), rule="a test")
    shared = nn.Linear(8, 8)
    with pytest.raises(InputError, match="the same module as '0'"):
        layers_of(nn.Sequential(shared, nn.Tanh(), shared), rule="a test")


def test_what_a_rule_cannot_take_is_said_in_one_line():
    with pytest.raises(InputError, match=r"nn\.Linear each"):
        TargetPropagation(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Conv2d(2, 2, 3), nn.Tanh(), nn.Linear(2, 2)))
    with pytest.raises(InputError, match="hidden layer"):
        ForwardForward(nn.Sequential(nn.Linear(4, 2)))
    with pytest.raises(InputError, match="class index"):
        ForwardForward(net()).backward(net(), X, Z)
    with pytest.raises(InputError, match="flat rows"):
        ForwardForward(pictures()).backward(pictures(), torch.rand(2, 1, 4, 4), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="inputs by outputs"):
        Pepita(net(), feedback=torch.zeros(3, 3)).backward(net(), X, Y)
    for wrong in ({"form": "state"}, {"steps": 0}, {"beta": 0.0}):
        with pytest.raises(InputError):
            PredictiveCoding(**wrong)
    with pytest.raises(InputError, match="row by row"):
        ForwardGradient(at="drives", loss=nn.functional.cross_entropy)


def test_inference_that_explodes_is_an_error_that_says_what_to_do():
    model = net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(60)
    with pytest.raises(Diverged, match="smaller rate"):
        PredictiveCoding(steps=400, rate=50.0).backward(nn.Sequential(*[m for m in model if m is not model[1]]), X, Z)


def test_inference_says_how_it_ended():
    rule = PredictiveCoding(steps=500, rate=0.3, tolerance=1e-5)
    rule.backward(net(), X, Y)
    assert rule.last.converged and rule.last.steps < 500 and rule.last.residual <= 1e-5


@pytest.mark.parametrize("name", ["dtp", "forward-forward", "pepita", "local-heads", "node-perturbation"])
def test_what_is_drawn_depends_on_the_seed_alone(name):
    model = net()

    def gradient(seed):
        model.zero_grad(set_to_none=True)
        named_rule(name, model, seed=seed).backward(model, X, Y)
        return model[0].weight.grad.clone()

    assert torch.equal(gradient(1), gradient(1)) and not torch.equal(gradient(1), gradient(2))


@pytest.mark.parametrize("make", [TargetPropagation, LocalHeads])
def test_what_learns_beside_the_model_survives_a_checkpoint(make):
    model = net()
    rule, other = make(model, seed=0), make(model, seed=9)
    other.load_state_dict(rule.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(rule.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", ["pc", "pc-errors", "dual", "dtp", "local-heads", "pepita", "forward-forward"])
def test_rules_learn_digits_well_above_chance(name):
    from assay.tasks import load

    task = load("digits", seed=0)
    generator = torch_generator(0, "digits net")
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            bound = parameter.shape[-1] ** -0.5
            parameter.copy_(2 * bound * torch.rand(parameter.shape, generator=generator) - bound)
    rule = named_rule(name, model)
    result = train(model, task, rule, epochs=3, seed=0, learning_rate=5e-3)
    assert result.test_accuracy > 0.4
    assert evaluate(model, task.test, rule=rule).accuracy == result.test_accuracy


def test_forward_forward_answers_by_goodness_or_by_its_readout():
    model = net()
    rule, readout = ForwardForward(model), ForwardForward(model, read="softmax")
    assert rule.predict(model, X).shape == readout.predict(model, X).shape == (16, 3)
    assert not torch.allclose(rule.predict(model, X), model(X))


def test_dual_propagation_with_more_sweeps_stays_near_one():
    model = net()

    def gradient(sweeps):
        model.zero_grad(set_to_none=True)
        DualPropagation(beta=0.01, sweeps=sweeps).backward(model, X, Y)
        return model[0].weight.grad.clone()

    torch.testing.assert_close(gradient(3), gradient(1), rtol=1e-2, atol=1e-5)
