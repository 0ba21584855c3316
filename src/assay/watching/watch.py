"""Looks into a training every few steps and keeps account of the time it takes.

Each probe (gradient health, credit, symmetry) is run every ``every`` steps, and only if what all probes have taken,
this one included, stays below the share ``most`` of the training's own time; otherwise it waits for a later turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.results import Finding

CREDIT = ("largest growth of a block", "gradient norm behind the last block", "samples without a reference")
"""What of a credit audit is a curve; the findings are kept whole."""


@dataclass(frozen=True)
class Entry:
    """What one probe saw at one step, and what looking cost."""

    step: int
    probe: str
    values: Mapping[str, float]
    seconds: float


@dataclass
class Watch:
    """Call ``step(model, step)`` after every backward, before the optimiser; it returns numbers to log, or none.

    ``credit`` is a batch (x, y) for ``audit_credit`` under ``rule``; ``symmetry`` is (sample, Symmetry), for its
    error; ``health`` looks at the gradients that are there. ``log`` receives the numbers and the step.

    >>> net = nn.Linear(2, 2); net(torch.ones(1, 2)).sum().backward()
    >>> sorted(Watch(every=1, most=1.0).step(net, 1))[0]
    'health/gradient norm'
    """

    every: int = 100
    most: float = 0.02
    credit: tuple[Tensor, Tensor] | None = None
    rule: Any = None
    blocks: str | None = None
    symmetry: tuple[Any, Any] | None = None
    health: bool = True
    log: Callable[[dict[str, float], int], None] | None = None
    history: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    spent: float = 0.0
    """Seconds that looking took so far."""
    waited: int = 0
    """Turns that a probe let pass because it would have cost too much."""

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise expected("every >= 1", given=f"every={self.every!r}")
        if not 0 < self.most <= 1:
            raise expected("a share most of the training time, 0 < most <= 1", given=f"most={self.most!r}")
        self._began: float | None = None
        self._turns: dict[str, Callable[[nn.Module, int], dict[str, float]]] = {}
        self._costs: dict[str, float] = {}
        if self.health:
            self._turns["health"] = lambda model, step: gradient_health(model)
        if self.credit is not None:
            self._turns["credit"] = self._credit
        if self.symmetry is not None:
            self._turns["symmetry"] = self._symmetry_probe(*self.symmetry)

    @property
    def share(self) -> float:
        """The part of the time since the first step that looking took."""
        passed = 0.0 if self._began is None else time.perf_counter() - self._began
        return self.spent / passed if passed > 0 else 0.0

    def step(self, model: nn.Module, step: int) -> dict[str, float] | None:
        """The numbers of this step, or None between two looks. The model is left as it is."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        if step < 1 or step % self.every:
            return None
        values: dict[str, float] = {}
        for name, probe in self._turns.items():
            own = time.perf_counter() - self._began - self.spent
            # The first look at something is taken as free: what it costs nobody knows, and later looks wait for it.
            if self.most < 1 and self.spent + self._costs.get(name, 0.0) > self.most * own:
                self.waited += 1
                continue
            started = time.perf_counter()
            seen = {f"{name}/{what}": value for what, value in probe(model, step).items()}
            took = time.perf_counter() - started
            self.spent += took
            self._costs[name] = took
            self.history.append(Entry(step, name, seen, took))
            values |= seen
        if values and self.log is not None:
            self.log(values, step)
        return values or None

    def _credit(self, model: nn.Module, step: int) -> dict[str, float]:
        from assay.audits.credit import audit_credit

        assert self.credit is not None
        x, y = (part.to(_place(model)) for part in self.credit)
        finding = audit_credit(plain(model), x, y, rule=self.rule, blocks=self.blocks, seed=0, redraws=0,
                               responses=False)
        self.findings.append(finding)
        found = {m.name: m.value for m in finding.measurements}
        return {name: float(value) for name in CREDIT if (value := found.get(name)) is not None}

    def _symmetry_probe(self, sample: Any, symmetry: Any) -> Callable[[nn.Module, int], dict[str, float]]:
        from assay.audits.symmetry.logger import EquivarianceLogger

        logger = EquivarianceLogger(sample, symmetry, every=1, inputs=4, transforms=4)

        def look(model: nn.Module, step: int) -> dict[str, float]:
            entry = logger(plain(model), step)
            return dict(entry.errors) if entry is not None else {}

        return look


@torch.no_grad()
def gradient_health(model: nn.Module) -> dict[str, float]:
    """The gradients that are there, in four numbers, with one wait for the device.

    Their norm; how many parameters got none or nothing but zeros; how many got a NaN or an infinity; and the spread,
    the largest over the smallest root mean square of those that got one: what vanishing and exploding look like.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad for p in trained if p.grad is not None]
    if not gradients:
        return {"gradient norm": 0.0, "parameters without a signal": float(len(trained)), "not finite": 0.0}
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)]).tolist()
    finite = [value for value in norms if math.isfinite(value)]
    sizes = [value / math.sqrt(gradient.numel()) for value, gradient in zip(norms, gradients, strict=True)
             if math.isfinite(value) and value > 0]
    found = {
        "gradient norm": math.sqrt(math.fsum(value * value for value in finite)),
        "parameters without a signal": float(len(trained) - len(gradients) + sum(value == 0 for value in norms)),
        "not finite": float(len(norms) - len(finite)),
    }
    return found | ({"spread between parameters": max(sizes) / min(sizes)} if sizes else {})


def plain(model: nn.Module) -> nn.Module:
    """A model as audits want it, from tensor to tensor: one that answers with an object is asked for its logits."""
    return Logits(model) if hasattr(model, "config") and hasattr(model, "get_input_embeddings") else model


class Logits(nn.Module):
    """A model of Hugging Face as a function from inputs to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


def _place(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device
