"""What a rule does with a trained network, layer by layer: how near its update is to the gradient, and what it costs.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.probe.memory import measure_peak
from assay.protocols import Rule
from assay.rules import Backprop
from assay.studies.arms.build import Built


@dataclass(frozen=True)
class Profile:
    """``cosines`` with the gradient of the loss, from the first weight up (None where a rule gives nothing);
    ``reached``, the share of numbers that got any update; ``peak``, bytes alive at the worst moment of a step."""

    cosines: tuple[float | None, ...]
    reached: float
    peak: int

    def as_record(self) -> dict[str, Any]:
        """The profile as a JSON object."""
        return {"credit": list(self.cosines), "reached": self.reached, "peak_bytes": self.peak}


def profile(built: Built, x: Tensor, y: Tensor) -> Profile:
    """The profile of one step on (x, y), on copies: the model and its rule are left as they were.

    The gradient is backprop's on the same model: through the converged relaxation where there is one.
    """
    place = next(built.model.parameters()).device
    x, y = x.to(place), y.to(place)
    rule, model = copy.deepcopy((built.rule, built.model))
    ours, true = _gradients(model, rule, x, y), _gradients(model, Backprop(), x, y)
    names = [name for name, parameter in model.named_parameters() if parameter.ndim > 1]
    numbers = sum(p.numel() for p in model.parameters())
    reached = sum(p.numel() for name, p in model.named_parameters() if bool(ours[name].any())) / max(1, numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peak = measure_peak(lambda: rule.backward(model, x, y)).bytes
    return Profile(tuple(_cosine(ours[name], true[name]) for name in names), reached, peak)


def _gradients(model: nn.Module, rule: Rule, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule.backward(model, x, y)
    found = {n: (torch.zeros_like(p) if p.grad is None else p.grad).detach().double().flatten()
             for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def _cosine(ours: Tensor, true: Tensor) -> float | None:
    sizes = float(ours.norm() * true.norm())
    return float(ours @ true) / sizes if sizes > 0 and math.isfinite(sizes) else None
