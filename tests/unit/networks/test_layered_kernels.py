"""The fast kernels against the NumPy reference: state by state and gradient by gradient, one network or many."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.errors import InputError
from assay.models import EnergyMLP, LoopedMLP
from assay.networks.energy_mlp.population import pays, population_gradient, stack
from assay.networks.reference.layered import LayeredReference, LoopedReference, one_hot
from assay.protocols import Nudge
from assay.rules import EqProp
from assay.seeding import torch_generator

WIDTHS = ([7, 9, 4], [7, 9, 8, 4], [7, 9, 8, 6, 4])
BETA, ROWS = 0.3, 11


def batch(dtype=torch.float64, seed=0):
    generator = torch_generator(seed, "batch")
    return torch.randn(ROWS, 7, generator=generator, dtype=dtype), torch.randint(0, 4, (ROWS,), generator=generator)


def reference_of(model):
    return LayeredReference(
        tuple(layer.weight.detach().double().numpy() for layer in model.layers),
        tuple(layer.bias.detach().double().numpy() for layer in model.layers),
        model.gamma, model.activation.name, model.readout,
    )


def tolerance(dtype, widths, sweeps):
    # Each sweep adds a dot product (width roundings of order-one terms) and an activation per layer; errors of
    # earlier sweeps are contracted, so they add up at most linearly.
    return 4 * torch.finfo(dtype).eps * max(widths) * len(widths) * sweeps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["tanh", "clipped", "smooth"])
@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_every_sweep_of_the_fast_kernel_is_a_sweep_of_the_reference(dtype, activation, readout, widths):
    model = EnergyMLP(widths, activation=activation, readout=readout, gamma=0.5, seed=1).to(dtype)
    x, y = batch(dtype)
    reference, x64, y64 = reference_of(model), x.double().numpy(), one_hot(y.numpy(), 4)
    with torch.no_grad():
        clamped = model.clamp(x)
        state, expected = model.start(clamped), reference.start(x64)
        for step in range(8):
            nudge = None if step < 4 else Nudge(torch.full((ROWS,), BETA, dtype=dtype), y)
            state = model.relax(clamped, state, sweeps=1, nudge=nudge).value
            expected = reference.sweep(x64, expected, beta=BETA, y=None if step < 4 else y64)
            for fast, slow in zip(state, expected, strict=True):
                assert np.abs(fast.double().numpy() - slow).max() < tolerance(dtype, widths, step + 1)


@pytest.mark.parametrize("activation", ["tanh", "clipped", "smooth"])
@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_every_gradient_of_the_fast_kernel_is_that_of_the_reference(activation, readout, widths):
    model = EnergyMLP(widths, activation=activation, readout=readout, gamma=0.5, seed=1).double()
    x, y = batch()
    loss = EqProp(beta=BETA, sweeps=(5, 4), coordinates="states").backward(model, x, y)
    reference = reference_of(model)
    y64 = one_hot(y.numpy(), 4)
    expected = reference.gradient(x.numpy(), y64, beta=BETA, sweeps=(5, 4))
    limit = tolerance(torch.float64, widths, 9) / (2 * BETA * model.loss_scale)
    for layer, (weight, bias) in zip(model.layers, expected, strict=True):
        assert np.abs(layer.weight.grad.numpy() - weight).max() < limit
        assert np.abs(layer.bias.grad.numpy() - bias).max() < limit
    free = reference.trajectory(x.numpy(), reference.start(x.numpy()), sweeps=5)[-1]
    assert float(loss) == pytest.approx(reference.loss(free, y64), abs=1e-13)


def test_the_looped_network_is_the_reference_step_by_step_and_in_its_gradient():
    model = LoopedMLP(7, 9, 4, seed=3).double()
    x, y = batch()
    reference = LoopedReference(*(
        t.detach().numpy() for t in (model.input_weight(), model.input.bias, model.loop_weight(), model.output.weight,
                                     model.output.bias)
    ))
    with torch.no_grad():
        clamped = model.clamp(x)
        state = model.start(clamped)
        for expected in reference.trajectory(x.numpy(), reference.start(x.numpy()), sweeps=6):
            state = model.sweep(clamped, state)
            assert np.abs(state[0].numpy() - expected).max() < tolerance(torch.float64, [9], 6)
    EqProp(beta=BETA, sweeps=(6, 5), coordinates="states").backward(model, x, y)
    gradient = reference.gradient(x.numpy(), one_hot(y.numpy(), 4), beta=BETA, sweeps=(6, 5))
    assert np.abs(model.output.weight.grad.numpy() - gradient["w_out"]).max() < 1e-14
    assert np.abs(model.input.bias.grad.numpy() - gradient["b"]).max() < 1e-13


def test_the_reference_energy_is_the_model_energy():
    for activation in ("tanh", "clipped", "smooth"):
        model = EnergyMLP([7, 9, 8, 4], activation=activation, seed=1).double()
        x, _ = batch()
        with torch.no_grad():
            clamped = model.clamp(x)
            state = model.start(clamped)
            ours = model.energy(clamped, state).numpy()
        assert np.abs(ours - reference_of(model).energy(x.numpy(), [s.numpy() for s in state])).max() < 1e-13


def test_the_pure_sweep_and_the_kernel_agree_also_on_the_tangent():
    model = EnergyMLP([7, 9, 8, 6, 4], gamma=0.5, seed=1).double()
    x, y = batch()
    with torch.no_grad():
        clamped = model.clamp(x)
        free = model.relax(clamped, model.start(clamped), sweeps=60).value
        fast = model.tangent(clamped, free, y, sweeps=5)
        plain = super(EnergyMLP, model).tangent(clamped, free, y, sweeps=5)
    assert fast.steps == plain.steps
    for a, b in zip(fast.value, plain.value, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("scheme", ["centered", "tangent"])
def test_a_population_computes_what_each_network_computes_alone(widths, readout, scheme):
    models = [EnergyMLP(widths, readout=readout, seed=seed).double() for seed in range(3)]
    batches = [batch(seed=seed) for seed in range(3)]
    x, y = (torch.stack(part) for part in zip(*batches, strict=True))
    stencil = {"betas": (BETA, -BETA), "coefficients": (0.5 / BETA, -0.5 / BETA)} if scheme == "centered" else {}
    together = population_gradient(stack([m.as_layers() for m in models]), x, y, sweeps=(4, 3), **stencil)
    rule = EqProp(beta=BETA, nudge=scheme, sweeps=(4, 3))
    for index, model in enumerate(models):
        loss = rule.backward(model, x[index], y[index])
        torch.testing.assert_close(together.losses[index], loss, rtol=1e-13, atol=0)
        for layer, (weight, bias) in zip(model.layers, together.gradients, strict=True):
            torch.testing.assert_close(weight[index], layer.weight.grad, rtol=1e-10, atol=1e-13)
            torch.testing.assert_close(bias[index], layer.bias.grad, rtol=1e-10, atol=1e-13)


def test_networks_of_different_shapes_cannot_be_stacked():
    with pytest.raises(InputError, match="one shape"):
        stack([EnergyMLP([7, 9, 4]).as_layers(), EnergyMLP([7, 8, 4]).as_layers()])


def test_stacking_is_chosen_for_narrow_networks_and_several_seeds_only():
    assert pays([784, 64, 10], 5) and not pays([784, 64, 10], 1) and not pays([784, 1024, 10], 5)


def test_a_lone_layer_is_at_rest_after_one_free_sweep_and_stops_when_its_error_does():
    model = EnergyMLP([7, 9, 4], seed=0)
    x, y = batch(torch.float32)
    with torch.no_grad():
        clamped = model.clamp(x)
        free = model.relax(clamped, model.start(clamped), sweeps=30)
        nudge = Nudge(torch.full((ROWS,), 0.1), y)
        early = model.relax(clamped, tuple(s.clone() for s in free.value), sweeps=30, nudge=nudge)
        state = tuple(s.clone() for s in free.value)
        for _ in range(30):
            state = model.sweep(clamped, state, nudge)
    assert (free.steps, free.residual) == (1, 0.0)
    assert early.converged and early.steps < 15
    assert (early.value[0] - state[0]).abs().max() < tolerance(torch.float32, [9], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 3.0, 6.0])
def test_the_residual_of_a_lone_layer_bounds_what_one_more_sweep_would_change(dtype, scale):
    model = EnergyMLP([7, 64, 4], seed=0).to(dtype)
    with torch.no_grad():
        model.layers[-1].weight.mul_(scale)
    x, y = batch(dtype)
    nudge = Nudge(torch.tensor([0.3] * ROWS + [-0.3] * ROWS, dtype=dtype), y.repeat(2))
    with torch.no_grad():
        clamped = model.clamp(x).repeat(2)
        for sweeps in (1, 2, 3, 30):
            free = tuple(torch.cat([s, s]) for s in model.relax(model.clamp(x), None, sweeps=1).value)
            found = model.relax(clamped, free, sweeps=sweeps, nudge=nudge)
            moved = (model.sweep(clamped, found.value, nudge)[0] - found.value[0]).abs().max()
            assert moved <= found.residual + tolerance(dtype, [64], 2)
            assert found.converged or found.steps == sweeps


def test_a_relaxation_without_a_state_begins_at_the_feedforward_start():
    for widths in WIDTHS:
        model = EnergyMLP(widths, seed=2).double()
        clamped = model.clamp(batch()[0])
        with torch.no_grad():
            given, found = (model.relax(clamped, s, sweeps=3) for s in (model.start(clamped), None))
        assert all(torch.equal(a, b) for a, b in zip(given.value, found.value, strict=True))
