"""EqProp: no graph through the relaxation, clear errors, and a relaxation that fails is never silently used."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
import torch
from torch import nn

from assay.errors import InputError
from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator
from assay.solving.solution import Diverged, Status

GENERATOR = torch_generator(0, "eqprop")
X, Y = torch.randn(16, 6, generator=GENERATOR), torch.randint(0, 3, (16,), generator=GENERATOR)
IMAGES = torch.rand(16, 1, 8, 8, generator=GENERATOR)
TOKENS = torch.randint(0, 3, (16, 4), generator=GENERATOR)
SUBJECTS = {
    "mlp": (lambda: EnergyMLP([6, 32, 32, 3]), X, Y),
    "looped": (lambda: LoopedMLP(6, 32, 3), X, Y),
    "conv": (lambda: EnergyConv((1, 8, 8), [4, 4], classes=3), IMAGES, Y),
    "attention": (lambda: EnergyAttention(3, length=4, width=16), TOKENS, TOKENS.flip(1)),
}


def saved_by(rule, model, x, y):
    """How many tensors autograd saved for backward passes, and their bytes."""
    saved = []

    def pack(tensor):
        saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        rule.backward(model, x, y)
    return len(saved), sum(saved)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("nudge", ["one-sided", "centered", "richardson", "tangent"])
def test_what_autograd_saves_does_not_depend_on_the_number_of_sweeps(name, nudge):
    build, x, y = SUBJECTS[name]
    few = saved_by(EqProp(nudge=nudge, sweeps=(2, 2)), build(), x, y)
    many = saved_by(EqProp(nudge=nudge, sweeps=(40, 40)), build(), x, y)
    assert few == many


@pytest.mark.parametrize("nudge", ["one-sided", "centered", "richardson", "holomorphic(4)", "tangent"])
def test_the_layered_network_uses_no_reverse_mode_at_all(nudge):
    assert saved_by(EqProp(nudge=nudge), EnergyMLP([6, 32, 32, 3]), X, Y) == (0, 0)


def test_backprop_through_time_does_save_every_sweep():
    _, x, y = SUBJECTS["mlp"]
    few = saved_by(EqProp(nudge="bptt", sweeps=(2, 1)), EnergyMLP([6, 32, 32, 3]), x, y)
    many = saved_by(EqProp(nudge="bptt", sweeps=(40, 1)), EnergyMLP([6, 32, 32, 3]), x, y)
    assert many[0] > 10 * few[0]


def test_no_tensor_of_the_free_state_carries_a_graph():
    model = EnergyMLP([6, 8, 8, 3])
    seen = []

    class Watched(EnergyMLP):
        def relax(self, clamped, state, **options):
            solution = super().relax(clamped, state, **options)
            seen.extend(solution.value)
            return solution

    model.__class__ = Watched
    loss = EqProp().backward(model, X, Y)
    assert seen and not any(s.requires_grad for s in seen) and not loss.requires_grad


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_parameter_gets_a_gradient_and_calls_add_up(name):
    build, x, y = SUBJECTS[name]
    model = build()
    rule = EqProp(sweeps=(6, 4))
    loss = rule.backward(model, x, y)
    first = [p.grad.clone() for p in model.parameters()]
    assert loss.dim() == 0 and all(g.abs().max() > 0 for g in first)
    rule.backward(model, x, y)
    for parameter, gradient in zip(model.parameters(), first, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_any_optimiser_can_use_the_gradients():
    for make in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop):
        model = EnergyMLP([6, 16, 3], seed=0)
        optimiser = make(model.parameters(), lr=0.01)
        losses = []
        for _ in range(20):
            optimiser.zero_grad()
            losses.append(float(EqProp().backward(model, X, Y)))
            optimiser.step()
        assert losses[-1] < losses[0]


def test_frozen_parameters_are_left_alone():
    model = LoopedMLP(6, 8, 3)
    model.input.requires_grad_(False)
    EqProp().backward(model, X, Y)
    assert model.input.weight.grad is None and model.loop.weight.grad is not None
    layered = EnergyMLP([6, 8, 8, 3])
    layered.layers[0].requires_grad_(False)
    EqProp().backward(layered, X, Y)
    assert layered.layers[0].weight.grad is None and layered.layers[1].weight.grad is not None


def test_the_last_step_tells_how_both_phases_ended():
    rule = EqProp(sweeps=(3, 2))
    assert rule.last is None
    rule.backward(EnergyMLP([6, 8, 8, 3], gamma=1.0), X, Y)
    assert rule.last.free.steps == 3 and rule.last.nudged.steps == 2
    assert rule.last.status is Status.TRUNCATED and rule.last.residual > 0
    assert rule.last.free.value == ()  # no tensor is kept alive


def test_a_rule_made_from_another_has_a_memory_of_its_own():
    rule = EqProp()
    rule.backward(EnergyMLP([6, 8, 3]), X, Y)
    other = replace(rule, beta=0.2)
    assert other.last is None and rule.last is not None and rule == EqProp()


def test_with_a_tolerance_the_sweeps_are_upper_limits():
    rule = EqProp(sweeps=(200, 200), tolerance=1e-4)
    rule.backward(EnergyMLP([6, 8, 8, 3]), X, Y)
    assert rule.last.status is Status.CONVERGED and rule.last.free.steps < 50


def test_an_unreachable_tolerance_is_recorded_as_unconverged():
    rule = EqProp(sweeps=(2, 2), tolerance=1e-7)
    rule.backward(EnergyMLP([6, 8, 8, 3], gamma=1.0), X, Y)
    assert rule.last.status is Status.UNCONVERGED


def test_divergence_is_an_error_unless_asked_to_be_recorded():
    model = EnergyMLP([6, 8, 8, 3], activation="identity", gamma=1.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(100)
    with pytest.raises(Diverged, match="free relaxation diverged"):
        EqProp(sweeps=(60, 10)).backward(model, X, Y)
    rule = EqProp(sweeps=(60, 10), on_divergence="record")
    rule.backward(model, X, Y)
    assert rule.last.status is Status.DIVERGED


@pytest.mark.parametrize(("settings", "words"), [
    ({"beta": 0.0}, "tangent"), ({"beta": float("nan")}, "beta"), ({"beta": 2.0}, "beta"),
    ({"nudge": "centred"}, "centered"),
    ({"sweeps": (0, 3)}, "sweeps"), ({"sweeps": (3,)}, "sweeps"), ({"on_divergence": "ignore"}, "on_divergence"),
    ({"tolerance": -1.0}, "tolerance"),
])
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        EqProp(**settings)


@pytest.mark.parametrize(("y", "words"), [
    (Y.float(), "int64"), (Y[:5], "one target per row"), (Y + 1, "class indices from 0 to 2"), (Y - 1, "class indices"),
])
def test_bad_targets_are_refused(y, words):
    for nudge in ("centered", "bptt"):
        with pytest.raises(InputError, match=words):
            EqProp(nudge=nudge).backward(EnergyMLP([6, 8, 3]), X, y)


def test_a_model_without_an_energy_is_refused():
    with pytest.raises(InputError, match="equilibrium model"):
        EqProp().backward(nn.Linear(6, 3), X, Y)


def test_a_complex_nudge_of_a_clipped_network_is_refused():
    with pytest.raises(InputError, match="no complex extension"):
        EqProp(nudge="holomorphic(4)").backward(EnergyMLP([6, 8, 8, 3], activation="clipped"), X, Y)


def test_a_call_leaves_mode_and_generator_as_they_were():
    model = EnergyMLP([6, 8, 8, 3]).eval()
    before = torch.get_rng_state()
    EqProp().backward(model, X, Y)
    assert not model.training and torch.equal(torch.get_rng_state(), before) and torch.is_grad_enabled()


def test_nothing_python_side_grows_with_the_number_of_calls():
    model, rule = EnergyMLP([6, 8, 8, 3]), EqProp(sweeps=(3, 2))
    for _ in range(5):
        rule.backward(model, X, Y)
    tracemalloc.start()
    for _ in range(50):
        rule.backward(model, X, Y)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 100_000


def test_backprop_accepts_a_loss_and_token_shapes():
    model = nn.Sequential(nn.Embedding(3, 8), nn.Linear(8, 3))
    loss = Backprop().backward(model, TOKENS, TOKENS)
    assert loss.dim() == 0 and model[1].weight.grad is not None
    with pytest.raises(InputError, match="logits of shape"):
        Backprop().backward(model, TOKENS, TOKENS[:, :2])
    squared = Backprop(loss=lambda logits, y: (logits - y.unsqueeze(1)).square().mean())
    assert squared.backward(nn.Linear(6, 1), X, Y) > 0
