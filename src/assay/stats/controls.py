"""Control arms, judged by the decision of the claim they guard: their cells were run, their outcome is computed."""

from __future__ import annotations

from typing import Any

from assay.errors import FOREIGN
from assay.protocols import ControlArm, Outcomes
from assay.results import Control, Verdict

SHOWN = 200
"""Characters of a reason kept in a control's line."""


def control_arms(body: Any) -> tuple[str, ...]:
    """The arms of a track that are controls, also of one that names them as text."""
    arms = [control.arms if isinstance(control, ControlArm) else (str(control),) for control in body.controls]
    return tuple(dict.fromkeys(arm for group in arms for arm in group))


def judged_controls(body: Any, outcomes: Outcomes) -> tuple[Control, ...]:
    """Every control of a track as it came out; one that is a name alone, or that did not run, was not told apart."""
    return tuple(_judged(body, control, outcomes) for control in body.controls if isinstance(control, ControlArm))


def _judged(body: Any, control: ControlArm, outcomes: Outcomes) -> Control:
    wanted = _wanted(control)
    missing = [arm for arm in control.arms if not outcomes.arm(arm)]
    if missing:
        return _control(control, wanted, f"not run: no record of {', '.join(missing)}", False)
    try:
        found = getattr(body, "judge", body.decide)(outcomes.with_control(control))
        verdict, reason = Verdict(found.verdict), str(found.reason)
    except FOREIGN as error:
        return _control(control, wanted, f"ERROR: no decision: {type(error).__name__}: {error}"[:SHOWN], False)
    if control.kind == "known-good":
        told = verdict not in (Verdict.FAIL, Verdict.ERROR)
    else:
        right = any(text in reason for text in control.because)
        rejected = (Verdict.FAIL, Verdict.INCONCLUSIVE) if control.because else (Verdict.FAIL,)
        told = verdict in rejected and (right or not control.because)
    return _control(control, wanted, _short(f"{verdict}: {reason}"), told)


def _wanted(control: ControlArm) -> str:
    if control.kind == "known-good":
        return "not FAIL"
    return f"rejected: {' or '.join(control.because)}" if control.because else "FAIL"


def _control(control: ControlArm, wanted: str, observed: str, separated: bool) -> Control:
    name = control.name.removeprefix("control: ")
    return Control(name=name, kind=control.kind, expected=wanted, observed=observed, separated=separated)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
