"""Every rule carries a proof in a case whose answer is known; the same proof rejects the rule with one planted mistake.

``proofs`` are functions of a rule class. Tolerances: float64 throughout; where a limit is approached (a nudge of size
beta, a step of size c) the error allowed is the leading order of that size, and the audit's own trend does the rest.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from assay.audits.equilibrium.gradient import audit_gradient
from assay.results import Verdict
from assay.rules import (
    Backprop,
    DualPropagation,
    ForwardForward,
    ForwardGradient,
    LocalHeads,
    NodePerturbation,
    Pepita,
    PredictiveCoding,
    TargetPropagation,
    WeightPerturbation,
)
from assay.rules.backprop import mean_loss
from assay.seeding import torch_generator
from assay.solving.tangent import load_forward_mode

ROUNDING = 1e-9
DRAWS = 400

load_forward_mode()  # torch's forward mode warns once, on loading


def chain(*widths: int, activation: type[nn.Module] | None = nn.Tanh, seed: int = 0) -> nn.Sequential:
    generator = torch_generator(seed, "chain")
    modules: list[nn.Module] = []
    for below, above in pairwise(widths):
        layer = nn.Linear(below, above).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / below**0.5)
        modules += [layer, *([activation()] if activation else [])]
    return nn.Sequential(*(modules[:-1] if activation else modules))


def batch(inputs: int, classes: int, rows: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch_generator(seed, "batch")
    return (torch.randn(rows, inputs, generator=generator, dtype=torch.float64),
            torch.randint(classes, (rows,), generator=generator))


def gradients(rule, model, x, y):
    model.zero_grad(set_to_none=True)
    rule.backward(model, x, y)
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def largest_error(ours, true):
    return max(float((ours[name] - true[name]).norm() / true[name].norm()) for name in true)


# Predictive coding ---------------------------------------------------------------------------------------------------

NET, (X, Y) = chain(6, 8, 8, 4), batch(6, 4)


def coding_at_rest_is_the_gradient(rule, form):
    """As beta vanishes, the equilibrium gives the gradient; the audit follows the error down."""
    used = rule(form=form, beta=0.01, steps=3000, tolerance=1e-12)
    return audit_gradient(NET, X, Y, rule=used).verdict is Verdict.PASS


class LossNotWeighted(PredictiveCoding):
    """Forgets beta in the energy and divides by it all the same."""

    def energy(self, layers, states, y, errors=None):
        return super().energy(layers, states, y, errors) + (1 - self.beta) * len(y) * self._loss(
            layers[-1](states[-1]), y)


class LayerNotInferred(PredictiveCoding):
    """Leaves the first layer where the feed-forward pass put it."""

    def infer(self, layers, below, y):
        return [below[1], *super().infer(layers, below, y)[1:]]


@pytest.mark.parametrize("form", ["states", "errors"])
def test_predictive_coding_at_rest_gives_the_gradient_as_the_nudge_vanishes(form):
    assert coding_at_rest_is_the_gradient(PredictiveCoding, form)


@pytest.mark.parametrize("bug", [LossNotWeighted, LayerNotInferred])
def test_that_proof_rejects_predictive_coding_with_a_mistake(bug):
    assert not coding_at_rest_is_the_gradient(bug, "errors")


def test_with_the_whole_loss_predictive_coding_is_not_the_gradient_but_tends_to_it():
    finding = audit_gradient(NET, X, Y, rule=PredictiveCoding("errors", steps=200))
    assert finding.verdict is Verdict.FAIL
    assert next(c for c in finding.checks if "vanishes" in c.name).verdict is Verdict.PASS


def test_both_forms_have_one_equilibrium():
    states, errors = (gradients(PredictiveCoding(form, steps=3000, tolerance=1e-13), NET, X, Y)
                      for form in ("states", "errors"))
    assert largest_error(states, errors) < ROUNDING


def fixed_predictions_are_backprop(rule):
    return largest_error(gradients(rule, NET, X, Y), gradients(Backprop(), NET, X, Y)) < ROUNDING


def test_fixed_predictions_are_backprop_in_as_many_steps_as_hidden_layers():
    assert fixed_predictions_are_backprop(PredictiveCoding("fixed"))
    assert audit_gradient(NET, X, Y, rule="pc-fixed").verdict is Verdict.PASS


@pytest.mark.parametrize("wrong", [{"steps": 1}, {"rate": 0.5}])
def test_that_proof_rejects_inference_that_was_cut_short(wrong):
    assert not fixed_predictions_are_backprop(PredictiveCoding("fixed", **wrong))


def test_few_steps_at_a_small_rate_are_backprop_scaled_by_layer():
    """Layer l of L, k = L - l below the output: binomial(steps, k) rate^k of backprop's error, to leading order."""
    steps, rate = 5, 1e-4
    ours = gradients(PredictiveCoding(steps=steps, rate=rate), NET, X, Y)
    true = gradients(Backprop(), NET, X, Y)
    for name, above in (("4.weight", 0), ("2.weight", 1), ("0.weight", 2)):
        scale = math.comb(steps, above) * rate**above
        assert float((ours[name] / scale - true[name]).norm() / true[name].norm()) < 10 * steps * rate


