"""Rules that write weights themselves, seen as gradients: what an update of theirs says about the direction of descent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.protocols import Writing


class AsGradient:
    """A rule with ``step(model, x, y)`` as one with ``backward``: the gradient is minus its change over its rate.

    The rate is the rule's ``learning_rate``, or 1: directions and cosines do not depend on it. Weights, buffers and the
    mode of the model are as before afterwards; what the rule keeps about itself is its own affair. ``train`` calls
    ``step``, audits call ``backward``. Whatever else the rule has (``predict``, ``parameters``) it still has.
    """

    def __init__(self, rule: Writing) -> None:
        self.rule = rule
        self.rate = float(getattr(rule, "learning_rate", 1.0))
        # From Python 3.12 on a protocol looks at what stands in an object, not at what ``__getattr__`` would find.
        self.__dict__.update({name: getattr(rule, name) for name in dir(rule)
                              if not name.startswith("_") and not hasattr(type(self), name)
                              and callable(getattr(rule, name))})

    def __repr__(self) -> str:
        return f"AsGradient({type(self.rule).__name__})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "rule":  # a copy asks before it has a rule
            raise AttributeError(name)
        return getattr(self.rule, name)

    def step(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor | float:
        """The rule's own step: weights are written."""
        return self.rule.step(model, x, y)

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a step that is taken back, with minus its change per unit of rate added to ``.grad``."""
        before = {name: value.detach().clone() for name, value in model.state_dict(keep_vars=True).items()}
        gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]
        loss = self.rule.step(model, x, y)
        changes = {name: (before[name] - parameter.detach()) / self.rate
                   for name, parameter in model.named_parameters()}
        moved = any(bool(change.any()) for change in changes.values())
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                value.copy_(before[name])
        if not moved:
            raise InputError(f"{type(self.rule).__name__}.step changed no weight of {type(model).__name__}; a rule "
                             "that fills .grad instead has backward(model, x, y)")
        for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
            if parameter.requires_grad:
                parameter.grad = changes[name] if gradient is None else gradient + changes[name]
        return torch.as_tensor(loss).detach()
