"""The stream of a model and the exact gradient of each sample's loss at every depth, in float64.

The reference gradient is computed without cancellation. For cross-entropy dL/dlogits = softmax - onehot, and at the
target class that is p_y - 1: when the model is sure, 1 - p_y is rounded to 0 even in float64. Here it is the sum of the
other probabilities, which keeps all its digits until exp itself underflows (a margin of about 745).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from assay.audits.explained import explained
from assay.errors import expected
from assay.probe.blocks import Blocks
from assay.probe.stream import tapped

Part = Literal["whole", "read"]


@dataclass(frozen=True)
class Stream:
    """h_0 ... h_L and the gradient of each sample's own loss there, flattened to (samples, features)."""

    values: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    losses: Tensor
    outputs: tuple[Tensor, ...] = ()
    """What each block hands on, where that is not what the next one reads (a plain layer lies between stages)."""

    @property
    def ends(self) -> tuple[Tensor, ...]:
        """h behind each block."""
        return self.outputs or self.values[1:]

    @property
    def depth(self) -> int:
        """The number of blocks: one less than the number of values."""
        return len(self.values) - 1


def exact_stream(model: nn.Module, x: Tensor, y: Tensor, blocks: Blocks, *, part: Part = "whole") -> Stream:
    """The stream of a float64 copy of ``model`` with gradients free of cancellation.

    ``part="read"`` keeps of it what a classifier reads: the first token of a sequence (or, where the answer does not
    depend on it, the last one it does depend on), the mean over the pixels of a picture; its gradient there is that
    token's, or the sum over pixels.
    """
    precise, inputs = in_precision(model, x, torch.float64)
    walked = _forward(precise, inputs, blocks)
    losses = exact_losses(walked.logits, y)
    return _differentiate(
        walked, walked.logits, signal=error_signal(walked.logits.detach(), y), losses=losses, blocks=blocks, part=part
    )


def plain_stream(model: nn.Module, x: Tensor, y: Tensor, blocks: Blocks) -> Stream:
    """The stream and gradients as usually computed: the model's own precision, autograd through cross-entropy."""
    twin, inputs = in_precision(model, x, None)
    walked = _forward(twin, inputs, blocks)
    losses = sample_losses(walked.logits, y)
    return _differentiate(walked, losses.sum(), signal=None, losses=losses, blocks=blocks, part="whole")


def error_signal(logits: Tensor, y: Tensor) -> Tensor:
    """dL/dlogits of each sample's (or position's) cross-entropy, 1 - p_y taken as the sum of the others.

    Of float targets: that of the squared error, averaged over the numbers of a sample.
    """
    if y.is_floating_point():
        return 2 * (logits - y.view_as(logits)) / logits[0].numel()
    probabilities = torch.softmax(logits, dim=-1)
    index = y.unsqueeze(-1)
    others = probabilities.scatter(-1, index, 0.0)
    return others.scatter(-1, index, -others.sum(-1, keepdim=True))


def exact_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Each sample's cross-entropy as softplus(log sum of the others - target logit): tiny losses keep their digits."""
    if y.is_floating_point():
        return sample_losses(logits, y)
    _check_shapes(logits, y)
    index = y.unsqueeze(-1)
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1)
    margins = logits.gather(-1, index).squeeze(-1) - others
    # log1p(exp(-m)) loses nothing for large margins; for negative ones -m + log1p(exp(m)) does not overflow.
    losses = torch.log1p(torch.exp(-margins.abs())) + (-margins).clamp_min(0)
    return losses.view(len(y), -1).sum(1)