# Dual propagation ----------------------------------------------------------------------------------------------------


def dual_tends_to_the_gradient(rule):
    return audit_gradient(NET, X, Y, rule=rule(beta=0.05)).verdict is Verdict.PASS


class Swapped(DualPropagation):
    """Confuses which of the two activities the error pushes up."""

    def _down(self, layers, x, drives, top):
        means, differences = super()._down(layers, x, drives, top)
        return means, [*(-d for d in differences[:-1]), differences[-1]]


def test_dual_propagation_gives_the_gradient_as_the_nudge_vanishes():
    assert dual_tends_to_the_gradient(DualPropagation)


def test_that_proof_rejects_swapped_activities():
    assert not dual_tends_to_the_gradient(Swapped)


def test_a_large_nudge_is_not_the_gradient():
    assert audit_gradient(NET, X, Y, rule=DualPropagation(beta=20.0)).verdict is Verdict.FAIL


def test_symmetric_differences_have_an_error_of_second_order_and_one_sided_ones_of_first():
    true = gradients(Backprop(), NET, X, Y)

    def falls(alpha):
        errors = [largest_error(gradients(DualPropagation(beta, alpha), NET, X, Y), true) for beta in (0.2, 0.1)]
        return math.log2(errors[0] / errors[1])

    assert falls(0.5) == pytest.approx(2, abs=0.1) and falls(0.0) == pytest.approx(1, abs=0.1)


# Difference target propagation ---------------------------------------------------------------------------------------


def orthogonal_net():
    net = chain(6, 6, 6, 4, activation=None)
    for module in (net[0], net[1]):
        nn.init.orthogonal_(module.weight, generator=torch_generator(1, "orthogonal"))
    return net


def targets_through_transposes_are_backprop(rule):
    """Orthogonal weights: the inverse is the transpose, here with an offset that the difference must cancel."""
    net = orthogonal_net()
    inverse = [lambda h: h @ net[1].weight + 3.0]
    return audit_gradient(net, X, Y, rule=rule(net, inverses=inverse), limit=1e-6).verdict is Verdict.PASS


class NoDifference(TargetPropagation):
    """Target propagation without the difference: an imperfect inverse becomes a target."""

    def _below(self, inverse, target, above, below):
        return inverse(target)


def test_targets_through_exact_transposes_are_backprop():
    assert targets_through_transposes_are_backprop(TargetPropagation)


def test_that_proof_rejects_targets_without_the_difference():
    assert not targets_through_transposes_are_backprop(NoDifference)


def test_exact_inverses_give_the_gauss_newton_target_and_not_the_gradient():
    net = chain(6, 6, 6, 4, activation=None)
    inverse = torch.linalg.inv(net[1].weight.detach())
    ours = gradients(TargetPropagation(net, inverses=[lambda h: (h - net[1].bias) @ inverse.T]), net, X, Y)
    with torch.no_grad():
        hidden = net[1](net[0](X))
    leaf = hidden.clone().requires_grad_()
    (pull,) = torch.autograd.grad(mean_loss(net[2](leaf), Y), leaf)
    wanted = (pull @ inverse.T).T @ X
    torch.testing.assert_close(ours["0.weight"], wanted)
    assert largest_error(ours, gradients(Backprop(), net, X, Y)) > 0.1


def test_one_hidden_layer_needs_no_inverse_and_is_backprop():
    net = chain(6, 8, 4)
    assert audit_gradient(net, X, Y, rule="dtp").verdict is Verdict.PASS


