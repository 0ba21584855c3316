"""Direct feedback: the error at the output, sent by one random matrix straight to any tensor inside the model.

The map is one per position when the model answers per position (a language model), otherwise from the whole answer of a
sample to the whole tensor of that sample. Inside attention the batch is not always the leading axis, so the layout of
each layer's input is measured once: change one sample and see where the input changes.
"""

from __future__ import annotations

from torch import Tensor

from assay.probe.samples import Layout
from assay.rules.feedback.matrices import Matrices


def direct_signal(
    matrices: Matrices, name: str, error: Tensor, like: Tensor, *, layout: Layout = "batch first"
) -> Tensor:
    """B e in the shape of ``like``; B ~ N(0, 1/rows) keeps the length of the error."""
    error = error.to(like.dtype)  # the input of a complex weight takes a complex signal
    if layout == "batch first" and 2 < error.ndim == like.ndim and error.shape[:-1] == like.shape[:-1]:
        return error @ _matrix(matrices, name, like.shape[-1], columns=error.shape[-1], like=like).T
    samples = len(error)
    flat = error.flatten(1)
    signal = flat @ _matrix(matrices, name, like.numel() // samples, columns=flat.shape[1], like=like).T
    if layout in ("batch first", "batch-major rows"):
        return signal.reshape(like.shape)
    rest = like.shape[2:] if layout == "batch second" else like.shape[1:]
    return signal.reshape(samples, -1, *rest).transpose(0, 1).reshape(like.shape)


def _matrix(matrices: Matrices, name: str, rows: int, *, columns: int, like: Tensor) -> Tensor:
    return matrices.draw(name, (rows, columns), scale=rows**-0.5, like=like)
