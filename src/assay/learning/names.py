"""The one table of rule names: what ``"fa-block"`` means in training, audits, the benchmark and the reproduction alike.

Feedback alignment at every layer and at block boundaries differ by orders of magnitude in what they do to a residual
net, so the level is part of every name that is written down. Bare ``fa``, ``dfa``, ``sign`` and ``kp`` are read as
layer level, everywhere. No torch is imported before a rule is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import InputError, expected, unknown

if TYPE_CHECKING:
    from torch import nn

    from assay.protocols import Rule


@dataclass(frozen=True)
class Named:
    """What a name stands for; ``energy`` rules need a model with a relaxation, ``feedback`` are options of the rule."""

    about: str
    energy: bool = False
    feedback: Mapping[str, str] = field(default_factory=dict)
    made_by: str = ""
    """The class of ``assay.rules`` that makes it, for all but backprop, equilibrium propagation and feedback."""
    options: Mapping[str, Any] = field(default_factory=dict)
    model: bool = False
    """Whether that class is given the model: it draws or keeps something of its shape."""
    seed: bool = False


def _feedback(about: str, kind: str, level: str, matrices: str = "random") -> Named:
    return Named(about, feedback={"kind": kind, "level": level, "feedback": matrices})


RULES: Mapping[str, Named] = {
    "backprop": Named("automatic differentiation: the yardstick"),
    "eqprop": Named("equilibrium propagation, centered, on a model with an energy", energy=True),
    "bptt": Named("automatic differentiation through the unrolled relaxation of a model with an energy", energy=True),
    "fa-layer": _feedback("feedback alignment at every weight: the error returns through random matrices", "fa",
                          "layer"),
    "fa-block": _feedback("feedback alignment at block boundaries, which drops the skip connections", "fa", "block"),
    "dfa-layer": _feedback("direct feedback alignment: the output error goes straight to every weight", "dfa", "layer"),
    "dfa-block": _feedback("direct feedback alignment to the end of every block", "dfa", "block"),
    "sign-layer": _feedback("feedback through the signs of the weights, all of one size", "fa", "layer", "sign"),
    "kp-layer": _feedback("Kolen-Pollack: feedback matrices that learn beside the weights", "fa", "layer",
                          "kolen-pollack"),
    "pc": Named("predictive coding: states inferred towards equilibrium, then local errors",
                made_by="PredictiveCoding"),
    "pc-errors": Named("predictive coding in its error-optimising form: the same equilibrium, reached sooner",
                       made_by="PredictiveCoding", options={"form": "errors"}),
    "pc-fixed": Named("predictive coding at fixed predictions: backprop by another name", made_by="PredictiveCoding",
                      options={"form": "fixed"}),
    "dual": Named("dual propagation: contrastive Hebbian learning with two activities per neuron",
                  made_by="DualPropagation"),
    "dtp": Named("difference target propagation: targets brought down by learned inverses", made_by="TargetPropagation",
                 model=True, seed=True),
    "forward-forward": Named("forward-forward: every layer tells right labels from wrong ones",
                             made_by="ForwardForward", model=True, seed=True),
    "pepita": Named("PEPITA: a second forward pass on an input changed by the error", made_by="Pepita", model=True,
                    seed=True),
    "local-heads": Named("greedy layerwise learning: every layer has a classifier of its own", made_by="LocalHeads",
                         model=True, seed=True),
    "node-perturbation": Named("node perturbation: noise on the drives, kept where it lowered the loss",
                               made_by="NodePerturbation", seed=True),
    "weight-perturbation": Named("weight perturbation: noise on the weights, kept where it lowered the loss",
                                 made_by="WeightPerturbation", seed=True),
    "forward-gradient": Named("forward gradients: the exact slope along one random direction of the weights",
                              made_by="ForwardGradient", seed=True),
    "original": Named("equilibrium propagation on a LoopedMLP with spectral normalisation: the published settings",
                      energy=True),
}
SHORT: Mapping[str, str] = {
    "bp": "backprop", "fa": "fa-layer", "dfa": "dfa-layer", "sign": "sign-layer", "kp": "kp-layer", "seed": "original",
    "ff": "forward-forward", "predictive-coding": "pc",
}
ALL = "all"
"""What stands for every name of the table in a benchmark."""
"""Spellings that are read and never written; ``seed`` was the name of ``original`` and goes in the next release."""


def spelled(name: str) -> str:
    """The full name of a rule; InputError with the nearest one if there is none.

    >>> spelled("dfa")
    'dfa-layer'
    """
    full = SHORT.get(name, name)
    if full not in RULES:
        raise InputError(unknown("rule", name, (*RULES, "pkg.module:name")))
    return full


def with_level(name: str) -> str:
    """The full name, where reading a bare one would guess: the reproduction's ``fa`` used to be the block level.

    >>> with_level("fa")
    Traceback (most recent call last):
    assay.errors.InputError: expected a rule with its level; given 'fa'; write fa-layer or fa-block
    """
    if f"{name}-block" in RULES:
        raise expected("a rule with its level", given=f"'{name}'", do=f"write {name}-layer or {name}-block")
    return spelled(name)


def named_rule(
    name: str, model: nn.Module, *, seed: int = 0, blocks: str | None = None, penalty: float = 0.0, **equilibrium: Any
) -> Rule:
    """The rule called ``name`` for this model.

    ``seed`` draws feedback matrices; ``blocks`` (a glob) and ``penalty`` belong to the block level, any further options
    (``beta``, ``sweeps``) to equilibrium propagation.
    """
    from assay import rules
    from assay.rules import Backprop, EqProp, FeedbackAlignment

    full = spelled(name)
    named = RULES[full]
    if named.made_by:
        drawn = {"seed": seed} if named.seed else {}
        made: Rule = getattr(rules, named.made_by)(*([model] if named.model else []), **drawn, **named.options)
        return made
    if full in ("backprop", "bptt"):
        return Backprop()
    if full in ("eqprop", "original"):
        return EqProp(**equilibrium)
    options: dict[str, Any] = dict(named.feedback)
    if options["level"] == "block":
        options |= {"blocks": blocks, "penalty": penalty}
    return FeedbackAlignment(model, seed=seed, **options)