def test_learned_inverses_do_not_give_the_gradient_and_get_better_at_inverting():
    net = chain(6, 8, 8, 4)
    assert audit_gradient(net, X, Y, rule="dtp").verdict is Verdict.FAIL
    rule = TargetPropagation(net)
    inverses = list(rule.parameters())
    optimiser = torch.optim.Adam(inverses, lr=0.01)
    with torch.no_grad():
        below = torch.tanh(net[0](X))
        above = torch.tanh(net[2](below))

    def wrong():
        with torch.no_grad():
            return float((torch.tanh(above @ inverses[0].T + inverses[1]) - below).square().mean())

    before = wrong()
    for _ in range(150):
        optimiser.zero_grad()
        rule.backward(net, X, Y)
        optimiser.step()
    assert wrong() < before / 2


# Forward-forward -----------------------------------------------------------------------------------------------------


def goodness_gradient_is_the_closed_form(rule):
    net = chain(6, 5, 4, activation=None)
    x = X.clone()
    ours = gradients(rule(net, threshold=0.3, seed=3), net, x, Y)["0.weight"]
    shift = torch.randint(1, 4, Y.shape, generator=torch_generator(3, "wrong labels", 1))
    total = torch.zeros_like(ours)
    for labels, sign in ((Y, 1.0), ((Y + shift) % 4, -1.0)):
        marked = x.clone()
        marked[:, :4] = nn.functional.one_hot(labels, 4).double()
        h = marked @ net[0].weight.detach().T + net[0].bias.detach()
        slope = torch.sigmoid(sign * (0.3 * 5 - h.square().sum(1)))
        total += -sign * 2 * (slope[:, None] * h).T @ marked / len(x)
    return float((ours - total).norm() / total.norm()) < ROUNDING


class OnlyPositive(ForwardForward):
    """Forgets the pass with wrong labels: everything becomes good."""

    def _told_apart(self, right, wrong):
        return super()._told_apart(right, torch.zeros_like(wrong))


def test_forward_forward_has_the_gradient_of_its_goodness():
    assert goodness_gradient_is_the_closed_form(ForwardForward)


def test_that_proof_rejects_learning_from_right_labels_alone():
    assert not goodness_gradient_is_the_closed_form(OnlyPositive)


def test_forward_forward_is_not_the_gradient_of_the_model():
    assert audit_gradient(NET, X, Y, rule="forward-forward").verdict is Verdict.FAIL


# PEPITA --------------------------------------------------------------------------------------------------------------


def modulation_through_the_right_matrix_is_backprop(rule):
    net = chain(6, 5, 4, activation=None)
    matrix = -torch.linalg.pinv(net[0].weight.detach()) @ net[1].weight.detach().T
    used = rule(net, feedback=matrix, strength=1e-6)
    return audit_gradient(net, X, Y, rule=used, limit=1e-4).verdict is Verdict.PASS


class Subtracted(Pepita):
    """Takes the modulation off the input instead of adding it."""

    def _matrix(self, x, error):
        return -super()._matrix(x, error)


def test_pepita_through_the_right_matrix_is_backprop():
    assert modulation_through_the_right_matrix_is_backprop(Pepita)


def test_that_proof_rejects_a_modulation_of_the_wrong_sign():
    assert not modulation_through_the_right_matrix_is_backprop(Subtracted)


def test_as_the_modulation_vanishes_the_error_arrives_through_the_forward_jacobian():
    rule = Pepita(NET, strength=1e-6, seed=2)
    ours = gradients(rule, NET, X, Y)
    with torch.no_grad():
        outputs = NET(X)
        error = outputs.softmax(1) - nn.functional.one_hot(Y, 4)
        _, moved = jvp(lambda x: NET[3](NET[2](NET[1](NET[0](x)))), (X,), (error @ rule.feedback.T,))
        wanted = -moved.T @ torch.tanh(NET[0](X)) / len(X)
    assert float((ours["2.weight"] - wanted).norm() / wanted.norm()) < 1e-4


def test_a_random_modulation_is_not_the_gradient():
    assert audit_gradient(NET, X, Y, rule="pepita").verdict is Verdict.FAIL


# Local heads ---------------------------------------------------------------------------------------------------------


