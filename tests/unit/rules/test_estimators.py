"""The gates: in float64 and at rest, every estimator is the gradient to the order it claims."""

from __future__ import annotations

import math

import pytest
import torch

from assay.errors import InputError
from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.rules import Backprop, EqProp
from assay.rules.estimators import Centered, Holomorphic, OneSided, estimator
from assay.seeding import torch_generator

DEEP = (120, 120)
"""Sweeps that bring every model here to rest in float64 (each test checks the residual first)."""


def batch(inputs=12, rows=16, seed=0):
    generator = torch_generator(seed, "batch")
    x = torch.randn(rows, inputs, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 5, (rows,), generator=generator)


def three_hidden(seed=0, **options):
    return EnergyMLP([12, 24, 24, 24, 5], gamma=0.25, seed=seed, **options).double()


def gradient(model, rule, x, y):
    model.zero_grad()
    rule.backward(model, x, y)
    assert rule.last is None or rule.nudge == "bptt" or rule.last.residual < 1e-12
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def error(model, nudge, x, y, *, beta=0.1, sweeps=DEEP, **options):
    true = gradient(model, EqProp(nudge="bptt", sweeps=sweeps), x, y)
    ours = gradient(model, EqProp(beta=beta, nudge=nudge, sweeps=sweeps, **options), x, y)
    return float((ours - true).norm() / true.norm())


@pytest.mark.parametrize("seed", range(3))
def test_tangent_is_backprop_through_time(seed):
    assert error(three_hidden(seed), "tangent", *batch(seed=seed)) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_centered_at_beta_one_tenth_is_within_a_thousandth(seed):
    assert error(three_hidden(seed), "centered", *batch(seed=seed)) < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_eight_holomorphic_points_at_beta_one_tenth_are_exact_to_eight_digits(seed):
    assert error(three_hidden(seed), "holomorphic(8)", *batch(seed=seed)) < 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_larger_weights_need_a_smaller_nudge_for_the_same_thousandth(seed):
    # Xavier weights are about sqrt(3) times those of nn.Linear: the bias of the centered difference, which grows with
    # the cube of the response, misses 1e-3 at beta 0.1; it falls with beta squared and meets it at 0.05.
    model = three_hidden(seed)
    generator = torch_generator(seed, "xavier")
    with torch.no_grad():
        for layer in model.layers:
            bound = math.sqrt(6 / sum(layer.weight.shape))
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.zero_()
    coarse, fine = (error(model, "centered", *batch(seed=seed), beta=beta, sweeps=(300, 300)) for beta in (0.1, 0.05))
    assert fine < 1e-3 < coarse < 1e-2
    assert coarse / fine == pytest.approx(4, rel=0.05)


ORDERS = [("one-sided", 1), ("centered", 2), ("richardson", 4), ("holomorphic(4)", 4)]


@pytest.mark.parametrize(("nudge", "order"), ORDERS)
def test_the_error_falls_with_the_order_of_the_scheme(nudge, order):
    model, (x, y) = three_hidden(), batch()
    large, small = 0.2, 0.05
    slope = math.log(error(model, nudge, x, y, beta=large) / error(model, nudge, x, y, beta=small)) / math.log(4)
    assert slope == pytest.approx(order, abs=0.1 * order if order > 2 else 0.1)


@pytest.mark.parametrize("activation", ["tanh", "smooth", "clipped"])
@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_tangent_is_exact_for_every_activation_readout_and_feedback_strength(activation, readout, gamma):
    model = EnergyMLP([12, 16, 16, 5], gamma=gamma, activation=activation, readout=readout, seed=0).double()
    # Classic feedback (gamma = 1) contracts slowly.
    assert error(model, "tangent", *batch(), sweeps=DEEP if gamma < 1 else (800, 800)) < 1e-9


def test_the_kinks_of_a_clipped_unit_defeat_high_orders():
    model, (x, y) = three_hidden(activation="clipped"), batch()
    assert error(model, "richardson", x, y) > 1e-3 > error(three_hidden(), "richardson", x, y)


@pytest.mark.parametrize("spectral_norm", [True, False])
def test_a_tied_loop_is_exact_and_its_normalisation_is_part_of_the_gradient(spectral_norm):
    model = LoopedMLP(12, 16, 5, spectral_norm=spectral_norm, bound=0.8, seed=0).double()
    x, y = batch()
    assert error(model, "tangent", x, y) < 1e-9 and error(model, "holomorphic(8)", x, y) < 1e-8


def test_an_untied_loop_needs_the_asymmetric_correction():
    model = LoopedMLP(12, 16, 5, tied=False, bound=0.8, seed=0).double()
    with torch.no_grad():
        model.loop.weight *= 4
    x, y = batch()
    assert error(model, "asymmetric", x, y, beta=0.01) < 1e-4
    with pytest.raises(InputError, match=r"symmetric weights.*untied.*asymmetric"):
        EqProp(nudge="centered").backward(model, x, y)
    # Without the correction the same contrast points elsewhere: the reason for the error above.
    model.tied = True
    wrong = gradient(_Untied(model), EqProp(beta=0.01, nudge="centered", sweeps=DEEP), x, y)
    model.tied = False
    true = gradient(model, EqProp(nudge="bptt", sweeps=DEEP), x, y)
    assert torch.cosine_similarity(wrong, true, dim=0) < 0.999


