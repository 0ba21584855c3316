"""Two models that differ in training mode may agree in evaluation mode: dropout left on is the usual reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from assay.audits.same.judge import Truth, compare
from assay.audits.same.quantities import Quantities
from assay.probe.containment import attempt
from assay.probe.copies import duplicate


def agree_in_evaluation(
    models: tuple[nn.Module, nn.Module, nn.Module, nn.Module], ask: Callable[[int, nn.Module], Quantities]
) -> bool:
    """Whether outputs agree once both are evaluated; False if none is in training mode or a copy does not run.

    ``models`` are the reference in the working precision, in float64 and in float64 with nudged weights, and the
    candidate; ``ask(place, model)`` returns the outputs of the one at that place.
    """
    if not any(module.training for model in models for module in model.modules()):
        return False

    def outputs() -> list[Quantities]:
        return [ask(place, duplicate(model, training=False)) for place, model in enumerate(models)]

    tried = attempt(outputs)
    if tried.value is None:
        return False
    rough, exact, nudged, candidate = tried.value
    found: list[Any] = compare("in evaluation mode", Truth(exact, rough, nudged), candidate)
    return bool(found) and not any(one.differs for one in found)
