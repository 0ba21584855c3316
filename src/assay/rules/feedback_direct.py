"""Direct feedback: the error at the output, sent by one random matrix straight to any tensor inside the model.

The map is one per position when the model answers per position (a language model), otherwise from the whole answer of a
sample to the whole tensor of that sample. Inside attention the batch is not always the leading axis, so the layout of
each layer's input is measured once: change one sample and see where the input changes.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from assay.rules.feedback_matrices import Matrices

Layout = Literal["batch first", "batch second", "batch-major rows", "token-major rows"]


def direct_signal(matrices: Matrices, name: str, error: Tensor, like: Tensor, layout: Layout = "batch first") -> Tensor:
    """B e in the shape of ``like``; B ~ N(0, 1/rows) keeps the length of the error."""
    if layout == "batch first" and 2 < error.ndim == like.ndim and error.shape[:-1] == like.shape[:-1]:
        return error @ _matrix(matrices, name, like.shape[-1], error.shape[-1], like).T
    samples = len(error)
    flat = error.flatten(1)
    signal = flat @ _matrix(matrices, name, like.numel() // samples, flat.shape[1], like).T
    if layout in ("batch first", "batch-major rows"):
        return signal.reshape(like.shape)
    rest = like.shape[2:] if layout == "batch second" else like.shape[1:]
    return signal.reshape(samples, -1, *rest).transpose(0, 1).reshape(like.shape)


def find_layout(before: Tensor, after: Tensor, samples: int) -> Layout | None:
    """Where sample 0 of a batch of ``samples`` lives, given the tensor before and after that sample was changed."""
    if before.shape != after.shape or not before.ndim:
        return None
    changed = before != after
    candidates: list[tuple[Layout, Tensor]] = []
    if before.shape[0] == samples:
        candidates.append(("batch first", changed[1:]))
    if before.ndim > 2 and before.shape[1] == samples:
        candidates.append(("batch second", changed[:, 1:]))
    if before.shape[0] % samples == 0:
        tokens = before.shape[0] // samples
        candidates.append(("batch-major rows", changed[tokens:]))
        candidates.append(("token-major rows", changed.reshape(tokens, samples, -1)[:, 1:]))
    return next((layout for layout, elsewhere in candidates if not bool(elsewhere.any())), None)


def other_first_sample(x: Tensor) -> Tensor | None:
    """``x`` with its first sample replaced by a different one of the batch, or None if all are the same."""
    different = (x != x[:1]).flatten(1).any(1).nonzero()
    if not len(different):
        return None
    changed = x.clone()
    changed[0] = x[int(different[0])]
    return changed


def _matrix(matrices: Matrices, name: str, rows: int, columns: int, like: Tensor) -> Tensor:
    return matrices.draw(name, (rows, columns), scale=rows**-0.5, like=like)
