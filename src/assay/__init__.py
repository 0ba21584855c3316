"""Assay tells how much of a claim about a neural network or a learning rule is true.

Every public name is loaded on first use (PEP 562), so importing assay never imports torch. The distribution is called
assay-ml: that word in this file is how ``assay_ml`` tells it from the packages of others that are called assay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay_ml import warn_of_rivals

__version__ = "0.1.0"
warn_of_rivals()

_HOMES = {
    "verify": "assay.studies.verification",
    "bench": "assay.studies.bench",
    "track": "assay.registry",
    "Trial": "assay.protocols",
    "known_bad": "assay.controls",
    "known_good": "assay.controls",
    "Finding": "assay.results",
    "Verdict": "assay.results",
    "Measurement": "assay.results",
    "Run": "assay.results",
    "load_run": "assay.results",
    "save_report": "assay.reports",
    "compare": "assay.reports",
    "compare_evals": "assay.studies.evals",
    "audit_credit": "assay.audits.credit",
    "FAProtocol": "assay.audits.credit",
    "audit_symmetry": "assay.audits.symmetry",
    "audit_same": "assay.audits.same",
    "assert_same": "assay.audits.same",
    "audit_dependence": "assay.audits.dependence",
    "assert_depends": "assay.audits.dependence",
    "audit_stability": "assay.audits.equilibrium.stability",
    "audit_kernel": "assay.audits.equilibrium.kernel",
    "audit_gradient": "assay.audits.equilibrium.gradient",
    "audit_inference": "assay.audits.equilibrium.inference",
    "audit_memory": "assay.audits.equilibrium.memory",
    "Symmetry": "assay.symmetry",
    "Backprop": "assay.rules",
    "EqProp": "assay.rules",
    "FeedbackAlignment": "assay.rules",
    "train": "assay.learning",
    "AssayError": "assay.errors",
}
_SUBMODULES = ("claims", "models", "tasks", "symmetry", "dependence", "stats", "errors", "results")

__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"assay.{name}")
    else:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay' has no attribute '{name}': {unknown('name', name, __all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from assay.controls import known_bad as known_bad
    from assay.controls import known_good as known_good
    from assay.errors import AssayError as AssayError
    from assay.protocols import Trial as Trial
    from assay.registry import track as track
    from assay.results import Finding as Finding
    from assay.results import Measurement as Measurement
    from assay.results import Run as Run
    from assay.results import Verdict as Verdict
    from assay.results import load_run as load_run
