"""EnergyNet: any feed-forward network trains by EP, and its gradient is that of the loss for every kind of link."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.subjects import random_networks
from tests.subjects.residual_blocks import PostActivation, PreActivation
from torch import nn

from assay import tasks
from assay.audits.equilibrium.gradient import audit_gradient
from assay.errors import InputError
from assay.learning import train
from assay.models import EnergyMLP, EnergyNet
from assay.networks.energy_net.links import _PLAIN, Link
from assay.results import Verdict
from assay.rules import Backprop, Centered, EqProp, Holomorphic, OneSided
from assay.seeding import torch_generator

GENERATOR = torch_generator(0, "energy-net")
Y = torch.randint(0, 4, (6,), generator=GENERATOR)
AT_REST = {"sweeps": (300, 300), "tolerance": 1e-13}


def drawn(net, seed=0):
    """The network in float64 with weights of its own stream."""
    generator = torch_generator(seed, "weights")
    with torch.no_grad():
        for parameter in net.parameters():
            bound = 1.5 * parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return net.double()


def batch(*shape, seed=0):
    return torch.randn(6, *shape, generator=torch_generator(seed, "x"), dtype=torch.float64)


def gradient(model, rule, x, y):
    model.zero_grad()
    rule.backward(model, x, y)
    return {name: p.grad.double().clone() for name, p in model.named_parameters() if p.grad is not None}


def slope_of_the_loss(model, x, y, direction, step=1e-4):
    """A four-point difference of the loss at rest along a direction: free sweeps alone, no derivative of any kind."""
    def loss(length):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter.add_(direction[name], alpha=length)
            state = twin.relax(twin.clamp(x), None, sweeps=200, tolerance=1e-13).value
            return float(twin.row_losses(twin.logits(state), y).mean())

    return (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)


def check(model, x, y, rule, limit=1e-6, *, kinked=False):
    found = gradient(model, rule, x, y)
    assert set(found) == {name for name, _ in model.named_parameters()}, "every parameter is reached"
    norm = sum(float(g.square().sum()) for g in found.values()) ** 0.5
    noise = torch_generator(1, "direction")
    for _ in range(2):
        direction = {n: g / norm + torch.randn(g.shape, generator=noise, dtype=g.dtype) / g.numel() ** 0.5 / 3
                     for n, g in found.items()}
        along = sum(float((found[n] * d).sum()) for n, d in direction.items())
        slope = slope_of_the_loss(model, x, y, direction)
        if kinked:  # where another step finds another slope, a winner changes in between and a difference says nothing
            assume(abs(slope_of_the_loss(model, x, y, direction, step=2e-5) - slope) < limit * norm)
        assert abs(slope - along) < limit * norm


LINKS = {
    "linear": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 4)), (5,)),
    "conv1d": lambda: (nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.AvgPool1d(2), nn.Conv1d(3, 3, 2), nn.Tanh(),
                                     nn.Flatten(), nn.Linear(6, 4)), (2, 8)),
    "conv2d": lambda: (nn.Sequential(nn.Conv2d(1, 3, 3, stride=2), nn.Tanh(), nn.Conv2d(3, 3, 2, bias=False), nn.Tanh(),
                                     nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)), (1, 7, 7)),
    "conv3d": lambda: (nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Conv3d(2, 2, 2), nn.Tanh(), nn.Flatten(),
                                     nn.Linear(2, 4)), (1, 3, 3, 3)),
    "layer norm": lambda: (nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 6), nn.LayerNorm(6),
                                         nn.Softplus(), nn.LayerNorm(6), nn.Linear(6, 4)), (5,)),
    "pre-activation residual": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh(), PreActivation(6), PreActivation(6),
                                                      nn.Linear(6, 4)), (5,)),
    "opaque module": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.GELU(),
                                            nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4)), (5,)),
}
KINKED = {
    "relu": lambda: (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(0.1), nn.Linear(8, 8),
                                   nn.Hardtanh(), nn.Linear(8, 4)), (5,)),
    "elu": lambda: (nn.Sequential(nn.Linear(5, 6), nn.ELU(), nn.Linear(6, 6), nn.ReLU6(), nn.Linear(6, 4)), (5,)),
    "max pooling": lambda: (nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Sigmoid(), nn.MaxPool2d(2),
                                          nn.Conv2d(3, 3, 3, padding=1), nn.MaxPool2d(2), nn.Sigmoid(), nn.Flatten(),
                                          nn.Linear(12, 4)), (1, 8, 8)),
    "residual": lambda: (nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(),
                                       PostActivation(4, nn.GroupNorm(2, 4), nn.ReLU()), nn.AvgPool2d(4), nn.Flatten(),
                                       nn.Linear(16, 4)), (1, 8, 8)),
}


@pytest.mark.parametrize("name", [*LINKS, *KINKED])
def test_the_tangent_is_the_slope_of_the_loss_for_every_link(name):
    net, shape = (LINKS | KINKED)[name]()
    check(EnergyNet(drawn(net), gamma=0.05), batch(*shape), Y, EqProp("tangent", **AT_REST))


@pytest.mark.parametrize("name", ["linear", "conv2d", "pre-activation residual"])
def test_a_finite_nudge_is_too_to_its_order(name):
    net, shape = LINKS[name]()
    model = EnergyNet(drawn(net), gamma=0.05)
    check(model, batch(*shape), Y, EqProp(OneSided(1e-6), **AT_REST), limit=1e-5)
    if name != "pre-activation residual":  # a layer norm has no complex form
        check(model, batch(*shape), Y, EqProp(Holomorphic(6, beta=0.1), **AT_REST))


EVERY_LINK = [(dims, name) for dims in range(4) for name in random_networks.links(dims, 4)]


@pytest.mark.parametrize(("dims", "name"), EVERY_LINK, ids=[f"{name} {dims}d" for dims, name in EVERY_LINK])
def test_every_link_in_every_dimension_agrees_with_finite_differences(dims, name):
    net, shape = random_networks.around(dims, name)
    model = EnergyNet(drawn(net), gamma=0.05).eval()
    check(model, batch(*shape), Y, EqProp("tangent", **AT_REST))


def test_no_link_that_counts_as_linear_is_left_out():
    reached = {type(part) for dims, name in EVERY_LINK for part in random_networks.around(dims, name)[0].modules()}
    known = {kind for kind in _PLAIN if not kind.__name__.startswith("_")}
    assert known - reached == set()


def test_the_difference_notices_a_link_whose_curvature_is_forgotten(monkeypatch):
    net, shape = random_networks.around(2, "own")
    monkeypatch.setattr(Link, "curvature", lambda self, below, *_, **__: tuple(torch.zeros_like(s) for s in below))
    with pytest.raises(AssertionError):
        check(EnergyNet(drawn(net), gamma=0.05).eval(), batch(*shape), Y, EqProp("tangent", **AT_REST))


def check_random(found, seed, gamma):
    net, shape = found
    model = EnergyNet(drawn(net, seed), gamma=gamma).eval()
    kinked = any(isinstance(part, nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d) for part in net)
    # A norm of one value repeated multiplies a signal three hundredfold: such a net has no rest to speak of.
    assume(model.relax(model.clamp(batch(*shape, seed=seed)), None, sweeps=200, tolerance=1e-13).converged)
    check(model, batch(*shape, seed=seed), Y, EqProp("tangent", **AT_REST), kinked=kinked)


DRAWS = (random_networks.networks(), st.integers(0, 1000), st.sampled_from([0.01, 0.05]))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(*DRAWS)
def test_random_networks_agree_with_finite_differences(found, seed, gamma):
    check_random(found, seed, gamma)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(*DRAWS)
def test_many_random_networks_do_too(found, seed, gamma):
    check_random(found, seed, gamma)


def test_the_gradient_audit_passes_a_users_network_and_rejects_a_wrong_one():
    net, shape = LINKS["pre-activation residual"]()
    model, x = EnergyNet(drawn(net), gamma=0.1), batch(*shape)
    assert audit_gradient(model, x, Y, rule=EqProp("tangent", **AT_REST), limit=1e-6).verdict is Verdict.PASS

    class Deaf(EnergyNet):
        """Feeds nothing back to the gradient of its first link: a planted mistake."""

        def _add_changes(self, clamped, free, *, moved, **rest):
            silent = (torch.zeros_like(moved[0]), *moved[1:])
            super()._add_changes(clamped, free, moved=silent, **rest)

    deaf = Deaf(drawn(LINKS["linear"]()[0]), gamma=0.1)
    finding = audit_gradient(deaf, batch(5), Y, rule=EqProp("tangent", **AT_REST), limit=1e-6)
    assert finding.verdict is Verdict.FAIL and "net.0" in finding.reason


def test_a_plain_network_is_the_layered_model_in_both_coordinates():
    layered = EnergyMLP([5, 8, 8, 4], gamma=0.2, seed=0).double()
    general = EnergyNet(copy.deepcopy(nn.Sequential(
        layered.layers[0], nn.Tanh(), layered.layers[1], nn.Tanh(), layered.layers[2])), gamma=0.2)
    x = batch(5)
    for coordinates in ("deviations", "states"):
        rule = EqProp(Centered(0.3), sweeps=(4, 3), coordinates=coordinates)
        ours, theirs = (list(gradient(m, rule, x, Y).values()) for m in (general, layered))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


class Untidy(nn.Module):
    """What people write: in-place sums and products, functional pooling, one layer used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.twice = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.last = nn.Linear(12, 4)

    def forward(self, x):
        h = nn.functional.softplus(torch.tanh(self.first(x)))
        z = self.twice(torch.sigmoid(self.twice(h)))
        z += h
        z = z.mul_(0.5)
        return self.last(torch.flatten(nn.functional.avg_pool2d(torch.tanh(z), 4), 1))


