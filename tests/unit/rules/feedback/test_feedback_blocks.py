"""Block feedback reads a stream without a past where it may, and what it computes is the same to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.probe.blocks import discover_blocks
from assay.probe.stream import can_cut
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import SUBJECTS, batch, gradients


class Block(nn.Module):
    """A residual block that may recompute its inside; reentrant recomputing hides the weights from autograd."""

    def __init__(self, *, hide: bool, drop: float = 0.0) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(drop), nn.BatchNorm1d(8))
        self.hide = hide

    def forward(self, h: Tensor) -> Tensor:
        return h + (checkpoint(self.inside, h, use_reentrant=True) if self.hide else self.inside(h))


def net(*, hide: bool, drop: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), *(Block(hide=hide, drop=drop) for _ in range(3)), nn.Linear(8, 4))


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_cut_stream_gives_the_same_gradient_to_the_bit(name: str, kind: str, penalty: float) -> None:
    model, (x, y) = SUBJECTS[name](), batch(name)
    rule = FeedbackAlignment(model, level="block", kind=kind, penalty=penalty)
    rule.backward(model, x, y)
    found, rule._block.cut = (gradients(model), rule._block.cut), False
    rule.backward(model, x, y)
    whole = gradients(model)
    assert found[1] and found[0].keys() == whole.keys()
    assert all(torch.equal(found[0][key], whole[key]) for key in whole)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # the model's own, under no_grad
def test_weights_hidden_by_reentrant_checkpointing_still_learn() -> None:
    """Planted: cut off from their past these blocks would receive no gradient at all."""
    x, y = torch.randn(5, 6), torch.arange(5) % 4
    plain, hidden = net(hide=False), net(hide=True)
    hidden.load_state_dict(plain.state_dict())
    found = []
    for model in (plain, hidden):
        rule = FeedbackAlignment(model, level="block", seed=3)
        rule.backward(model, x, y)
        found.append((rule._block.cut, gradients(model)))
    (cut, wanted), (cut_hidden, received) = found
    assert (cut, cut_hidden) == (True, False)
    assert received.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(received[key], value)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_a_block_frozen_between_steps_passes_the_signal_on(kind: str) -> None:
    """Planted: a frozen block on a cut stream has no gradient to ask for, so nothing below it would be told."""
    model, x, y = net(hide=False), torch.randn(5, 6), torch.arange(5) % 4
    rule = FeedbackAlignment(model, level="block", kind=kind)
    rule.backward(model, x, y)
    wanted = gradients(model)
    model[2].requires_grad_(False)
    rule.backward(model, x, y)
    found = gradients(model)
    assert not rule._block.cut and wanted.keys() - found.keys() == {k for k in wanted if k.startswith("2.")}
    for key, value in found.items():
        torch.testing.assert_close(value, wanted[key])


def test_asking_whether_a_stream_may_be_cut_leaves_no_trace() -> None:
    model, x = net(hide=False, drop=0.5), torch.randn(5, 6)
    blocks = discover_blocks(model, x)
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.random.get_rng_state()
    assert can_cut(model, x, blocks)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters()) and not any(m._forward_pre_hooks for m in model.modules())
