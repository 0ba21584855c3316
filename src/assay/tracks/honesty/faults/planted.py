"""The form of a planted fault: the same experiment twice, once as the misleading habit has it, once done right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError

if TYPE_CHECKING:
    from numpy.random import Generator

REFUSED = "REFUSED"
"""Not a verdict: the library raised a clear error before there was one."""


class Judged(Protocol):
    """A Decision or a Finding: whatever has a verdict and a reason."""

    @property
    def verdict(self) -> str: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class PlantedJudgement:
    """What the library said of the planted data, and whether the habit it replaces would have accepted them."""

    verdict: str
    reason: str
    habit_accepts: bool


@dataclass(frozen=True)
class Planted:
    """A fault with its healthy twin. ``run(generator, faulty)`` draws data and lets the library judge them.

    The fault counts as caught only if the verdict is ``caught_as`` and the reason contains ``because``: rejected for
    the right reason. It also has to deceive the habit, or nothing was planted. The twin must come out as PASS.
    """

    name: str
    habit: str
    caught_as: str
    because: str
    run: Callable[[Generator, bool], PlantedJudgement]

    def told(self, judgement: PlantedJudgement, *, faulty: bool) -> bool:
        """Whether the library told this subject for what it is."""
        if not faulty:
            return judgement.verdict == "PASS"
        return judgement.habit_accepts and judgement.verdict == self.caught_as and self.because in judgement.reason


def judge(call: Callable[[], Judged], *, habit_accepts: bool) -> PlantedJudgement:
    """The library's judgement; a clear error of its own counts as REFUSED, any other error is a bug and propagates."""
    try:
        judged = call()
    except AssayError as error:
        return PlantedJudgement(REFUSED, str(error), habit_accepts)
    return PlantedJudgement(str(judged.verdict), judged.reason, habit_accepts)