def sample_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each sample, summed over positions if there are any; shape (samples,).

    Of float targets: the squared error, averaged over the numbers of a sample.
    """
    _check_shapes(logits, y)
    if y.is_floating_point():
        return (logits - y.view_as(logits)).square().flatten(1).mean(1)
    losses = nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none")
    return losses.view(len(y), -1).sum(1)


def _check_shapes(logits: Tensor, y: Tensor) -> None:
    if y.is_floating_point():
        if logits.numel() != y.numel() or len(logits) != len(y):
            raise expected(f"outputs of shape {tuple(y.shape)} for these targets", given=tuple(logits.shape))
        return
    if logits.shape[:-1] != y.shape:
        raise expected(
            f"logits of shape ({', '.join(map(str, y.shape))}, classes) for these targets", given=tuple(logits.shape)
        )
    if int(y.min()) < 0 or int(y.max()) >= logits.shape[-1]:
        raise expected(f"targets from 0 to {logits.shape[-1] - 1}", given=f"{int(y.min())} to {int(y.max())}")


def in_precision(model: nn.Module, x: Tensor, dtype: torch.dtype | None) -> tuple[nn.Module, Tensor]:
    """A copy of the model in evaluation mode, without gradients or hooks on its parameters, and its input."""
    twin = copy.deepcopy(model).eval()
    for parameter in twin.parameters():
        parameter.grad = None
    if dtype is None:
        return twin, x.detach()
    return twin.to(dtype), x.detach().to(dtype) if x.is_floating_point() else x.detach()


def by_sample(h: Tensor, blocks: Blocks) -> Tensor:
    """A tensor of the stream as (samples, features)."""
    return h.detach().movedim(blocks.batch_axis, 0).flatten(1)


def lengths(rows: Tensor) -> Tensor:
    """The norm of each row."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def exact_cosines(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of each pair of rows in float64 without a clamp; NaN where a row is zero."""
    first, second = a.double(), b.double()
    # Scaled first: the product of two norms of 1e-200 would underflow.
    first = first / first.abs().amax(1, keepdim=True)
    second = second / second.abs().amax(1, keepdim=True)
    return (first * second).sum(1) / (lengths(first) * lengths(second))


class _StreamWalk(NamedTuple):
    values: list[Tensor]
    outputs: list[Tensor]
    logits: Tensor


def _forward(model: nn.Module, x: Tensor, blocks: Blocks) -> _StreamWalk:
    values: list[Tensor] = []
    outputs: list[Tensor] = []

    def visit(depth: int, h: Tensor) -> None:
        values.append(h if h.requires_grad else h.requires_grad_())

    def leave(depth: int, h: Tensor) -> None:
        outputs.append(h.detach().clone())  # the next layer may work in place

    taps = tapped(model, blocks, visit, leave=leave if blocks.broken else None)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), taps, explained(x):
        logits = model(x)
    if not isinstance(logits, Tensor):
        raise expected("a model that returns a tensor of logits", given=type(logits).__name__)
    return _StreamWalk(values, outputs, logits)


def _differentiate(
    walk: _StreamWalk, output: Tensor, *, signal: Tensor | None, losses: Tensor, blocks: Blocks, part: Part
) -> Stream:
    gradients = torch.autograd.grad(output, walk.values, signal, allow_unused=True)
    whole = [torch.zeros_like(h) if g is None else g for g, h in zip(gradients, walk.values, strict=True)]
    token = _token_read(whole[-1], blocks)
    return Stream(
        tuple(by_sample(_part(h, part, blocks, token), blocks) for h in walk.values),
        tuple(by_sample(_part(g, part, blocks, token, gradient=True), blocks) for g in whole),
        losses.detach(),
        tuple(by_sample(_part(h, part, blocks, token), blocks) for h in walk.outputs),
    )


def _token_read(deepest: Tensor, blocks: Blocks) -> int:
    """The token behind the last block that the answer is read from: a causal model often answers at its last one."""
    if deepest.ndim != 3:
        return 0
    arrives = deepest.movedim(1 - blocks.batch_axis, 0).flatten(1).any(1)
    return 0 if bool(arrives[0]) or not bool(arrives.any()) else int(arrives.nonzero()[-1])


def _part(h: Tensor, part: Part, blocks: Blocks, token: int, *, gradient: bool = False) -> Tensor:
    if part == "whole" or h.ndim < 3:
        return h
    if h.ndim == 3:
        return h.narrow(1 - blocks.batch_axis, token, 1)
    return h.flatten(2).sum(2) if gradient else h.flatten(2).mean(2)
