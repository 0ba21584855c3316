"""Hooks that a model puts on gradients as it runs: they stand in no graph, and may send an error through a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.rules.feedback.coverage import WeightCoverage
from assay.rules.feedback.nodes import changed

Hook = Callable[[Tensor], Any]


@dataclass
class Hooks:
    """Inside ``with``, collects every hook that is put on a tensor in the middle of a graph."""

    found: list[tuple[Tensor, Hook]] = field(default_factory=list)

    def __enter__(self) -> Hooks:
        self.original = original = torch.Tensor.register_hook

        def register(tensor: Tensor, hook: Hook) -> Any:
            if not tensor.is_leaf:
                self.found.append((tensor, hook))
            return original(tensor, hook)  # type: ignore[no-untyped-call]

        torch.Tensor.register_hook = register  # type: ignore[method-assign]
        return self

    def __exit__(self, *problem: Any) -> None:
        torch.Tensor.register_hook = self.original  # type: ignore[method-assign]

    def users(self, parameters: Mapping[str, nn.Parameter]) -> list[WeightCoverage]:
        """Parameters whose values change what a hook makes of an error, and hooks that cannot be asked."""
        rows: dict[str, WeightCoverage] = {}
        for tensor, hook in self.found:
            before = _ask(tensor, hook)
            if before is None:
                name = f"a hook on a gradient, {getattr(hook, '__qualname__', type(hook).__name__)}"
                rows[name] = WeightCoverage(name, "not reached", False, "cannot be asked whether it uses a weight")
                continue
            with changed(parameters.values()):
                suspect = _differs(before, _ask(tensor, hook))
            for name, parameter in parameters.items() if suspect else ():
                with changed([parameter]):
                    if _differs(before, _ask(tensor, hook)):
                        rows[name] = WeightCoverage(name, "not reached", False, "used by a hook on a gradient, which "
                                                                                "sends the error through it")
        return list(rows.values())


def _ask(tensor: Tensor, hook: Hook) -> Tensor | None:
    """What a hook makes of an error; None if it fails."""
    generator = torch.Generator().manual_seed(1)
    error = (torch.rand(tensor.shape, generator=generator) + 0.5).to(tensor)
    try:
        with torch.no_grad():
            answer = hook(error.clone())
    except Exception:  # a user's own code: whatever it raises, nothing is known of it
        return None
    return answer.detach().clone() if isinstance(answer, Tensor) else error


def _differs(one: Tensor, two: Tensor | None) -> bool:
    return two is None or not torch.equal(one.nan_to_num(), two.nan_to_num())
