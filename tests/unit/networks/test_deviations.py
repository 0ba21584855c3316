"""Deviation coordinates: float32 keeps the whole gradient at any depth, feedback and nudge; states lose it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.networks.reference.layered import LayeredReference, one_hot
from assay.protocols import Nudge
from assay.rules import EqProp
from assay.rules.estimators import Centered, Holomorphic, OneSided, Richardson
from assay.seeding import torch_generator
from assay.solving.deviation import deviate

GENERATOR = torch_generator(0, "deviations")
X, Y = torch.randn(16, 24, generator=GENERATOR), torch.randint(0, 10, (16,), generator=GENERATOR)


def deep(hidden, gamma, dtype=torch.float32, width=32, **options):
    """Weights of unit gain, uniform: the setting of the depth table."""
    model = EnergyMLP([24] + [width] * hidden + [10], gamma=gamma, seed=0, **options)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(3**0.5)
    return model.to(dtype)


def gradients(model, rule, x, y):
    model.zero_grad()
    rule.backward(model, x, y)
    return [p.grad.double().clone() for p in model.parameters()]


def errors(found, true):
    return [float((a - b).norm() / b.norm()) for a, b in zip(found, true, strict=True)]


@pytest.mark.parametrize(("hidden", "gamma"), [(3, 0.01), (8, 0.1), (16, 0.1), (32, 0.1), (32, 0.03), (32, 0.01)])
def test_float32_is_float64_at_every_layer_at_any_depth_and_feedback(hidden, gamma):
    single, double = deep(hidden, gamma), deep(hidden, gamma, torch.float64)
    truth = gradients(double, EqProp("tangent", sweeps=(200, 200), tolerance=1e-13), X.double(), Y)
    for estimator in (OneSided(1e-3), OneSided(1e-6), Centered(0.1)):
        ours = gradients(single, EqProp(estimator, sweeps=(100, 100), tolerance=2e-6), X, Y)
        same = gradients(double, EqProp(estimator, sweeps=(200, 200), tolerance=1e-13), X.double(), Y)
        assert max(errors(ours, same)) < 1e-4  # the contract is 1e-3
        # What is left beside rounding is the bias of the nudge: beta for one sign, beta^2 times the net's own for two.
        assert max(errors(ours, truth)) < (1e-3 if isinstance(estimator, OneSided) else 5e-3)


def test_states_lose_the_signal_that_deviations_keep():
    model, double = deep(8, 0.1), deep(8, 0.1, torch.float64)
    truth = gradients(double, EqProp("tangent", sweeps=(200, 200), tolerance=1e-13), X.double(), Y)
    drowned = gradients(model, EqProp(Centered(0.1), sweeps=(60, 60), coordinates="states"), X, Y)
    kept = gradients(model, EqProp(Centered(0.1), sweeps=(60, 60)), X, Y)
    assert torch.cosine_similarity(drowned[0].flatten(), truth[0].flatten(), dim=0) < 0.3
    assert torch.cosine_similarity(kept[0].flatten(), truth[0].flatten(), dim=0) > 0.999999


@pytest.mark.parametrize("hidden", [1, 2, 4])
@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("activation", ["tanh", "smooth", "clipped", "identity"])
def test_every_nudged_sweep_is_that_of_the_reference(hidden, readout, activation):
    model = deep(hidden, 0.3, torch.float64, width=12, readout=readout, activation=activation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5 if activation == "identity" else 1.0)
    reference = LayeredReference(
        tuple(layer.weight.detach().numpy() for layer in model.layers),
        tuple(layer.bias.detach().numpy() for layer in model.layers), 0.3, activation, readout,
    )
    x, beta = X.double(), 0.3
    with torch.no_grad():
        clamped = model.clamp(x)
        free = model.relax(clamped, None, sweeps=3).value
        nudge = Nudge(torch.full((16,), beta, dtype=torch.float64), Y)
        expected = reference.deviations(
            x.numpy(), [s.numpy() for s in free], sweeps=3, beta=beta, y=one_hot(Y.numpy(), 10)
        )
        for sweeps in (1, 2, 3):
            found = model.deviate(clamped, free, nudge, sweeps=sweeps).value
            for u, d in zip(found, expected[sweeps - 1], strict=True):
                # The reference subtracts states: it loses eps / (beta gamma^(K-l)), and a lone layer stops at rest.
                assert np.abs(u.numpy() / beta - d).max() < 1e-12


FINITE = [OneSided(0.01), Centered(0.2), Richardson(0.2), Holomorphic(8, beta=0.2)]


@pytest.mark.parametrize("estimator", FINITE, ids=str)
@pytest.mark.parametrize("activation", ["tanh", "smooth"])
def test_both_coordinates_are_one_rule_at_rest(estimator, activation):
    model = EnergyMLP([24, 16, 16, 16, 10], activation=activation, seed=1).double()
    deviations, states = (
        gradients(model, EqProp(estimator, sweeps=(150, 150), coordinates=c), X.double(), Y)
        for c in ("deviations", "states")
    )
    assert max(errors(deviations, states)) < 1e-11 / estimator.beta


TOKENS = torch.randint(0, 5, (16, 4), generator=GENERATOR)
IMAGES = torch.rand(16, 1, 8, 8, generator=GENERATOR)
FIELDS = {
    "looped": (lambda: LoopedMLP(24, 16, 10, bound=0.8, seed=0), X),
    "average": (lambda: EnergyConv((1, 8, 8), [3, 4], pooling="average", activation="tanh", seed=0), IMAGES),
    "attention": (lambda: EnergyAttention(5, length=4, width=8, heads=2, classes=10, gamma=0.1, seed=0), TOKENS),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_model_keeps_a_tiny_nudge_in_float32(name):
    build, x = FIELDS[name]
    y = TOKENS if name == "attention" else Y
    model, double = build(), build().double()
    x64 = x.double() if x.is_floating_point() else x
    truth = gradients(double, EqProp("tangent", sweeps=(150, 150), tolerance=1e-13), x64, y)
    for beta in (1e-3, 1e-6):
        ours = gradients(model, EqProp(OneSided(beta), sweeps=(60, 60)), x, y)
        assert max(errors(ours, truth)) < 1e-3


@pytest.mark.parametrize("estimator", [Richardson(0.2), Holomorphic(4, beta=0.2)], ids=str)
def test_the_quadrature_keeps_the_order_of_the_estimator(estimator):
    model = EnergyAttention(5, length=4, width=8, heads=2, classes=10, gamma=0.1, seed=0).double()
    truth = gradients(model, EqProp("tangent", sweeps=(150, 150), tolerance=1e-13), TOKENS, TOKENS)
    whole = torch.cat([g.flatten() for g in truth])
    found = []
    for beta in (0.2, 0.1):
        rule = EqProp(estimator, beta=beta, sweeps=(150, 150), tolerance=1e-13)
        ours = torch.cat([g.flatten() for g in gradients(model, rule, TOKENS, TOKENS)])
        found.append(float((ours - whole).norm() / whole.norm()))
    assert np.log2(found[0] / found[1]) == pytest.approx(4, abs=0.4)


def test_the_general_road_agrees_with_the_written_out_kernel():
    model = EnergyMLP([24, 16, 16, 10], seed=1).double()
    nudge = Nudge(torch.full((16,), 0.1, dtype=torch.float64), Y)
    with torch.no_grad():
        clamped = model.clamp(X.double())
        free = model.relax(clamped, None, sweeps=100).value
        plain = deviate(model, clamped, free, nudge, sweeps=40, order=16).value
        ours = model.deviate(clamped, free, nudge, sweeps=40).value
    for layer, (a, b) in enumerate(zip(plain, ours, strict=True)):
        torch.testing.assert_close(a, b * model.gamma ** (1 - layer), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("change", [{}, {"attention": False}, {"layers": 3, "gamma": 0.25}], ids=str)
def test_the_written_out_derivative_of_attention_is_that_of_forward_mode(change, dtype):
    options = {"length": 4, "width": 8, "heads": 2, "classes": 10, "gamma": 0.1, "seed": 0, **change}
    model = EnergyAttention(5, **options).double()
    beta = torch.tensor([0.3, -0.2], dtype=torch.float64).repeat_interleave(len(TOKENS)).to(dtype)
    nudge = Nudge(beta * (1j if dtype.is_complex else 1), TOKENS.repeat(2, 1))
    with torch.no_grad():
        clamped = model.clamp(TOKENS)
        free = model.relax(clamped, None, sweeps=20).value
        ours = model.deviate(clamped, free, nudge, sweeps=6, order=4).value
        plain = deviate(model, clamped, free, nudge, sweeps=6, order=4).value
    for a, b in zip(ours, plain, strict=True):
        assert float(b.abs().max()) > 1e-4
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def test_attention_with_another_sweep_has_its_derivative():
    class Damped(EnergyAttention):
        def sweep(self, clamped, state, nudge=None):
            return tuple((old + new) / 2 for old, new in zip(state, super().sweep(clamped, state, nudge), strict=True))

    model = Damped(5, length=4, width=8, heads=2, classes=10, gamma=0.1, seed=0).double()
    nudge = Nudge(torch.full((len(TOKENS),), 0.3, dtype=torch.float64), TOKENS)
    with torch.no_grad():
        clamped = model.clamp(TOKENS)
        free = model.relax(clamped, None, sweeps=60).value
        ours, plain = (f(clamped, free, nudge, sweeps=3).value for f in (model.deviate, partial(deviate, model)))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b)
