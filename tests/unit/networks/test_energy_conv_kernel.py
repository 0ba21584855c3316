"""EnergyConv's phases written out are those of its pure sweep, for both poolings and every unit."""

from __future__ import annotations

import pytest
import torch

from assay.models import EnergyConv
from assay.networks.equilibrium import EquilibriumModule
from assay.rules import Centered, EqProp, Holomorphic, OneSided
from assay.seeding import torch_generator

GENERATOR = torch_generator(0, "conv kernel")
X = torch.rand(12, 1, 8, 8, generator=GENERATOR, dtype=torch.float64)
Y = torch.randint(0, 10, (12,), generator=GENERATOR)
KINDS = [("max", "clipped"), ("max", "smooth"), ("average", "tanh"), ("average", "clipped"),
         ("max-first", "tanh"), ("max-first", "clipped")]


class General(EnergyConv):
    """The same network, every phase by the general road: the pure sweep, its forward derivative, autograd."""

    relax = EquilibriumModule.relax
    deviate = EquilibriumModule.deviate
    add_deviation_gradient = EquilibriumModule.add_deviation_gradient


def network(kind, pooling, activation, **options):
    return kind((1, 8, 8), [3, 4], pooling=pooling, activation=activation, seed=0, **options).double()


def gradients(model, rule):
    model.zero_grad()
    rule.backward(model, X, Y)
    return [p.grad.clone() for p in model.parameters()]


def error(found, true):
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, true, strict=True))


@pytest.mark.parametrize(("pooling", "activation"), KINDS)
@pytest.mark.parametrize("sweeps", [(60, 1), (60, 2)])
def test_the_written_out_phases_are_those_of_the_sweep(pooling, activation, sweeps):
    ours, general = (network(kind, pooling, activation) for kind in (EnergyConv, General))
    rule = EqProp(OneSided(1e-7), sweeps=sweeps)
    assert error(gradients(ours, rule), gradients(general, rule)) < 1e-6


@pytest.mark.parametrize(("pooling", "activation"), KINDS)
@pytest.mark.parametrize("estimator", [OneSided(1e-7), Centered(1e-3)], ids=str)
def test_at_rest_they_give_the_gradient(pooling, activation, estimator):
    model = network(EnergyConv, pooling, activation)
    truth = gradients(model, EqProp("tangent", sweeps=(200, 200), tolerance=1e-13))
    assert error(gradients(model, EqProp(estimator, sweeps=(200, 200), tolerance=1e-12)), truth) < 1e-6


def test_a_complex_nudge_takes_the_general_road():
    model = network(EnergyConv, "average", "tanh")
    truth = gradients(model, EqProp("tangent", sweeps=(200, 200), tolerance=1e-13))
    assert error(gradients(model, EqProp(Holomorphic(6, beta=0.1), sweeps=(200, 200), tolerance=1e-13)), truth) < 1e-6


def test_a_state_from_elsewhere_finds_its_own_winners():
    model = network(EnergyConv, "max", "clipped")
    rule = EqProp(OneSided(1e-3), sweeps=(60, 20))
    expected = gradients(model, rule)
    with torch.no_grad():
        clamped = model.clamp(X)
        free = model.relax(clamped, None, sweeps=60).value
        elsewhere = tuple(layer.clone() for layer in free)
        a, b = (model._trail(clamped, state) for state in (free, elsewhere))
    assert error(gradients(model, rule), expected) == 0
    assert all(torch.equal(p, q) for p, q in zip(a.winners, b.winners, strict=True))
    assert all(torch.allclose(p, q, atol=1e-9) for p, q in zip(a.drives, b.drives, strict=True))


def test_parameters_that_are_frozen_get_no_gradient():
    model = network(EnergyConv, "max", "clipped")
    model.layers[0].weight.requires_grad_(False)
    EqProp(sweeps=(2, 2)).backward(model, X, Y)
    assert model.layers[0].weight.grad is None and model.layers[0].bias.grad is not None
