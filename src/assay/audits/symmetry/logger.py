"""Watches a symmetry during training: the error of the model every few steps, in a history that can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from assay.audits.symmetry.facts import Options
from assay.audits.symmetry.spec import Symmetry
from assay.audits.symmetry.stages import run_forward
from assay.audits.symmetry.subject import prepare
from assay.errors import expected
from assay.probe.copies import own_autograd, uncompiled, untouched_random_state
from assay.results import Figure, Series


@dataclass(frozen=True)
class LoggedErrors:
    """The errors at one step: largest relative error and test verdict per "generator, output"."""

    step: int
    errors: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def broken(self) -> bool:
        """Some output breaks at this step."""
        return "BROKEN" in self.labels.values()


class EquivarianceLogger:
    """A callback for training loops: call it with the model and the step.

    The model is copied and left as it is, its mode and the random state included. ``log`` receives a dict of numbers
    and the step, as the loggers of training frameworks expect.

    >>> import torch; from assay import symmetry as sym
    >>> spec = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1))
    >>> logger = EquivarianceLogger(torch.randn(4, 5), spec, every=10)
    >>> logger(torch.nn.ReLU(), step=0).broken, logger(torch.nn.ReLU(), step=1) is None
    (False, True)
    """

    def __init__(
        self,
        sample: Any,
        symmetry: Symmetry,
        *,
        every: int = 100,
        inputs: int = 8,
        transforms: int = 8,
        seed: int = 0,
        log: Callable[[dict[str, float], int], None] | None = None,
        call: Callable[[nn.Module, Any], Any] | None = None,
    ) -> None:
        if every < 1:
            raise expected("every >= 1", given=repr(every))
        self.sample, self.symmetry, self.every, self.log, self.call = sample, symmetry, every, log, call
        self.options = Options(seed, None, inputs, transforms, frozenset({"special", "sizes", "sensitivity"}))
        self.history: list[LoggedErrors] = []

    def __call__(self, model: nn.Module, step: int) -> LoggedErrors | None:
        """The errors at this step, or None between two measurements."""
        if step % self.every:
            return None
        with untouched_random_state(), own_autograd(), uncompiled():
            subject = prepare(
                model, self.sample, self.symmetry, seed=self.options.seed, inputs=self.options.inputs, call=self.call
            )
            facts = run_forward(subject, self.options, type(model).__name__, self.sample)
        names = [f"{test.generator}, {test.errors.output}" for test in facts.tests]
        errors = {name: test.judgement.worst for name, test in zip(names, facts.tests, strict=True)}
        labels: dict[str, str] = {name: test.judgement.label for name, test in zip(names, facts.tests, strict=True)}
        entry = LoggedErrors(step, errors, labels or {"guards": "UNTESTED"})
        self.history.append(entry)
        if self.log is not None:
            self.log({f"equivariance error/{name}": value for name, value in errors.items()}, step)
        return entry

    def figure(self) -> Figure:
        """Error against training step, one line per generator and output."""
        names = list(dict.fromkeys(name for entry in self.history for name in entry.errors))
        series = []
        for name in names:
            points = [(entry.step, entry.errors[name]) for entry in self.history if name in entry.errors]
            steps, errors = tuple(float(s) for s, _ in points), tuple(e for _, e in points)
            series.append(Series(name=name, x=steps, y=errors))
        return Figure(
            key="equivariance-during-training",
            question="Does training break the symmetry?",
            x_label="step",
            y_label="largest relative error",
            y_scale="log",
            series=tuple(series),
        )
