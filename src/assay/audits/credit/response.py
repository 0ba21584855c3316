"""Does the loss answer to the signal? Perturbation correlation and nudging, with both controls beside each value.

rho: the correlation, over random directions v, of what the signal a predicts, <a, eps v>, with what happens, L(h +
eps v) - L(h). Nudging: the change of the loss when the stream moves against the signal. Steps are relative to the
size of the stream, eps |h_l|, so rescaling the stream changes nothing. The true gradient must score near 1 and lower
the loss, a random signal must not: if they are not told apart, nothing is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.audits.credit.stream import Stream, in_precision, lengths, sample_losses
from assay.probe.blocks import Blocks
from assay.probe.stream import tapped
from assay.seeding import torch_generator

DIRECTIONS = 32
STEP = 1e-3
"""Relative step: its second-order term is about 1e-3 of the first, its float64 rounding about 1e-13 of the loss."""
SAMPLES = 16


@dataclass(frozen=True)
class DepthResponse:
    """One depth; each pair of numbers is rho and the relative change of the loss under a nudge."""

    rho: float | None
    nudge: float | None
    true_rho: float
    true_nudge: float
    random_rho: float
    random_nudge: float
    samples: int
    features: int

    @property
    def separated(self) -> bool:
        """True when the true gradient and a random signal are told apart by both measures.

        A random signal has a cosine of standard deviation 1 / sqrt(d) with the gradient, and a correlation over M
        directions adds 1 / sqrt(M - 1); four standard deviations of their mean over the samples bound chance.
        """
        band = 4 * math.sqrt((1 / self.features + 1 / (DIRECTIONS - 1)) / self.samples)
        falls = self.true_nudge < min(0.0, self.random_nudge)
        return self.true_rho > 0.9 and abs(self.random_rho) < band and falls


def measure_response(
    model: nn.Module,
    x: Tensor,
    *,
    y: Tensor,
    blocks: Blocks,
    truth: Stream,
    signals: Sequence[Tensor | None],
    seed: int,
) -> tuple[DepthResponse, ...]:
    """The response of the loss at each depth to a rule's signals, to the true gradient and to a random signal."""
    twin, inputs = in_precision(model, x, torch.float64)
    chosen = slice(0, min(SAMPLES, len(y)))
    inputs, targets = inputs[chosen], y[chosen]
    results = []
    for depth, signal in enumerate(signals):
        generator = torch_generator(seed, "response", depth)
        gradient, h = truth.gradients[depth][chosen], truth.values[depth][chosen]
        noise = torch.randn(gradient.shape, generator=generator, dtype=torch.float64).to(gradient.device)
        candidates = [gradient, noise, *([] if signal is None else [signal[chosen]])]
        directions = torch.randn((DIRECTIONS, *h.shape), generator=generator, dtype=torch.float64).to(h.device)
        steps = torch.cat([directions, *(-c[None] for c in candidates)])
        steps = STEP * lengths(h)[None, :, None] * steps / torch.linalg.vector_norm(steps, dim=2, keepdim=True)
        losses = _losses_at(
            twin, inputs, y=targets, blocks=blocks, depth=depth, offsets=torch.cat([torch.zeros_like(h)[None], steps])
        )
        change = losses[1:] - losses[0]
        relative = change[DIRECTIONS:] / losses[0].clamp_min(torch.finfo(torch.float64).tiny)
        rhos = [_correlation((steps[:DIRECTIONS] * c).sum(2), change[:DIRECTIONS]) for c in candidates]
        nudges = [float(row.mean()) for row in relative]
        results.append(
            DepthResponse(
                rho=rhos[2] if signal is not None else None,
                nudge=nudges[2] if signal is not None else None,
                true_rho=rhos[0],
                true_nudge=nudges[0],
                random_rho=rhos[1],
                random_nudge=nudges[1],
                samples=len(targets),
                features=h.shape[1],
            )
        )
    return tuple(results)


@torch.no_grad()
def _losses_at(model: nn.Module, x: Tensor, *, y: Tensor, blocks: Blocks, depth: int, offsets: Tensor) -> Tensor:
    """The loss of every sample for every offset added to h_depth; offsets (moves, samples, features)."""
    moves, samples = offsets.shape[:2]

    def visit(level: int, h: Tensor) -> Tensor | None:
        if level != depth:
            return None
        axis = blocks.batch_axis
        moved = offsets.reshape(h.movedim(axis, 0).shape).movedim(0, axis)
        if blocks.link == "direct":
            return h + moved
        return h.add_(moved)  # the caller keeps its own reference for the skip: it must see the change too

    with torch.random.fork_rng(devices=[]), tapped(model, blocks, visit):
        logits = model(x.repeat(moves, *[1] * (x.dim() - 1)))
    return sample_losses(logits, y.repeat(moves, *[1] * (y.dim() - 1))).view(moves, samples)


def _correlation(predicted: Tensor, happened: Tensor) -> float:
    """Pearson's correlation over directions (first axis), averaged over the samples where both vary."""
    a, b = predicted - predicted.mean(0), happened - happened.mean(0)
    sizes = torch.linalg.vector_norm(a, dim=0) * torch.linalg.vector_norm(b, dim=0)
    values = ((a * b).sum(0) / sizes)[sizes > 0]
    return float(values.mean()) if len(values) else math.nan