def each_layer_follows_its_own_head(rule):
    used = rule(NET, seed=1)
    ours = gradients(used, NET, X, Y)
    h, true = X, {}
    for name, layer in (("0", NET[:2]), ("2", NET[2:4])):
        own = layer(h.detach())
        head = nn.functional.linear(own, used.heads[f"{name}.weight"], used.heads[f"{name}.bias"])
        true[f"{name}.weight"] = torch.autograd.grad(mean_loss(head, Y), layer[0].weight, retain_graph=True)[0]
        h = own
    return max(float((ours[name] - g).norm() / g.norm()) for name, g in true.items()) < ROUNDING


class Leaking(LocalHeads):
    """Lets the loss of the output reach the layers below as well."""

    def backward(self, model, x, y):
        loss = super().backward(model, x, y)
        Backprop().backward(model, x, y)
        return loss


def test_each_layer_follows_its_own_head_and_nothing_else():
    assert each_layer_follows_its_own_head(LocalHeads)


def test_that_proof_rejects_an_error_that_leaks_down():
    assert not each_layer_follows_its_own_head(Leaking)


def test_with_one_layer_local_heads_are_backprop_and_with_more_they_are_not():
    assert audit_gradient(chain(6, 4), X, Y, rule="local-heads").verdict is Verdict.PASS
    assert audit_gradient(NET, X, Y, rule="local-heads").verdict is Verdict.FAIL


# Perturbation and forward gradients ----------------------------------------------------------------------------------

SMALL, (SX, SY) = chain(3, 3, 2), batch(3, 2, rows=4)
RANDOM = {
    "weights": lambda: WeightPerturbation(sigma=1e-5),
    "nodes": lambda: NodePerturbation(sigma=1e-5),
    "forward": lambda: ForwardGradient(),
    "forward at drives": lambda: ForwardGradient(at="drives"),
}


def mean_is_the_gradient(rule):
    """No coordinate of the mean over many directions is farther from the gradient than chance allows (1e-4 over all).
    """
    true = torch.cat([g.flatten() for g in gradients(Backprop(), SMALL, SX, SY).values()])
    draws = torch.stack([torch.cat([g.flatten() for g in gradients(rule, SMALL, SX, SY).values()])
                         for _ in range(DRAWS)])
    z = (draws.mean(0) - true) / (draws.std(0) / math.sqrt(DRAWS))
    bound = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(1 - 0.5e-4 / len(true), dtype=torch.float64))
    return float(z.abs().max()) < float(bound)


@pytest.mark.parametrize("name", RANDOM)
def test_the_mean_over_directions_is_the_gradient(name):
    assert mean_is_the_gradient(RANDOM[name]())


@pytest.mark.parametrize("name", RANDOM)
def test_that_proof_rejects_noise_of_the_wrong_variance(name, monkeypatch):
    def uniform(like, generator):
        return 2 * torch.rand(like.shape, generator=generator, dtype=like.dtype) - 1

    monkeypatch.setattr("assay.rules.perturbation.drawn", uniform)
    monkeypatch.setattr("assay.rules.forward_gradient.drawn", uniform)
    assert not mean_is_the_gradient(RANDOM[name]())


def test_the_slope_of_a_forward_gradient_is_exact_along_its_direction():
    rule = ForwardGradient(seed=5)
    ours = gradients(rule, SMALL, SX, SY)
    true = gradients(Backprop(), SMALL, SX, SY)
    generator = torch_generator(5, "forward gradient", 1)
    direction = {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in SMALL.named_parameters()}
    slope = sum(float((true[n] * direction[n]).sum()) for n in true)
    values = {n: p.detach() for n, p in SMALL.named_parameters()}
    _, again = jvp(lambda p: mean_loss(functional_call(SMALL, p, (SX,)), SY), (values,), (direction,))
    assert slope == pytest.approx(float(again), rel=1e-9)
    for name, found in ours.items():
        torch.testing.assert_close(found, slope * direction[name])


def test_one_direction_fails_the_audit_and_many_come_near():
    assert audit_gradient(SMALL, SX, SY, rule=ForwardGradient()).verdict is Verdict.FAIL
    many = NodePerturbation(sigma=1e-4, samples=3000)
    assert audit_gradient(SMALL, SX, SY, rule=many, limit=0.3).verdict is Verdict.PASS
