"""Errors of a user's model in the user's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from assay.errors import AssayError, expected


@contextmanager
def explained(x: Tensor) -> Iterator[None]:
    """Turns an error of the model's forward pass into one that names the input."""
    try:
        yield
    except AssayError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        first = str(error).strip().split("\n")[0]
        raise expected(
            "an input the model accepts", given=f"x of shape {tuple(x.shape)}, {x.dtype}", do=f"the model said: {first}"
        ) from error
