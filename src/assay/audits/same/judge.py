"""How far a candidate may be off: c times what rounding did to the reference, and what one rounding of its inputs does.

t is the reference in float64, r = |reference - t| in the working precision, s = |t' - t| with every input and weight of
the float64 reference moved by one rounding of the working precision. A candidate is off by e = |candidate - t|. Both
norms are asked: of the whole quantity, and of its worst entry against the local rounding plus its root mean square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.same.quantities import Kind, Quantities, Quantity
from assay.probe.values import is_continuous

SAFETY = 8.0
"""c: healthy twins reach 0.63 of the allowance in-sample and 0.91 on the second draw (docs/benchmarks/same.md)."""


@dataclass(frozen=True)
class QuantityComparison:
    """One quantity under one condition."""

    condition: str
    quantity: Quantity
    share: float
    """The error in units of the allowance: above 1 rounding does not explain it."""
    error: float
    relative: float
    allowed: float
    why: str = ""

    @property
    def differs(self) -> bool:
        """Rounding does not explain the difference."""
        return not self.share <= 1.0


@dataclass(frozen=True)
class Truth:
    """Quantities of the reference under one condition, in float64, in the working precision and nudged by rounding."""

    exact: Quantities
    rough: Quantities
    nudged: Quantities

    def scale(self, name: Quantity) -> Tensor:
        """r + s, entry by entry."""
        exact = self.exact[name]
        r = (self.rough[name] - exact).abs().double()
        s = (self.nudged[name] - exact).abs().double() if name in self.nudged else torch.zeros_like(r)
        return r + s


def compare(condition: str, truth: Truth, found: Quantities) -> list[QuantityComparison]:
    """Every quantity of the reference against the candidate's."""
    results = []
    for name, exact in truth.exact.items():
        if name not in found:
            if name.kind is Kind.OUTPUT:
                results.append(_wrong(condition, name, "the candidate has no such output"))
            continue
        if found[name].shape != exact.shape:
            shapes = f"shape {tuple(found[name].shape)} instead of {tuple(exact.shape)}"
            results.append(_wrong(condition, name, shapes))
            continue
        results.append(_compare(condition, name, truth, found[name]))
    return results


def _compare(condition: str, name: Quantity, truth: Truth, found: Tensor) -> QuantityComparison:
    exact, rough = truth.exact[name], truth.rough[name]
    if not is_continuous(exact):
        wrong = int((found != rough).sum())
        return QuantityComparison(condition, name, math.inf if wrong else 0.0, float(wrong), float(wrong), 0.0,
                          f"{wrong} of {found.numel()} entries differ" if wrong else "")  # fmt: skip
    usable = torch.isfinite(exact) & torch.isfinite(rough)
    if bool((torch.isfinite(found) != torch.isfinite(rough))[torch.isfinite(exact) == torch.isfinite(rough)].any()):
        return _wrong(condition, name, "NaN or infinity where the reference has none, or the other way round")
    if not bool(usable.any()):
        return QuantityComparison(condition, name, 0.0, 0.0, 0.0, 0.0, "nothing finite to compare")
    error, scale, size = (x[usable] for x in ((found - exact).abs().double(), truth.scale(name), exact.abs().double()))
    root = float(scale.square().mean().sqrt())
    norm, allowed = float(error.norm()), SAFETY * float(scale.norm())
    # One entry far off in a large tensor hides in the norm; a scale of 0 by luck must not blame an entry alone.
    entry = float((error / (SAFETY * (scale + 2 * root))).nan_to_num(0.0, posinf=math.inf).max())
    whole = 0.0 if norm == 0 else norm / allowed if allowed else math.inf
    largest = float(size.norm())
    relative = norm / largest if largest else (0.0 if norm == 0 else math.inf)
    return QuantityComparison(condition, name, max(whole, entry), norm, relative, allowed)


def _wrong(condition: str, name: Quantity, why: str) -> QuantityComparison:
    return QuantityComparison(condition, name, math.inf, math.inf, math.inf, 0.0, why)
