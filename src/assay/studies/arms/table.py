"""Which rules and models there are, and which go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.errors import InputError, unknown

RULES: Mapping[str, str] = {
    "backprop": "automatic differentiation on the feed-forward form of the model: the yardstick",
    "eqprop": "equilibrium propagation, centered, on the energy model",
    "bptt": "automatic differentiation through the unrolled relaxation of the energy model",
    "fa": "feedback alignment: the error returns through fixed random matrices",
    "dfa": "direct feedback alignment: the output error goes straight to every layer",
    "sign": "feedback through the signs of the weights, all of one size",
    "seed": "equilibrium propagation on a LoopedMLP with spectral normalisation, 30 steps, the published settings",
}
MODELS: Mapping[str, str] = {
    "mlp": "EnergyMLP: layers with feedback weaker than feed-forward by gamma",
    "conv": "EnergyConv: convolutions and pooling with an energy",
    "looped": "LoopedMLP: one recurrent layer with spectral normalisation",
}
ENERGY_RULES = ("eqprop", "bptt", "seed")
"""Rules that need the model's relaxation; all others train its feed-forward form."""


@dataclass(frozen=True)
class Arm:
    """A rule on a model.

    >>> Arm("eqprop", "mlp").name
    'eqprop/mlp'
    """

    rule: str
    model: str = "mlp"

    @property
    def name(self) -> str:
        """``rule/model``, how the arm is written everywhere."""
        return f"{self.rule}/{self.model}"

    @property
    def baseline(self) -> Arm:
        """What this arm is compared with: backprop on the same model; on the plain network for the looped one."""
        return Arm("backprop", "mlp" if self.model == "looped" else self.model)


def find_arm(name: str) -> Arm:
    """The arm written as ``rule`` or ``rule/model``; InputError with the nearest name otherwise."""
    rule, _, model = name.partition("/")
    if rule not in RULES:
        raise InputError(unknown("rule", rule, RULES))
    model = model or ("looped" if rule == "seed" else "mlp")
    if model not in MODELS:
        raise InputError(unknown("model", model, MODELS))
    if (model == "looped") != (rule == "seed"):
        raise InputError(f"rule '{rule}' does not go with model '{model}': the looped model is the arm 'seed'")
    return Arm(rule, model)


def arms(rules: Sequence[str], models: Sequence[str]) -> tuple[Arm, ...]:
    """Every rule on every model, each once, with the baseline of each first; ``seed`` brings its own model.

    >>> [arm.name for arm in arms(["eqprop", "seed"], ["mlp"])]
    ['backprop/mlp', 'eqprop/mlp', 'seed/looped']
    """
    asked: list[Arm] = []
    for rule in rules:
        for model in ["looped"] if rule == "seed" else models:
            asked.append(find_arm(f"{rule}/{model}"))
    baselines = [arm.baseline for arm in asked]
    return tuple(dict.fromkeys([*baselines, *asked]))