class FromInput(nn.Module):
    """Links that read the clamped input beside units: in a sum, in a norm of it, and side by side."""

    def __init__(self):
        super().__init__()
        self.first, self.skip, self.last = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(6, 4)
        self.second, self.third, self.norm = nn.Linear(6, 5), nn.Linear(10, 6), nn.LayerNorm(5)

    def forward(self, x):
        h = torch.tanh(torch.tanh(self.first(x)) + self.skip(x))
        z = torch.tanh(self.norm(x + self.second(h)))
        return self.last(torch.sigmoid(self.third(torch.cat([z, x], 1))))


SHARED = nn.Linear(6, 6)
UNTIDY = {
    "skips from the input": lambda: (FromInput(), (5,)),
    "in-place code": lambda: (Untidy(), (1, 8, 8)),
    "in-place modules": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.SiLU(inplace=True), nn.Linear(6, 6),
                                               nn.LeakyReLU(0.1, inplace=True), nn.Linear(6, 4)), (5,)),
    "shared layer": lambda: (nn.Sequential(nn.Linear(5, 6), nn.Tanh(), SHARED, nn.Tanh(), SHARED, nn.Tanh(),
                                           nn.Linear(6, 4)), (5,)),
    "nested": lambda: (nn.Sequential(nn.Sequential(nn.Linear(5, 6), nn.Tanh()), nn.Sequential(nn.Sequential(
        nn.Linear(6, 6), nn.Sigmoid())), nn.Linear(6, 4)), (5,)),
    "transposed convolution": lambda: (nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.Tanh(), nn.ConvTranspose2d(2, 2, 3, stride=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(50, 4)), (1, 4, 4)),
    "attention": lambda: (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True), nn.Tanh(), nn.Flatten(), nn.Linear(24, 4)), (3, 5)),
    "weight norm": lambda: (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.Tanh(),
                                          nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4)), (5,)),
}


