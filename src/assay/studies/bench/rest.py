"""Whether the relaxations behind a row of the benchmark were at rest, and what the row shows if they were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESTING, TRUE = 1e-3, 0.99
"""At rest: the last sweep moved nothing by more than this, and the gradient had at least this cosine with the truth."""
FAR = 0.1
"""A last sweep that moves a unit by this much is far from rest (``rules.health`` warns at the same place)."""
WEAK = 0.05
"""Feedback at most this strong carries credit much as backprop does: parity there is no surprise."""


@dataclass(frozen=True)
class ArmRest:
    """How far from rest an arm was: its largest residual and smallest cosine, over its whole training and all seeds.

    >>> ArmRest(0.25, (60, 60), 9e-4, 0.9999).words, ArmRest(0.25, (4, 3), 0.4, 0.68).words
    ('at rest', 'far from rest')
    """

    gamma: float | None
    sweeps: tuple[int, ...]
    residual: float | None
    cosine: float | None

    @property
    def words(self) -> str:
        """Whether the arm was at rest, in two or three words."""
        if self.residual is None or self.cosine is None:
            return "not known"
        if self.residual < RESTING and self.cosine >= TRUE:
            return "at rest"
        return "far from rest" if self.residual >= FAR or self.cosine < TRUE else "near rest"

    @property
    def described(self) -> str:
        """The settings and the end of the relaxations, for a line of a report."""
        gamma = "its own feedback" if self.gamma is None else f"gamma {self.gamma:g}"
        sweeps = "/".join(map(str, self.sweeps)) or "unknown"
        residual = "unknown" if self.residual is None else f"{self.residual:.2g}"
        cosine = "unknown" if self.cosine is None else f"{self.cosine:.4f}"
        return f"{gamma}, {sweeps} sweeps, residual {residual}, cosine with the true gradient {cosine}"

    @property
    def limitation(self) -> str | None:
        """What the row does not show; None for an arm at rest with strong feedback."""
        weak = self.gamma is not None and self.gamma <= WEAK
        backprop = "; feedback this weak approaches backprop" if weak else ""
        if self.words == "at rest":
            return f"at rest, yet feedback this weak approaches backprop ({self.described})" if weak else None
        shows = ": this row shows little about equilibria" if self.words == "far from rest" else ""
        return f"{self.words} ({self.described}){shows}{backprop}"


def rest_of(records: Mapping[int, Mapping[str, Any]]) -> ArmRest | None:
    """The rest of an arm from its records; None for a rule that does not relax."""
    found = [record for record in records.values() if record.get("residual") is not None]
    if not found:
        return None
    cosines = [float(r[key]) for r in found for key in ("gradient_agreement", "least_agreement")
               if r.get(key) is not None]
    sweeps: Sequence[int] = found[0].get("sweeps") or ()
    residual = max(float(record["residual"]) for record in found)
    return ArmRest(found[0].get("gamma"), tuple(sweeps), residual, min(cosines, default=None))
