"""Solvers of the layered network: all have one fixed point, and each keeps what its module promises."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

from assay.errors import InputError
from assay.learning.stacked import obstacle
from assay.models import EnergyMLP
from assay.networks.energy_mlp.deviation import DeviationSweep
from assay.networks.energy_mlp.kernel import Sweep
from assay.networks.energy_mlp.outliers import Outliers
from assay.networks.energy_mlp.overrelaxation import OverRelaxed
from assay.rules import Centered, EqProp, OneSided
from assay.seeding import torch_generator
from assay.solving.activations import activation

GENERATOR = torch_generator(0, "solvers")
X = torch.rand(16, 24, generator=GENERATOR, dtype=torch.float64)
Y = torch.randint(0, 5, (16,), generator=GENERATOR)
UNITS = ("clipped", "smooth", "tanh")


def network(solver="sweeps", *, gamma=0.1, hidden=3, gain=1.0, **options):
    model = EnergyMLP([24] + [32] * hidden + [5], gamma=gamma, seed=0, solver=solver, **options).double()
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(gain)
    return model


def gradients(model, rule):
    model.zero_grad()
    rule.backward(model, X, Y)
    return [p.grad.clone() for p in model.parameters()]


def error(found, true):
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, true, strict=True))


@pytest.mark.parametrize("readout", ["softmax", "squared"])
@pytest.mark.parametrize("estimator", [OneSided(1e-3), Centered(0.3)], ids=str)
@pytest.mark.parametrize("solver", ["projected", "deflated", "overrelaxed"])
def test_every_solver_comes_to_the_same_rest(solver, estimator, readout):
    plain, other = network(readout=readout), network(solver, readout=readout)
    rule = EqProp(estimator, sweeps=(200, 200), tolerance=1e-13)
    assert error(gradients(other, rule), gradients(plain, rule)) < 1e-9


@pytest.mark.parametrize("hidden", [2, 3, 5])
def test_the_best_multiples_lower_the_error_of_one_nudged_sweep(hidden):
    truth = gradients(network(hidden=hidden), EqProp("tangent", sweeps=(200, 200), tolerance=1e-13))
    once = EqProp(sweeps=(50, 1))
    plain, ours = (error(gradients(network(s, hidden=hidden), once), truth) for s in ("sweeps", "projected"))
    assert ours < plain


def test_the_multiples_minimise_the_energy_of_the_nudged_network():
    """The quadratic of the alphas, built here from products with the weights that the kernel never makes."""
    model = network("projected", gamma=0.3)
    layers, beta = model.as_layers(), torch.full((16,), 1e-6, dtype=torch.float64)
    with torch.no_grad():
        clamped = model.clamp(X)
        free = model.relax(clamped, None, sweeps=100).value
        sweep = DeviationSweep(layers, clamped.shared_drive, free, Y, beta=beta)
        units = [None] * layers.depth
        sweep(units, False)
        pulled = sweep.error(None).mT @ layers.readout[0]
        found, depth = sweep.projection.multiples(), layers.depth

        def energy(alphas):
            total = -alphas[-1] * (units[-1] * pulled).sum(1)
            for layer in range(depth):
                scale = model.gamma ** (depth - 1 - layer)
                slope = 1 - free[layer] ** 2
                total = total + scale * 0.5 * alphas[layer] ** 2 * (units[layer] ** 2 / slope).sum(1)
                if layer > 0:
                    pushed = units[layer - 1] @ layers.weights[layer].mT
                    total = total - scale * model.gamma * alphas[layer] * alphas[layer - 1] * (
                        units[layer] * pushed).sum(1)
            return total

        best = energy(found)
        ones = [torch.ones_like(a) for a in found]
        assert bool((best <= energy(ones)).all())
        for layer, step in itertools.product(range(depth), (-1e-2, 1e-2)):
            moved = [a + step if i == layer else a for i, a in enumerate(found)]
            assert bool((energy(moved) > best).all())


@pytest.mark.parametrize("gain", [1.0, 2.0])
@pytest.mark.parametrize("activation", UNITS)
def test_no_overrelaxed_sweep_raises_the_energy_of_any_row(activation, gain):
    """Weights of gain 2 at gamma 1 are far beyond a contraction: the proof does not need one."""
    model = network("overrelaxed", gamma=1.0, gain=gain, activation=activation)
    with torch.no_grad():
        clamped = model.clamp(X)
        sweep = Sweep(model.as_layers(), clamped.shared_drive, None)
        steps, units = OverRelaxed(sweep), sweep.start()
        last = None
        for _ in range(60):
            state = tuple(u.clone() for u in units)
            energy = model.energy(clamped, state)
            assert last is None or bool((energy <= last + 1e-11 * (1 + last.abs())).all())
            last = energy
            steps(units)


def test_an_overshoot_without_its_limit_raises_the_energy():
    """The planted mistake: an omega above 2."""
    class Careless(OverRelaxed):
        def _go_on(self, layer, before, units, step):
            units.add_(step, alpha=1.2).clamp_(1e-6 - 1, 1 - 1e-6)

    model = network("overrelaxed", gamma=1.0, gain=2.0)
    with torch.no_grad():
        clamped = model.clamp(X)
        sweep = Sweep(model.as_layers(), clamped.shared_drive, None)
        steps, units, rises = Careless(sweep), sweep.start(), 0
        last = None
        for _ in range(30):
            energy = model.energy(clamped, tuple(u.clone() for u in units))
            rises += 0 if last is None else int((energy > last + 1e-9).sum())
            last = energy
            steps(units)
    assert rises > 0


@pytest.mark.parametrize("activation", ["clipped", "smooth"])
def test_overshooting_rests_in_far_fewer_sweeps_under_classic_feedback(activation):
    rule = EqProp(sweeps=(400, 400), tolerance=1e-6)
    taken = []
    for solver in ("sweeps", "overrelaxed"):
        gradients(network(solver, gamma=1.0, hidden=2, activation=activation), rule)
        assert rule.last.status == "converged"
        taken.append(rule.last.free.steps + rule.last.nudged.steps)
    assert taken[1] < 0.7 * taken[0]


def grown(solver, *, hidden=3, gamma=0.012, **options):
    """As training leaves it: a bulk, and five directions of each weight of size 3, loops of about gamma 3^2 = 0.1."""
    model = network(solver, hidden=hidden, gamma=gamma, **options)
    generator = torch_generator(1, "outliers")
    with torch.no_grad():
        for layer in list(model.layers)[1:-1]:
            left, right = (torch.linalg.qr(torch.randn(32, 5, generator=generator, dtype=torch.float64))[0]
                           for _ in range(2))
            layer.weight.add_(3 * left @ right.mT)
    return model


@pytest.mark.parametrize("activation", UNITS)
@pytest.mark.parametrize("hidden", [2, 3, 5])
def test_deflation_leaves_the_fixed_point_of_grown_weights_where_it_is(hidden, activation):
    plain, ours = (grown(solver, hidden=hidden, activation=activation) for solver in ("sweeps", "deflated"))
    rule = EqProp(sweeps=(400, 400), tolerance=1e-13)
    assert error(gradients(ours, rule), gradients(plain, rule)) < 1e-8
    assert rule.last.status == "converged"


@pytest.mark.parametrize("hidden", [2, 3, 5])
def test_deflation_makes_one_sweep_good_where_weights_have_grown(hidden):
    truth = gradients(grown("sweeps", hidden=hidden), EqProp("tangent", sweeps=(400, 400), tolerance=1e-13))
    once = EqProp(sweeps=(1, 1))
    plain, projected, ours = (error(gradients(grown(solver, hidden=hidden), once), truth)
                              for solver in ("sweeps", "projected", "deflated"))
    assert ours < 0.5 * projected < plain


def test_deflation_with_wrong_directions_or_slopes_keeps_the_fixed_point_and_loses_the_speed():
    """The planted mistake, random directions: rest is the same, one sweep is no better than without."""
    class Lost(Outliers):
        def follow(self, weights):
            super().follow(weights)
            generator = torch_generator(2, "lost")
            for side in (self.left, self.right):
                side[:] = [torch.linalg.qr(torch.randn(*d.mT.shape, generator=generator, dtype=d.dtype))[0].mT
                           for d in side]

    truth = gradients(grown("sweeps"), EqProp(sweeps=(400, 400), tolerance=1e-13))
    lost = grown("deflated")
    weights = [layer.weight.detach() for layer in list(lost.layers)[1:-1]]
    lost._outliers = Lost(weights)
    assert error(gradients(lost, EqProp(sweeps=(400, 400), tolerance=1e-13)), truth) < 1e-8
    sound = error(gradients(grown("deflated"), EqProp(sweeps=(1, 1))), truth)
    assert error(gradients(lost, EqProp(sweeps=(1, 1))), truth) > 3 * sound


def test_outliers_are_the_leading_singular_triples_and_follow_a_weight_that_moves():
    model = grown("deflated")
    weights = [layer.weight.detach().clone() for layer in list(model.layers)[1:-1]]
    known = Outliers(weights)
    for _ in range(40):
        for weight in weights:
            weight.mul_(1.01)
        known.follow(weights)
    for _ in range(20):
        known.follow(weights)
    for number, weight in enumerate(weights):
        sizes = torch.linalg.svdvals(weight)[:5]
        assert torch.allclose(known.sizes[number].flip(0)[:5], sizes, rtol=1e-6)
        strong = known.left[number].mT * known.sizes[number] @ known.right[number]
        assert float(torch.linalg.matrix_norm(weight - strong, 2)) < 0.6 * float(sizes[-1])
        eye = torch.eye(len(known.sizes[number]), dtype=torch.float64)
        for side in (known.left[number], known.right[number]):
            assert torch.allclose(side @ side.mT, eye, atol=1e-6)


def test_deflation_survives_copies_other_number_formats_and_weights_of_zero():
    model = grown("deflated")
    gradients(model, EqProp(sweeps=(1, 1)))
    twin = copy.deepcopy(model).float()
    twin.zero_grad()
    EqProp(sweeps=(1, 1)).backward(twin, X.float(), Y)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in twin.parameters())
    with torch.no_grad():
        for layer in list(model.layers)[1:-1]:
            layer.weight.zero_()
    assert all(bool(torch.isfinite(g).all()) for g in gradients(model, EqProp(sweeps=(1, 1))))


def test_deflation_comes_to_rest_under_strong_feedback_too():
    """Loops stronger than the estimate allows: what is added is limited, and the energy of every row ends lowest."""
    plain, ours = (network(solver, gamma=0.5, hidden=3, gain=1.2) for solver in ("sweeps", "deflated"))
    rule = EqProp(sweeps=(3000, 3000), tolerance=1e-11)
    true = gradients(plain, rule)
    assert error(gradients(ours, rule), true) < 1e-6
    assert rule.last.status == "converged"


def test_a_misspelt_solver_is_refused_and_others_are_not_stacked():
    with pytest.raises(InputError, match="overrelaxed"):
        EnergyMLP([4, 8, 8, 3], solver="over-relaxed")
    models = [EnergyMLP([4, 8, 8, 3], seed=seed, solver="projected") for seed in range(2)]
    assert "solver" in (obstacle(models, EqProp()) or "")


def test_strong_directions_are_followed_without_a_graph_through_the_weights():
    model = grown("deflated")
    model.zero_grad()
    EqProp("bptt", sweeps=(2, 1)).backward(model, X, Y)
    assert not any(directions.requires_grad for directions in (*model._outliers.left, *model._outliers.right))


@pytest.mark.parametrize("name", UNITS)
def test_settling_in_place_is_the_function_and_reaches_no_further_than_said(name):
    unit = activation(name)
    drive = torch.linspace(-9, 9, 101, dtype=torch.float64)
    settled = drive.clone()
    unit.settle(settled, out=settled)
    torch.testing.assert_close(settled, unit.function(drive), rtol=0, atol=1e-15)
    low, high = unit.reach
    assert low <= float(settled.min()) < low + 0.01 and high - 0.01 < float(settled.max()) <= high


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rough_tanh_is_off_by_the_rounding_of_a_number_of_order_one_and_stays_within_its_ends(dtype):
    unit, drive = activation("tanh"), torch.linspace(-30, 30, 4001, dtype=dtype)
    settled = drive.clone()
    unit.settle(settled, out=settled, roughly=True)
    torch.testing.assert_close(settled, drive.tanh(), rtol=0, atol=1.5 * torch.finfo(dtype).eps)
    assert float(settled.abs().max()) <= 1
