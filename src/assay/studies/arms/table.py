"""Which models there are, and which go together with which rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.errors import InputError, unknown
from assay.learning.names import RULES, spelled

MODELS: Mapping[str, str] = {
    "mlp": "EnergyMLP: layers with feedback weaker than feed-forward by gamma",
    "conv": "EnergyConv: convolutions and pooling with an energy",
    "looped": "LoopedMLP: one recurrent layer with spectral normalisation",
}
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
    def relaxes(self) -> bool:
        """Whether the rule needs the model's relaxation; all others train its feed-forward form."""
        return RULES[self.rule].energy

    @property
    def baseline(self) -> Arm:
        """What this arm is compared with: backprop on the same model; on the plain network for the looped one."""
        return Arm("backprop", "mlp" if self.model == "looped" else self.model)


def find_arm(name: str) -> Arm:
    """The arm written as ``rule`` or ``rule/model``; InputError with the nearest name otherwise."""
    asked, _, model = name.partition("/")
    rule = spelled(asked)
    model = model or ("looped" if rule == "original" else "mlp")
    if model not in MODELS:
        raise InputError(unknown("model", model, MODELS))
    if (model == "looped") != (rule == "original"):
        raise InputError(f"rule '{rule}' does not go with model '{model}': the looped model is the arm 'original'")
    return Arm(rule, model)


def arms(rules: Sequence[str], models: Sequence[str]) -> tuple[Arm, ...]:
    """Every rule on every model, each once, with the baseline of each first; ``original`` brings its own model.

    >>> [arm.name for arm in arms(["eqprop", "original"], ["mlp"])]
    ['backprop/mlp', 'eqprop/mlp', 'original/looped']
    """
    asked: list[Arm] = []
    for rule in rules:
        for model in ["looped"] if spelled(rule) == "original" else models:
            asked.append(find_arm(f"{rule}/{model}"))
    baselines = [arm.baseline for arm in asked]
    return tuple(dict.fromkeys([*baselines, *asked]))
