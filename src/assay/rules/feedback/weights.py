"""The weights of a model by identity: parameters, views of them, and weights that a parametrisation computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList


class WeightNames:
    """Knows a weight by itself, by the parameter it is a view of, or as the output of a parametrisation."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.parameters = dict(model.named_parameters())
        self.computed: dict[int, tuple[str, Tensor]] = {}
        self.parametrised = [(name, module) for name, module in model.named_modules()
                             if isinstance(module, ParametrizationList)]
        self.prepared = [(name, module) for name, module in model.named_modules() if module._forward_pre_hooks]
        """Modules that may compute a weight before they run, as pruning does and norms of weights did."""
        self.made: set[str] = set()

    def find(self, weight: Tensor) -> tuple[str, Tensor] | None:
        """The name of the weight that ``weight`` is, or is a view of, and that weight."""
        for candidate in (weight, weight._base):
            if candidate is None or candidate.dtype is not weight.dtype:  # real numbers read as complex ones, say
                return None
            name = self.names.get(id(candidate))
            if name is not None:
                return name, candidate
            if id(candidate) in self.computed:
                return self.computed[id(candidate)]
        return None

    @property
    def computes(self) -> bool:
        """Whether some weight is computed anew in every pass."""
        return bool(self.parametrised or self.prepared)

    def owner(self, name: str) -> str:
        """The computed weight a parameter belongs to: ``a.parametrizations.weight`` of ``....weight.original0``, and
        ``a.weight`` of ``a.weight_orig``.
        """
        head, found, tail = name.partition("parametrizations.")
        if found:
            return f"{head}{found}{tail.partition('.')[0]}"
        return next((made for made in self.made if name.startswith(f"{made}_")), name)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, the weights that parametrisations and pre-hooks compute are known too."""
        if not self.computes:
            yield
            return

        def note(name: str, output: Any) -> None:
            if isinstance(output, Tensor) and id(output) not in self.names:
                self.computed[id(output)] = name, output

        def look(prefix: str, module: nn.Module) -> None:
            for attribute, value in vars(module).items():
                if isinstance(value, Tensor) and value.ndim > 1 and value.grad_fn is not None:
                    self.made.add(f"{prefix}.{attribute}".lstrip("."))
                    note(f"{prefix}.{attribute}".lstrip("."), value)

        handles = [module.register_forward_hook(lambda m, a, out, name=name: note(name, out))
                   for name, module in self.parametrised]
        handles += [module.register_forward_pre_hook(lambda m, a, name=name: look(name, m))
                    for name, module in self.prepared]
        try:
            yield
        finally:
            self.computed.clear()  # an identity means nothing once its tensor is gone
            for handle in handles:
                handle.remove()
