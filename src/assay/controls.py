"""Controls: arms whose answer is known beforehand, and which arms of the claim they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ControlArm:
    """An arm whose answer is known beforehand, run like any other and judged by the decision of the claim.

    ``instead_of`` maps arms of the claim to the control arms that take their place; the track then decides as if those
    had been measured. A known-good control must not come out as FAIL, a known-bad one must. With ``because`` it must be
    rejected for the right reason: FAIL, or INCONCLUSIVE where a guard stops it first, with one of these texts in the
    reason. Made by ``known_good`` and ``known_bad``.
    """

    name: str
    kind: Literal["known-good", "known-bad"]
    instead_of: Mapping[str, str]
    because: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """The control arms that are run."""
        return tuple(dict.fromkeys(self.instead_of.values()))

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, in place of {', '.join(self.instead_of)})"


def known_good(arm: str, instead_of: str | Mapping[str, str]) -> ControlArm:
    """A control that must be accepted, run in place of an arm of the claim (or of several: claim arm to control arm).

    >>> known_good("control: backprop again", "eqprop").instead_of
    {'eqprop': 'control: backprop again'}
    """
    return ControlArm(arm, "known-good", _swap(arm, instead_of))


def known_bad(arm: str, instead_of: str | Mapping[str, str], *, because: str | Sequence[str] = ()) -> ControlArm:
    """A control that must be rejected; otherwise as ``known_good``.

    >>> known_bad("control: shuffled labels", "eqprop", because="not above chance").kind
    'known-bad'
    """
    reasons = (because,) if isinstance(because, str) else tuple(because)
    return ControlArm(arm, "known-bad", _swap(arm, instead_of), reasons)


def _swap(arm: str, instead_of: str | Mapping[str, str]) -> dict[str, str]:
    return {instead_of: arm} if isinstance(instead_of, str) else dict(instead_of)
