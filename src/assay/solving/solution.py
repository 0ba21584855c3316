"""What a relaxation came to: the state, how it ended, and how far it still moved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from assay.protocols import State


class Diverged(AssayError):
    """A relaxation left the finite numbers or moved away from its fixed point; carries the solution."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution


class Status(StrEnum):
    """How a relaxation ended. A status is a value; only the caller decides whether it is an error."""

    CONVERGED = "converged"
    """The last sweep moved no unit by more than the tolerance."""
    TRUNCATED = "truncated"
    """Ran the fixed number of sweeps asked for and was still moving; the residual says by how much."""
    UNCONVERGED = "unconverged"
    """A tolerance was asked for and not reached within the sweeps allowed."""
    DIVERGED = "diverged"
    """Infinite or NaN, or still moving at least as much as it did at first."""


@dataclass(frozen=True)
class Solution:
    """The end of a relaxation: ``value`` (one tensor per layer), ``status``, ``residuals`` and ``steps``.

    A residual is the largest change of any unit during one sweep. With fixed sweeps only the last sweep is measured
    (one number); with a tolerance or ``trace=True`` every sweep is. A small residual shows that the iteration came to
    rest, not that the fixed point is unique.
    """

    value: State
    status: Status
    residuals: tuple[float, ...]
    steps: int
    by_layer: tuple[float, ...] = ()
    """The last residual of each layer, where the solver kept it; ``residual`` is the largest."""

    @property
    def residual(self) -> float:
        """The change made by the last sweep; infinite when nothing was measured."""
        return self.residuals[-1] if self.residuals else math.inf

    @property
    def converged(self) -> bool:
        """True for CONVERGED alone."""
        return self.status is Status.CONVERGED

    def summary(self) -> Solution:
        """The same outcome without the tensors, safe to keep for every batch."""
        return replace(self, value=())

    def raise_if_diverged(self, what: str) -> Solution:
        """This solution, or a Diverged error that says what to change."""
        if self.status is Status.DIVERGED:
            raise Diverged(
                f"the {what} relaxation diverged: residual {self.residual:.3g} after {self.steps} sweeps; "
                "use a smaller gamma or beta, spectral normalisation, or a lower learning rate", self
            )
        return self