@pytest.mark.parametrize("name", UNTIDY)
def test_what_people_write_is_exact_too_and_its_states_are_not_written_into(name):
    net, shape = UNTIDY[name]()
    model = EnergyNet(drawn(net), gamma=0.05)
    check(model, batch(*shape), Y, EqProp("tangent", **AT_REST))
    truth = gradient(model, EqProp("tangent", **AT_REST), batch(*shape), Y)
    ours = gradient(model, EqProp(OneSided(1e-6), **AT_REST), batch(*shape), Y)
    for parameter, g in truth.items():
        assert (ours[parameter] - g).norm() < 1e-4 * g.norm() + 1e-12


def test_a_link_is_computed_once_at_the_same_states():
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.Hardtanh(0, 1),
                        nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    calls = []
    for layer in (net[0], net[3]):
        layer.register_forward_hook(lambda layer, *_: calls.append(layer))
    EqProp(sweeps=(3, 1)).backward(EnergyNet(net, gamma=0.05), torch.rand(6, 1, 8, 8), Y)
    # The first layer hears the input once; the second the start and each free sweep, and nothing else asks for more.
    assert [calls.count(net[0]), calls.count(net[3])] == [1, 4]


@pytest.mark.parametrize("what", ["a state", "a weight"])
def test_what_is_written_into_between_two_relaxations_is_noticed(what):
    model = EnergyNet(drawn(LINKS["layer norm"]()[0]), gamma=0.05)
    with torch.no_grad():
        clamped = model.clamp(batch(5))
        state = model.relax(clamped, None, sweeps=2).value
        (state[0] if what == "a state" else model.net[3].weight).mul_(1.5)
        again = model.relax(clamped, state, sweeps=1).value
        fresh = model.relax(model.clamp(batch(5)), tuple(units.clone() for units in state), sweeps=1).value
    assert all(torch.equal(a, b) for a, b in zip(again, fresh, strict=True))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.last(nn.functional.dropout(torch.tanh(self.first(x)), 0.5, training=self.training))


@pytest.mark.parametrize(("net", "shape"), [
    (Dropping(), (5,)),
    (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(),
                   nn.Linear(24, 4)), (3, 5)),
], ids=["call", "inside a module"])
def test_dropout_that_cannot_keep_its_mask_is_refused_in_training_and_harmless_outside(net, shape):
    with pytest.raises(InputError, match="dropout"):
        EqProp().backward(EnergyNet(copy.deepcopy(net).double()), batch(*shape), Y)
    EqProp(sweeps=(3, 3)).backward(EnergyNet(copy.deepcopy(net).double().eval()).eval(), batch(*shape), Y)


