"""Health: a step that gives no trustworthy gradient says so, names the layer and what to change, once."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from assay import tasks
from assay.audits.equilibrium.gradient import audit_gradient
from assay.learning import train
from assay.models import EnergyMLP, EnergyNet
from assay.rules import Centered, EqProp, HealthWarning, OneSided
from assay.seeding import torch_generator

GENERATOR = torch_generator(0, "health")
X, Y = torch.randn(16, 12, generator=GENERATOR), torch.randint(0, 5, (16,), generator=GENERATOR)


def deep(hidden=8, gamma=0.1):
    return EnergyMLP([12] + [24] * hidden + [5], gamma=gamma, seed=0)


def test_a_signal_lost_in_rounding_is_named_with_its_remedy_once():
    rule, model = EqProp(Centered(0.1), sweeps=(30, 30), coordinates="states"), deep()
    with pytest.warns(HealthWarning, match=r"lost in rounding at layer 1.*coordinates='deviations'"):
        rule.backward(model, X, Y)
    lost = [layer.lost for layer in rule.last.health.layers]
    assert lost[0] and not lost[-1], "the deepest layer loses it, the top one does not"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.backward(model, X, Y)
    assert not rule.last.health.sound


@pytest.mark.parametrize("estimator", [OneSided(), OneSided(1e-6), Centered(0.1), "tangent"], ids=str)
def test_the_same_network_is_sound_in_deviations(estimator):
    rule = EqProp(estimator, sweeps=(30, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.backward(deep(), X, Y)
    health = rule.last.health
    assert health.sound and len(health.layers) == 8
    assert all(layer.signal > 0 and layer.rounding < 1e-4 for layer in health.layers)


def test_a_free_phase_that_still_moves_is_reported():
    model = EnergyMLP([12, 24, 24, 24, 5], gamma=1.0, seed=0)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(3)
    with pytest.warns(HealthWarning, match=r"free relaxation is not at rest at layer \d"):
        EqProp(sweeps=(2, 2), on_divergence="record").backward(model, X, Y)


def test_a_nudged_phase_that_still_moves_names_its_layer():
    model = EnergyMLP([12, 24, 24, 24, 5], gamma=1.0, seed=0)
    with pytest.warns(HealthWarning, match=r"nudged relaxation is not at rest at layer \d.*more nudged sweeps"):
        EqProp(sweeps=(300, 2)).backward(model, X, Y)


def test_a_dead_layer_is_named_as_the_user_named_it():
    net = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5))
    with torch.no_grad():
        net[2].bias.fill_(-100.0)
    with pytest.warns(HealthWarning, match="lost in rounding at 1, 3"):
        EqProp(sweeps=(5, 5)).backward(EnergyNet(net, gamma=0.1), X, Y)


def test_where_nothing_is_pulled_nothing_is_lost():
    model = EnergyMLP([12, 8, 8, 5], seed=0)
    with torch.no_grad():
        model.layers[-1].bias[2] = 500.0  # every row is of class 2, to the last bit
    rule = EqProp(sweeps=(20, 10))
    rule.backward(model, X, torch.full_like(Y, 2))
    assert rule.last.health.sound


def test_history_and_audit_carry_the_health():
    task = tasks.blobs(seed=0)
    inputs, classes = task.train.x.shape[1], task.classes
    states = EqProp(Centered(0.1), sweeps=(20, 20), coordinates="states")
    model = EnergyMLP([inputs] + [16] * 8 + [classes], gamma=0.1, seed=0)
    with pytest.warns(HealthWarning):
        result = train(model, task, states, epochs=1, seed=0, batch_size=128)
    assert "lost in rounding" in result.history[-1].health
    result = train(model, task, EqProp(sweeps=(20, 20)), epochs=1, seed=0, batch_size=128)
    assert result.history[-1].health is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finding = audit_gradient(deep(3), X, Y, rule=EqProp(sweeps=(30, 30)))
    table = next(t for t in finding.tables if t.title == "What reaches each layer")
    assert [row[0] for row in table.rows] == ["layer 1", "layer 2", "layer 3"]
