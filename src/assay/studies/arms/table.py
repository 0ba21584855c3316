"""Which models there are, and which go together with which rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.errors import InputError, unknown
from assay.learning.names import ALL, RULES, spelled
from assay.learning.resolve import is_path
from assay.studies.arms.brought import bring

MODELS: Mapping[str, str] = {
    "mlp": "EnergyMLP: layers with feedback weaker than feed-forward by gamma",
    "conv": "EnergyConv: convolutions and pooling with an energy",
    "looped": "LoopedMLP: one recurrent layer with spectral normalisation",
}
@dataclass(frozen=True)
class Arm:
    """A rule on a model, each by name or brought by the user (``rule_from``, ``model_from`` say where a cell finds it).

    >>> Arm("eqprop", "mlp").name
    'eqprop/mlp'
    """

    rule: str
    model: str = "mlp"
    rule_from: str | None = None
    model_from: str | None = None
    relaxing: bool = field(default=False, compare=False)
    """Whether a rule that was brought needs the model's relaxation."""
    modules: tuple[str, ...] = field(default=(), compare=False)
    """Where the code of what was brought lives."""

    @property
    def name(self) -> str:
        """``rule/model``, how the arm is written everywhere."""
        return f"{self.rule}/{self.model}"

    @property
    def brought(self) -> bool:
        """Whether part of it is the user's own."""
        return self.rule_from is not None or self.model_from is not None

    @property
    def relaxes(self) -> bool:
        """Whether the rule needs the model's relaxation; all others train its feed-forward form."""
        return self.relaxing if self.rule_from is not None else RULES[self.rule].energy

    @property
    def baseline(self) -> Arm:
        """What this arm is compared with: backprop on the same model; on the plain network for the looped one."""
        model = "mlp" if self.model == "looped" and self.model_from is None else self.model
        return Arm("backprop", model, None, self.model_from, modules=self.modules)

    def as_record(self) -> dict[str, Any]:
        """The arm as a JSON object, for the payload of a cell."""
        return {"rule": self.rule, "model": self.model, "rule_from": self.rule_from, "model_from": self.model_from,
                "relaxing": self.relaxing}


def find_arm(name: str) -> Arm:
    """The arm written as ``rule`` or ``rule/model``; InputError with the nearest name otherwise."""
    asked, _, model = name.partition("/")
    rule = spelled(asked)
    model = model or ("looped" if rule == "original" else "mlp")
    if model not in MODELS:
        raise InputError(unknown("model", model, (*MODELS, "pkg.module:name")))
    if (model == "looped") != (rule == "original"):
        raise InputError(f"rule '{rule}' does not go with model '{model}': the looped model is the arm 'original'")
    return Arm(rule, model)


def arms(rules: Sequence[Any] | Mapping[str, Any], models: Sequence[Any] | Mapping[str, Any]) -> tuple[Arm, ...]:
    """Every rule on every model, each once, with the baseline of each first; ``original`` brings its own model.

    A rule or model is a name, or anything ``assay.train`` takes in its place; a mapping says what to call them. The
    rule ``all`` is every name there is.

    >>> [arm.name for arm in arms(["eqprop", "original"], ["mlp"])]
    ['backprop/mlp', 'eqprop/mlp', 'original/looped']
    """
    asked: list[Arm] = []
    for rule_label, rule in _every(_labelled(rules)):
        for model_label, model in _labelled(models):
            asked.append(_arm(rule, model, rule_label, model_label))
    baselines = [arm.baseline for arm in asked]
    found = tuple(dict.fromkeys([*baselines, *asked]))
    names = [arm.name for arm in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two different arms are called '{twice}'; give rules and models as {{name: object}}")
    return found


def _arm(rule: Any, model: Any, rule_label: str | None, model_label: str | None) -> Arm:
    if _is_name(rule) and _is_name(model):
        return find_arm(rule if spelled(rule) == "original" else f"{rule}/{model}")
    if _is_name(rule) and spelled(rule) == "original":
        return find_arm(rule)
    if _is_name(model):
        find_arm(f"backprop/{model}")  # the name exists
        made = bring(rule, label=rule_label)
        return Arm(made.label, model, made.reference, relaxing=_relaxing(rule), modules=made.modules)
    net = bring(model, label=model_label)
    if _is_name(rule):
        return Arm(spelled(rule), net.label, None, net.reference, modules=net.modules)
    made = bring(rule, label=rule_label)
    return Arm(made.label, net.label, made.reference, net.reference, _relaxing(rule), (*made.modules, *net.modules))


def _every(asked: list[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """The rules asked for, with every name in the place of ``all``."""
    every: list[tuple[str | None, Any]] = [(None, name) for name in RULES]
    return [pair for label, rule in asked
            for pair in (every if isinstance(rule, str) and rule == ALL else [(label, rule)])]


def _labelled(given: Sequence[Any] | Mapping[str, Any]) -> list[tuple[str | None, Any]]:
    if isinstance(given, Mapping):
        return [(None if _is_name(value) else label, value) for label, value in given.items()]
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [(None, given)]
    return [(None, each) for each in given]


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and not is_path(given)


def _relaxing(rule: Any) -> bool:
    if not type(rule).__module__.startswith("assay.rules") and not getattr(rule, "__module__", "").startswith("assay."):
        return False
    from assay.rules import EqProp

    return rule is EqProp or isinstance(rule, EqProp)
