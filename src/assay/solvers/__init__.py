"""Fixed points: how a state relaxes, how the outcome is reported, and an independent reference to judge it by."""

from __future__ import annotations

from assay.solvers.solution import Solution, Status

__all__ = ["Solution", "Status"]