def test_inputs_of_another_precision_are_refused():
    with pytest.raises(InputError, match="precision"):
        EqProp().backward(EnergyNet(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))), batch(5), Y)


def test_regression_takes_real_targets_and_is_exact():
    model = EnergyNet(drawn(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))), gamma=0.2, loss="mse")
    y = batch(2, seed=3)
    check(model, batch(5), y, EqProp("tangent", **AT_REST))
    check(model, batch(5), y, EqProp(Holomorphic(8, beta=0.1), **AT_REST))
    with pytest.raises(InputError, match="floating-point targets"):
        EqProp().backward(model, batch(5), Y)


def test_a_copy_and_a_saved_model_have_links_of_their_own(tmp_path):
    model, x = EnergyNet(drawn(LINKS["linear"]()[0]), gamma=0.2), batch(5)
    torch.save(model, tmp_path / "model.pt")
    for twin in (copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)):
        before = model(x)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert torch.equal(model(x), before) and not bool(twin(x).any())


def test_tokens_enter_through_an_embedding():
    net = nn.Sequential(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(18, 6), nn.Tanh(), nn.Linear(6, 4))
    tokens = torch.randint(0, 7, (6, 3), generator=torch_generator(0, "tokens"))
    check(EnergyNet(drawn(net), gamma=0.2), tokens, Y, EqProp("tangent", **AT_REST))


def test_dropout_keeps_one_mask_for_all_phases_of_a_batch():
    net = drawn(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 8), nn.Tanh(),
                              nn.Linear(8, 4)))
    model, x = EnergyNet(net, gamma=0.1).train(), batch(5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tangent = gradient(model, EqProp("tangent", **AT_REST), x, Y)
        torch.manual_seed(0)
        centered = gradient(model, EqProp(Centered(1e-3), **AT_REST), x, Y)
        other = gradient(model, EqProp("tangent", **AT_REST), x, Y)
    for name, g in tangent.items():
        torch.testing.assert_close(centered[name], g, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(other["net.0.weight"], tangent["net.0.weight"])


def test_batch_normalisation_in_training_is_exact_and_moves_its_statistics_once():
    net = drawn(nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6),
                              nn.Tanh(), nn.Linear(6, 4)))
    model, x = EnergyNet(net, gamma=0.1).train(), batch(5)
    through_time = gradient(copy.deepcopy(model), EqProp("bptt", sweeps=(60, 1)), x, Y)
    for rule in (EqProp("tangent", **AT_REST), EqProp(Centered(1e-3), **AT_REST)):
        ours = gradient(model, rule, x, Y)
        for name, g in through_time.items():
            torch.testing.assert_close(ours[name], g, rtol=1e-4, atol=1e-7)
    assert int(net[1].num_batches_tracked) == int(net[4].num_batches_tracked) == 2


@pytest.mark.parametrize(("net", "words"), [
    (nn.Sequential(nn.Linear(5, 4)), "activations"), (nn.Linear(5, 4), "lone Linear"),
    (nn.Sequential(nn.Tanh()), "classes"), ("net", "torch.nn.Module"),
    (nn.Sequential(nn.LSTM(5, 6), nn.Tanh(), nn.Linear(6, 4)), "recurrent"),
])
def test_what_has_no_units_is_refused(net, words):
    with pytest.raises(InputError, match=words):
        EnergyNet(net)


def test_a_norm_has_no_complex_form_and_says_so():
    net, shape = LINKS["layer norm"]()
    with pytest.raises(InputError, match="complex"):
        EqProp(Holomorphic(4)).backward(EnergyNet(drawn(net)), batch(*shape), Y)


def user_network():
    """Convolution, norm, pooling and a residual: what the documentation shows."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
        PostActivation(16, nn.GroupNorm(4, 16), nn.ReLU()), nn.Flatten(), nn.Linear(256, 10),
    )


def test_a_users_network_learns_digits_by_ep():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = EnergyNet(user_network(), gamma=0.03)
    result = train(model, tasks.digits(seed=0), EqProp(sweeps=(1, 1)), epochs=1, seed=0)
    assert result.test_accuracy > 0.8


@pytest.mark.slow
def test_a_users_network_trained_by_ep_is_within_a_point_of_backprop():
    gaps = []
    for seed in range(3):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            net = user_network()
        plain, task = copy.deepcopy(net), tasks.digits(seed=seed)
        ours = train(EnergyNet(net, gamma=0.03), task, EqProp(sweeps=(2, 2)), epochs=8, seed=seed)
        theirs = train(plain, task, Backprop(), epochs=8, seed=seed)
        gaps.append(theirs.test_accuracy - ours.test_accuracy)
    assert sum(gaps) / len(gaps) < 0.01
