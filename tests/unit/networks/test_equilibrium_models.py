"""Equilibrium models: the free relaxation lowers the energy written down, and bad input is refused in words."""

from __future__ import annotations

import math

import pytest
import torch

from assay.errors import InputError
from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.protocols import EquilibriumModel
from assay.rules import EqProp
from assay.seeding import torch_generator

GENERATOR = torch_generator(0, "models")
VECTORS = torch.randn(9, 6, generator=GENERATOR, dtype=torch.float64)
IMAGES = torch.rand(4, 1, 8, 8, generator=GENERATOR, dtype=torch.float64)
TOKENS = torch.randint(0, 5, (6, 4), generator=GENERATOR)

SUBJECTS = {
    **{f"mlp {a} {r} {g}": (EnergyMLP([6, 8, 8, 8, 3], activation=a, readout=r, gamma=g, seed=1), VECTORS)
       for a in ("tanh", "clipped", "smooth") for r in ("softmax", "squared") for g in (0.25, 1.0)},
    "looped": (LoopedMLP(6, 10, 3, seed=1), VECTORS),
    "conv average tanh": (
        EnergyConv((1, 8, 8), [3, 4], pooling="average", activation="tanh", gamma=0.5, seed=1), IMAGES),
    "conv max clipped": (EnergyConv((1, 8, 8), [3, 4], gamma=1.0, seed=1), IMAGES),
    "conv max smooth": (EnergyConv((1, 8, 8), [3, 4], activation="smooth", gamma=1.0, seed=1), IMAGES),
    "attention": (EnergyAttention(5, length=4, width=8, heads=2, layers=2, seed=1), TOKENS),
    "attention gamma 1": (EnergyAttention(5, length=4, width=8, heads=2, gamma=1.0, seed=1), TOKENS),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_free_sweep_lowers_the_energy_of_every_row(name):
    model, x = SUBJECTS[name]
    model = model.double()
    assert isinstance(model, EquilibriumModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # strong couplings, so that there is something to lower
        clamped = model.clamp(x)
        state = model.start(clamped)
        energies = [model.energy(clamped, state)]
        for _ in range(12):
            state = model.sweep(clamped, state)
            energies.append(model.energy(clamped, state))
        for parameter in model.parameters():
            parameter.mul_(0.5)
    drops = -torch.stack(energies).diff(dim=0)
    # A row at rest may wander by the rounding of its own energy, a sum of some hundred terms.
    assert drops.min() > -1e-12 * energies[0].abs().max()
    assert drops[0].max() > 1e-6


SMOOTH = ["mlp tanh softmax 0.25", "mlp smooth squared 1.0", "looped", "attention", "conv average tanh"]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_fixed_point_is_a_stationary_point_of_the_energy(name):
    model, x = SUBJECTS[name]
    model = model.double()
    with torch.no_grad():
        clamped = model.clamp(x)
        state = model.relax(clamped, model.start(clamped), sweeps=800).value
    leaves = tuple(s.clone().requires_grad_() for s in state)
    slopes = torch.autograd.grad(model.energy(model.clamp(x), leaves).sum(), leaves)
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-9


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_model_without_gradients_is_the_unrolled_model(name):
    model, x = SUBJECTS[name]
    model = model.double()
    unrolled = model(x)
    with torch.no_grad():
        relaxed = model(x)
    assert unrolled.requires_grad
    if "1.0" in name or "clipped" in name:  # slow to settle: stopping early may differ by more than the tolerance
        assert (unrolled - relaxed).abs().max() < 1e-2
    else:
        assert (unrolled - relaxed).abs().max() < 1e-4


def test_the_seed_alone_decides_the_weights_and_the_global_generator_is_not_touched():
    before = torch.get_rng_state()
    first, same, other = (EnergyMLP([6, 8, 3], seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.layers[0].weight, same.layers[0].weight)
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


def test_the_feedforward_limit_shares_the_parameters():
    model = EnergyMLP([6, 8, 8, 3], gamma=1e-9, seed=0).double()
    torch.testing.assert_close(model(VECTORS), model.feedforward()(VECTORS), rtol=1e-7, atol=1e-8)
    assert {id(p) for p in model.parameters()} == {id(p) for p in model.feedforward().parameters()}


def test_spectral_normalisation_bounds_both_weights_and_runs_once_per_batch(monkeypatch):
    model = LoopedMLP(6, 10, 3, bound=0.9, seed=0)
    with torch.no_grad():
        model.loop.weight.mul_(10)
        model.input.weight.mul_(10)
    for weight in (model.loop_weight(), model.input_weight()):
        assert float(torch.linalg.matrix_norm(weight.detach(), ord=2)) == pytest.approx(0.9, rel=1e-5)
    calls = []
    original = LoopedMLP._norms
    monkeypatch.setattr(LoopedMLP, "_norms", lambda self: calls.append(1) or original(self))
    with torch.no_grad():
        model(VECTORS.float())
    assert len(calls) == 1  # whatever the number of sweeps
    EqProp(sweeps=(20, 20)).backward(model, VECTORS.float(), torch.zeros(len(VECTORS), dtype=torch.long))
    assert len(calls) == 2  # and of phases


def test_a_weight_within_the_bound_is_left_as_it_is():
    model = LoopedMLP(6, 10, 3, seed=0)
    with torch.no_grad():
        model.loop.weight.mul_(0.1)
    torch.testing.assert_close(model.loop_weight(), 0.5 * (model.loop.weight + model.loop.weight.t()))


def test_an_untied_loop_has_no_energy_and_says_so():
    model = LoopedMLP(6, 10, 3, tied=False, seed=0).double()
    assert not model.symmetric
    with pytest.raises(InputError, match="untied LoopedMLP"):
        model.energy(model.clamp(VECTORS), model.start(model.clamp(VECTORS)))


def test_without_attention_a_position_knows_only_its_own_token():
    model = EnergyAttention(5, length=4, width=8, heads=2, attention=False, seed=0)
    changed = TOKENS.clone()
    changed[:, 1:] = (changed[:, 1:] + 1) % 5
    with torch.no_grad():
        torch.testing.assert_close(model(TOKENS)[:, 0], model(changed)[:, 0])


@pytest.mark.parametrize(("build", "words"), [
    (lambda: EnergyMLP([6, 8, 3], gamma=1.5), "gamma in .0, 1."),
    (lambda: EnergyMLP([6, 8, 3], gamma=0.0), "feedforward"),
    (lambda: EnergyMLP([6, 3]), "widths"),
    (lambda: EnergyMLP([6, 8, 3], activation="relu"), "unknown activation"),
    (lambda: EnergyMLP([6, 8, 3], readout="softmx"), "did you mean 'softmax'"),
    (lambda: EnergyConv((1, 6, 6), [3, 4]), "divisible by 4"),
    (lambda: EnergyConv((1, 8, 8), [3], activation="tanh"), "never negative"),
    (lambda: EnergyConv((1, 8, 8), [3], pooling="min"), "unknown pooling"),
    (lambda: EnergyConv((1, 8, 8), [3], gamma=2.0), "gamma"),
    (lambda: EnergyAttention(5, length=4, width=9, heads=2), "multiple of heads"),
    (lambda: EnergyAttention(5, length=4, gamma=1.1), "gamma"),
    (lambda: LoopedMLP(6, 0, 3), ">= 1"),
    (lambda: LoopedMLP(6, 8, 3, bound=0.0), "bound > 0"),
])
def test_impossible_models_are_refused(build, words):
    with pytest.raises(InputError, match=words):
        build()


@pytest.mark.parametrize(("x", "words"), [
    (torch.zeros(4, 6, dtype=torch.long), "floating-point inputs"),
    (torch.zeros(4, 7), r"\(batch, 6\).*\(4, 7\)"),
    (torch.zeros(4, 2, 3), r"\(batch, 6\)"),
    (torch.zeros(0, 6), "at least one row"),
    (torch.zeros(4, 6, dtype=torch.float64), "precision"),
    (torch.full((4, 6), math.nan), "24 NaN or infinite entries"),
    (torch.full((4, 6), math.inf), "finite inputs"),
])
@pytest.mark.parametrize("build", [lambda: EnergyMLP([6, 8, 3]), lambda: LoopedMLP(6, 8, 3)], ids=["mlp", "looped"])
def test_bad_inputs_are_refused_in_words(build, x, words):
    with pytest.raises(InputError, match=words):
        EqProp().backward(build(), x, torch.zeros(len(x), dtype=torch.long))


@pytest.mark.parametrize(("x", "words"), [
    (torch.zeros(2, 4), "int64"), (torch.zeros(2, 5, dtype=torch.long), r"\(batch, 4\)"),
    (torch.full((2, 4), 5), "tokens from 0 to 4"),
])
def test_bad_tokens_are_refused_in_words(x, words):
    with pytest.raises(InputError, match=words):
        EnergyAttention(5, length=4)(x)
