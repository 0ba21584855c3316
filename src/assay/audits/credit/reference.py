"""Is the gradient a rule is compared with a real one, or rounding noise, or merely small in the units of the stream?

Three different questions. The published D2 asks the third (|dL/dh| < 1e-7 of the batch-mean loss), which changes when
the stream is rescaled or the batch enlarged although the function computed stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.credit.stream import Stream, exact_cosines, lengths

AGREES = 0.99
"""A sample has a reference when the gradient as usually computed points where the exact one does, to this cosine."""
MOST_NOISE = 0.1
"""The share of samples without a reference up to which a mean cosine may be read: it can be off by about this much, the
size of the alignments reported for feedback rules."""
CLAMP = 1e-8
"""The eps of torch's cosine_similarity, which divides by max(|g|, eps)."""


@dataclass(frozen=True)
class ReferenceSizes:
    """Per depth: raw size of the batch-mean gradient (mean over samples), its gauge-invariant size |g| |h| / loss
    (median), the share of samples whose gradient in the model's own precision is noise, and what the clamped cosine of
    the exact gradient with itself would read."""

    raw: tuple[float, ...]
    invariant: tuple[float, ...]
    noise: tuple[float, ...]
    clamped_self_cosine: tuple[float, ...]

    @property
    def valid(self) -> bool:
        """True when few enough samples lack a reference, at every depth."""
        return all(share <= MOST_NOISE for share in self.noise)

    @property
    def clamp_corrupts(self) -> bool:
        """True when a cosine with the usual clamp would read less than 0.99 for a vector and itself."""
        return any(value < AGREES for value in self.clamped_self_cosine)


def measure_reference(exact: Stream, plain: Stream) -> ReferenceSizes:
    """The reference of a model, from its exact stream and the one in its own precision."""
    samples = len(exact.losses)
    loss = exact.losses.clamp_min(torch.finfo(torch.float64).tiny)
    return ReferenceSizes(
        raw=tuple(float(lengths(g).mean()) / samples for g in exact.gradients),
        invariant=tuple(
            float((lengths(g) * lengths(h) / loss).median()) for g, h in zip(exact.gradients, exact.values, strict=True)
        ),
        noise=tuple(_noise(a, b) for a, b in zip(exact.gradients, plain.gradients, strict=True)),
        clamped_self_cosine=tuple(_clamped_self_cosine(g / samples) for g in exact.gradients),
    )


def clamped_cosine(a: Tensor, b: Tensor) -> float:
    """The mean cosine as ``torch.nn.functional.cosine_similarity`` gives it in float32: the published measure."""
    return float(torch.nn.functional.cosine_similarity(a.float(), b.float(), dim=1, eps=CLAMP).mean())


def _clamped_self_cosine(a: Tensor) -> float:
    # Written out: cosine_similarity clamps each norm in some releases and the product of both in others.
    return float(((a * a).sum(1) / lengths(a).clamp_min(CLAMP) ** 2).mean())


def _noise(exact: Tensor, plain: Tensor) -> float:
    """The share of samples with an exact gradient whose usual one is zero, not finite, or points elsewhere."""
    real = lengths(exact) > 0
    if not bool(real.any()):
        return 1.0
    agreement = exact_cosines(exact[real], plain[real].double())
    return 1.0 - float((agreement >= AGREES).double().mean())