class _Untied(LoopedMLP):
    """An untied loop that claims to be symmetric: a planted lie."""

    def __new__(cls, model):
        return object.__new__(cls)

    def __init__(self, model):
        self.__dict__.update(model.__dict__)

    def _loop(self):
        return self.loop.weight


def test_attention_is_exact():
    model = EnergyAttention(5, length=4, width=8, heads=2, layers=2, seed=0).double()
    x = torch.randint(0, 5, (6, 4), generator=torch_generator(0, "tokens"))
    y = x.flip(1)
    assert error(model, "tangent", x, y) < 1e-9
    assert error(model, "holomorphic(8)", x, y) < 1e-8
    assert error(model, "centered", x, y) < 2e-3


@pytest.mark.parametrize("activation", ["tanh", "smooth"])
def test_convolution_with_average_pooling_is_exact(activation):
    model = EnergyConv((1, 8, 8), [3, 4], classes=5, pooling="average", activation=activation, seed=0).double()
    generator = torch_generator(0, "images")
    x = torch.randn(5, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 5, (5,), generator=generator)
    assert error(model, "tangent", x, y) < 1e-9 and error(model, "holomorphic(8)", x, y) < 1e-8


def test_max_pooling_is_exact_in_the_limit_of_a_small_nudge():
    model = EnergyConv((1, 8, 8), [3, 4], classes=5, pooling="max", activation="smooth", seed=0).double()
    generator = torch_generator(0, "images")
    x = torch.rand(5, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 5, (5,), generator=generator)
    assert error(model, "tangent", x, y) < 1e-9
    assert error(model, "centered", x, y, beta=1e-3) < 1e-5


def test_a_wrong_energy_gives_a_wrong_gradient():
    class LogCosh(EnergyMLP):
        """A cost whose slope is not the inverse of tanh: the stationary point of this energy is not the fixed point."""

        def add_energy_gradient(self, clamped, state, weights):
            super(EnergyMLP, self).add_energy_gradient(clamped, tuple(torch.log(torch.cosh(s)) for s in state), weights)

    model = LogCosh([12, 24, 5], seed=0).double()
    assert error(model, "centered", *batch(), coordinates="states") > 0.1


def test_backprop_of_an_equilibrium_model_unrolls_its_own_sweeps():
    model = three_hidden(sweeps=40)
    x, y = batch()
    through_time = gradient(model, EqProp(nudge="bptt", sweeps=(40, 1)), x, y)
    model.zero_grad()
    Backprop().backward(model, x, y)
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in model.parameters()]), through_time)


def test_one_hidden_layer_with_a_tangent_is_backprop_of_the_feedforward_net():
    model = EnergyMLP([12, 24, 5], seed=0).double()
    x, y = batch()
    ours = gradient(model, EqProp(nudge="tangent", sweeps=(1, 1)), x, y)
    model.zero_grad()
    Backprop().backward(model.feedforward(), x, y)
    torch.testing.assert_close(ours, torch.cat([p.grad.flatten() for p in model.parameters()]))


def test_unknown_and_odd_schemes_are_refused():
    with pytest.raises(InputError, match="did you mean 'centered'"):
        estimator("centred")
    with pytest.raises(InputError, match="even N"):
        estimator("holomorphic(5)")


def test_a_stencil_differentiates_polynomials_of_its_order_exactly():
    for nudge, degree in (("one-sided", 1), ("centered", 2), ("richardson", 4), ("holomorphic(8)", 8)):
        stencil = estimator(nudge, 0.3).stencil()
        for power in range(degree + 1):
            value = sum(c * b**power for b, c in zip(stencil.betas, stencil.coefficients, strict=True))
            value += stencil.free * 0.0**power
            assert complex(value).real == pytest.approx(1.0 if power == 1 else 0.0, abs=1e-12)


def test_an_estimator_is_a_value_and_a_string_is_its_spelling():
    assert EqProp(Holomorphic(8, beta=0.2)) == EqProp(nudge="holomorphic(8)", beta=0.2)
    assert EqProp(Centered(0.1)) == EqProp("centered", beta=0.1) == EqProp(beta=0.1)
    assert EqProp().estimator == OneSided(1e-3) and EqProp(coordinates="states").estimator == Centered(0.1)
    assert (EqProp(Centered(0.3)).beta, EqProp(Centered(0.3)).nudge) == (0.3, "centered")
    assert not hasattr(EqProp("tangent"), "beta")
    for wrong in ({"estimator": Centered(), "nudge": "centered"}, {"estimator": 0.1}, {"coordinates": "state"}):
        with pytest.raises(InputError):
            EqProp(**wrong)
