"""The exchange of a weight for its feedback matrix holds in every place a user's model may put that weight."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import assay
from assay.protocols import Split
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import SUBJECTS, backprop, batch, gradients


class Checkpointed(nn.Module):
    """A chain whose middle is run a second time during the backward pass."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)
        self.middle = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.last(checkpoint(self.middle, h, use_reentrant=False) if self.again else self.middle(h))


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_a_checkpointed_model_gets_the_same_gradient(kind: str) -> None:
    plain, again = Checkpointed(False), Checkpointed(True)
    again.load_state_dict(plain.state_dict())
    found = []
    for model in (plain, again):
        rule = FeedbackAlignment(model, kind=kind, seed=2)
        rule.backward(model, *batch("plain mlp"))
        assert rule.coverage.complete and len(rule.coverage.used) == 3
        found.append(gradients(model))
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", ["resmlp", "transformer", "resnet"])
def test_a_step_under_autocast_sends_the_same_error_in_less_precision(name: str, kind: str) -> None:
    """bfloat16 may flip a few ReLUs; what is sent must still be far nearer to this feedback than to another one's."""
    model, (x, y) = SUBJECTS[name]().eval(), batch(name)

    def stem(seed: int, low: bool) -> Tensor:
        rule = FeedbackAlignment(model, kind=kind, seed=seed)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            rule.backward(model, x, y)
        assert rule.coverage.complete
        return next(value for value in gradients(model).values() if value.ndim > 1)

    wanted, found, other = stem(1, False), stem(1, True), stem(2, False)
    assert float((found - wanted).norm()) < 0.25 * float((found - other).norm())


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_activations_may_work_in_place(kind: str) -> None:
    def build(inplace: bool) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace), nn.Conv2d(4, 4, 3), nn.ReLU(inplace), nn.Flatten(),
                             nn.Linear(64, 5), nn.ReLU(inplace), nn.Linear(5, 4))

    apart, inside = build(False), build(True)
    inside.load_state_dict(apart.state_dict())
    x, y = batch("resnet")
    found = []
    for model in (apart, inside):
        FeedbackAlignment(model, kind=kind, seed=4).backward(model, x, y)
        found.append(gradients(model))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_a_convolution_sends_its_error_through_its_kernel_of_feedback() -> None:
    """By hand: the stem learns from the input gradient of a convolution with B, not with W."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 2, 3, stride=2, bias=False), nn.Flatten(),
                          nn.Linear(8, 4)).double()
    x, y = torch.randn(5, 3, 8, 8, dtype=torch.float64), torch.randint(4, (5,))
    rule = FeedbackAlignment(model, seed=3)
    rule.backward(model, x, y)
    state = rule.state_dict()
    middle = model[0](x).detach()
    error = (torch.softmax(model(x), 1) - nn.functional.one_hot(y, 4)).detach() / 5
    above = (error @ state["3.weight"]).reshape(model[1](middle).shape)
    sent = nn.grad.conv2d_input(middle.shape, state["1.weight"], above, stride=2)
    wanted = nn.grad.conv2d_weight(x, model[0].weight.shape, sent)
    torch.testing.assert_close(gradients(model)["0.weight"], wanted)


def test_a_weight_in_channels_last_order_is_exact_with_itself() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.LazyLinear(4))
    x, y = batch("resnet")
    model(x)
    model = model.double().to(memory_format=torch.channels_last)
    x = x.double()
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    found = gradients(model)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-14)
    rule = FeedbackAlignment(model, seed=1)
    rule.backward(model, x, y)
    contiguous = model.to(memory_format=torch.contiguous_format)
    last = gradients(model)["0.weight"]
    rule.backward(contiguous, x, y)
    torch.testing.assert_close(last, gradients(contiguous)["0.weight"], rtol=1e-12, atol=1e-14)


class Tied(nn.Module):
    """The output weight is the table the tokens are looked up in."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.hidden = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.linear(torch.tanh(self.hidden(self.table(tokens).mean(1))), self.table.weight)


def test_kolen_pollack_takes_the_whole_gradient_of_a_tied_weight() -> None:
    """Looked up below and multiplied above: both parts move the weight, so both must move its matrix."""
    model = Tied()
    x, y = torch.randint(7, (6, 3)), torch.randint(7, (6,))
    rule = FeedbackAlignment(model, feedback="kolen-pollack")
    rule.backward(model, x, y)
    for name in ("table.weight", "hidden.weight"):
        assert torch.equal(rule.matrices.tensors[name].grad, model.get_parameter(name).grad)


def test_kolen_pollack_adds_to_gradients_already_there_and_leaves_a_frozen_pair_alone() -> None:
    model, (x, y) = SUBJECTS["plain mlp"](), batch("plain mlp")
    model[4].weight.requires_grad_(False)
    rule = FeedbackAlignment(model, feedback="kolen-pollack")
    rule.backward(model, x, y)
    once = model[2].weight.grad.clone()
    rule.backward(model, x, y)
    matrices = rule.matrices.tensors
    torch.testing.assert_close(model[2].weight.grad, 2 * once)
    torch.testing.assert_close(matrices["2.weight"].grad, 2 * once)
    assert matrices["4.weight"].grad is None and model[4].weight.grad is None


def test_train_moves_kolen_pollack_feedback_along_with_the_weights() -> None:
    """Equal steps, clipped together: W - B shrinks by (1 - lr * decay) per step, as the formula says."""
    task = assay.tasks.digits(seed=0)
    small = replace(task, train=Split(task.train.x[:160], task.train.y[:160]))
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    rule = FeedbackAlignment(model, feedback="kolen-pollack", seed=1)

    def distance() -> float:
        return float((model[2].weight - rule.matrices.tensors["2.weight"]).detach().norm())

    assert len(list(rule.parameters())) == 2
    start = distance()
    assay.train(model, small, rule, epochs=2, seed=0, batch_size=16, schedule="constant", clip_norm=0.5,
                optimiser=lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=5.0), test=False)
    assert distance() == pytest.approx(start * 0.95**20, rel=1e-3)
