"""From errors to one of six test verdicts, without a tuned constant.

For an exactly equivariant f the triangle inequality gives err_low(g, x) <= r(gx) + r(x) with r = |f_low - f_high|. A
model whose *float64* error exceeds that bound is broken: rounding of the low precision cannot explain it. Below the
bound, float64 tells rounding that vanishes (EXACT) from an error that stays (FLOAT-LIMITED).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from assay.audits.symmetry.measure.endtoend import Errors
from assay.audits.symmetry.measure.perturbed import BROKEN_BAND, ESTIMATE_SAFETY
from assay.results import Verdict

Label = Literal["EXACT", "FLOAT-LIMITED", "APPROXIMATE", "BROKEN", "UNTESTED", "VACUOUS"]

VERDICTS: dict[Label, Verdict] = {
    "EXACT": Verdict.PASS,
    "FLOAT-LIMITED": Verdict.PASS,
    "APPROXIMATE": Verdict.PASS,
    "BROKEN": Verdict.FAIL,
    "UNTESTED": Verdict.INCONCLUSIVE,
    "VACUOUS": Verdict.INCONCLUSIVE,
}


@dataclass(frozen=True)
class Judgement:
    """The test verdict of one output under one family of elements, and the numbers it rests on."""

    label: Label
    excess: float
    """Largest error divided by its bound: below 1 rounding explains it."""
    low_excess: float
    """Largest low-precision error divided by its bound; 0.6 to 0.95 for exact models."""
    high_over_low: float | None
    """rms float64 error / rms low-precision error: 2e-9 exact, 1 a real break, 0.01 to 0.5 a float32 leak."""
    worst: float
    """Largest relative error."""
    reason: str

    @property
    def verdict(self) -> Verdict:
        """The finding-level verdict of this test."""
        return VERDICTS[self.label]


def judge(errors: Errors, *, low_dtype: torch.dtype, budget: float | None = None) -> Judgement:
    """The verdict of one test; ``budget`` is the largest relative error a user declared acceptable."""
    worst = errors.worst
    if errors.not_finite:
        why = f"{errors.not_finite} outputs are NaN or infinite"
        return Judgement("BROKEN", math.inf, math.inf, None, math.inf, why)
    excess, low_excess = _ratio(errors.best, errors.floor), _ratio(errors.low, errors.floor)
    high_over_low = None if errors.high is None or errors.estimated else _rms_ratio(errors.high, errors.low)
    label, reason = _label(errors, excess, high_over_low=high_over_low, low_dtype=low_dtype, worst=worst, budget=budget)
    return Judgement(label, excess, low_excess, high_over_low, worst, reason)


def _label(
    errors: Errors,
    excess: float,
    *,
    high_over_low: float | None,
    low_dtype: torch.dtype,
    worst: float,
    budget: float | None,
) -> tuple[Label, str]:
    limit = ESTIMATE_SAFETY if errors.estimated else 1.0
    if excess > limit:
        kind = "an estimate of rounding" if errors.estimated else "what rounding can explain"
        kind = "what interpolation alone costs" if errors.interpolated else kind
        if budget is not None and worst <= budget:
            return "APPROXIMATE", f"relative error {worst:.2g} is within the declared budget {budget:g}"
        return "BROKEN", f"relative error {worst:.2g}, {excess:.2g} times {kind}{_jumps(errors)}"
    if errors.spread and worst > BROKEN_BAND:
        if budget is not None and worst <= budget:
            return "APPROXIMATE", f"relative error {worst:.2g} is within the declared budget {budget:g}"
        if errors.interpolated:
            costs = float(errors.scaled(errors.floor).max())
            return "UNTESTED", (
                f"relative error {worst:.2g}, and interpolation alone costs {costs:.2g}: this grid cannot tell. Take "
                "larger or smoother images, exact turns (C(4)), or declare budget="
            )
        # Rounding may explain it; it is still far too large to be called a symmetry.
        return "UNTESTED", (
            f"relative error {worst:.2g}, and rounding of {_short(low_dtype)} is as large: this precision cannot tell"
        )
    if errors.interpolated:
        return "APPROXIMATE", f"relative error {worst:.2g}, {excess:.2g} times what interpolation alone costs"
    if errors.estimated:
        return "FLOAT-LIMITED", f"error {excess:.2g} times an estimate of rounding; float64 is not available"
    assert errors.high is not None
    if not bool(errors.high.any()):
        return "EXACT", "float64 error is exactly 0"
    # On a log scale, is the float64 error nearer to float64 rounding or to rounding of the low precision?
    middle = math.sqrt(torch.finfo(torch.float64).eps / torch.finfo(low_dtype).eps)
    if _rms_ratio(errors.high, errors.bound) <= middle:
        return "EXACT", f"float64 error {worst:.1g}, as rounding predicts; in {_short(low_dtype)} {excess_text(errors)}"
    return "FLOAT-LIMITED", (
        f"float64 error {worst:.1g} does not vanish but stays below {_short(low_dtype)} rounding "
        f"(float64 / {_short(low_dtype)} = {high_over_low:.2g}): a constant or a step kept in low precision"
    )


def _jumps(errors: Errors) -> str:
    """Names a discontinuous output: rounding does not move it by so much."""
    if not errors.jump:
        return ""
    return (
        f"; it is discontinuous: at the same input it jumps by {errors.jump:.2g} between two precisions "
        "(a sign, a sort, an argmax, a cutoff, an eigenvector)"
    )


def excess_text(errors: Errors) -> str:
    """The low-precision error as a share of its bound."""
    return f"{_ratio(errors.low, errors.floor):.2g} of the rounding bound"


def band(relative: float) -> str:
    """The seed's four bands, shown beside the verdict as a label; they decide nothing."""
    if not math.isfinite(relative):
        return "broken"
    for limit, name in ((1e-6, "perfect"), (1e-4, "excellent"), (1e-2, "approximate")):
        if relative < limit:
            return name
    return "broken"


ACTIONS = {"perfect": "Pass", "excellent": "Pass", "approximate": "Investigate", "broken": "Fix required"}
"""What the original template advises by the size of an error alone."""


def _ratio(errors: torch.Tensor, bound: torch.Tensor) -> float:
    zero = errors == 0
    ratio = torch.where(zero, torch.zeros_like(errors), errors / bound)
    return float(ratio.max())


def _rms_ratio(a: torch.Tensor, b: torch.Tensor) -> float:
    top, bottom = float(a.square().mean().sqrt()), float(b.square().mean().sqrt())
    return 0.0 if top == 0 else math.inf if bottom == 0 else top / bottom


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
