"""What a rule sends to each depth, beside the true gradient and beside what other random feedback would send.

The cosine is taken per depth, because an average over depths hides those that are exact by construction (the deepest
one under block-level FA), and against a null of redrawn feedback, because a cosine of 0.07 may be alignment or chance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from assay.audits.credit.stream import Stream, by_sample, exact_cosines, in_precision, lengths
from assay.errors import expected
from assay.probe.blocks import Blocks
from assay.probe.stream import tapped
from assay.protocols import Rule
from assay.seeding import derive

REDRAWS = 20


@runtime_checkable
class Redrawable(Protocol):
    """A rule whose feedback can be drawn anew: ``FeedbackAlignment`` is one."""

    def redrawn(self, model: nn.Module, seed: int) -> Rule: ...


def can_redraw(rule: object) -> bool:
    """Whether a null of fresh feedback exists for this rule."""
    return isinstance(rule, Redrawable)


@dataclass(frozen=True)
class DepthAlignment:
    """One depth: mean cosine with the true gradient, its standard error over samples, size ratio, and the null.

    ``places`` is the number of depths judged together: chance gets one try at each, and 5 % over all of them.
    """

    cosine: float
    error: float
    ratio: float
    null_mean: float | None = None
    null_sd: float | None = None
    redraws: int = 0
    places: int = 1

    @property
    def exact(self) -> bool:
        """True when redrawing the feedback changes nothing: the signal here is the gradient by construction."""
        return self.null_sd is not None and self.null_sd < 1e-9 and self.cosine > 1 - 1e-6

    @property
    def z(self) -> float | None:
        """Standard deviations of the null above its mean; None without a null, or where the signal is exact."""
        if self.spread is None or self.null_mean is None or self.exact:
            return None
        return (self.cosine - self.null_mean) / max(self.spread, 1e-300)

    @property
    def spread(self) -> float | None:
        """The standard deviation of one more redraw about the mean of the null; None without a null."""
        return None if self.null_sd is None else self.null_sd * math.sqrt(1 + 1 / self.redraws)

    @property
    def critical(self) -> float:
        """The z above which a signal is told from chance at 5 % over all places (Bonferroni), one-sided.

        Student's t where the spread comes from a few redraws, normal where it comes from the samples.
        """
        from scipy import stats

        level = 1 - 0.05 / self.places
        return float(stats.t.ppf(level, self.redraws - 1) if self.redraws > 1 else stats.norm.ppf(level))

    @property
    def aligned(self) -> bool | None:
        """Above the null band; None where it is exact by construction."""
        if self.exact:
            return None
        return self.z > self.critical if self.z is not None else self.cosine > self.critical * self.error


def is_gradient(found: DepthAlignment | None) -> bool:
    """Whether this is the true gradient up to its length; a place that nothing is sent through says nothing."""
    return found is None or found.cosine > 1 - 1e-6


def credit_signals(rule: Rule, model: nn.Module, x: Tensor, y: Tensor, *, blocks: Blocks) -> list[Tensor | None]:
    """The signal the rule sends to each depth, per sample and in float64; None where it sends none through the stream.
    """
    return in_its_precision(
        rule, lambda dtype: _signals(copy.deepcopy(rule), model, dtype, x=x, y=y, blocks=blocks))


Result = TypeVar("Result")


def in_its_precision(rule: Rule, attempt: Callable[[torch.dtype | None], Result]) -> Result:
    """``attempt`` in float64, or in the model's own precision for a rule that keeps matrices of its own in that.

    What goes wrong inside the rule is said of the rule, not of the input.
    """
    try:
        return attempt(torch.float64)
    except RuntimeError as error:
        if not any(word in str(error) for word in ("dtype", "scalar type", "Float", "Double")):
            raise _of_the_rule(rule, error) from error
    try:
        return attempt(None)
    except RuntimeError as error:
        raise _of_the_rule(rule, error) from error


def _of_the_rule(rule: Rule, error: RuntimeError) -> Exception:
    said = str(error).strip().split("\n")[0]
    return expected("a rule that gives this model a gradient", given=type(rule).__name__, do=f"the rule said: {said}")


def _signals(
    rule: Rule, model: nn.Module, dtype: torch.dtype | None, *, x: Tensor, y: Tensor, blocks: Blocks
) -> list[Tensor | None]:
    twin, inputs = in_precision(model, x, dtype)
    twin.requires_grad_()
    found: dict[int, Tensor] = {}

    def visit(depth: int, h: Tensor) -> None:
        if h.requires_grad:
            h.retain_grad()  # kept behind all hooks: what a rule put in the gradient's place, not the gradient itself
            found[depth] = h

    with torch.random.fork_rng(devices=[]), tapped(twin, blocks, visit):
        rule.backward(twin, inputs, y)
    # A rule works on the mean loss; times the number of samples it is each sample's own.
    signals = {depth: h.grad for depth, h in found.items()}
    return [None if (signal := signals.get(depth)) is None else by_sample(signal, blocks).double() * len(y)
            for depth in range(len(blocks) + 1)]


def measure_alignment(
    rule: Rule,
    model: nn.Module,
    *,
    x: Tensor,
    y: Tensor,
    blocks: Blocks,
    truth: Stream,
    seed: int,
    redraws: int = REDRAWS,
    signals: Sequence[Tensor | None] | None = None,
) -> tuple[DepthAlignment | None, ...]:
    """The alignment of ``rule`` at each depth, with a null of ``redraws`` fresh feedback matrices where it has any.

    ``signals`` are those of ``credit_signals`` if they are known already.
    """
    if signals is None:
        signals = credit_signals(rule, model, x, y, blocks=blocks)
    nulls: list[list[float]] = [[] for _ in signals]
    if isinstance(rule, Redrawable) and redraws > 1:
        fresh: Rule = rule
        for number in range(redraws):
            # Drawn anew from the last one, which knows the model by now; nobody else has it, so it needs no copy.
            if isinstance(fresh, Redrawable):
                fresh = fresh.redrawn(model, derive(seed, "fresh feedback", number))
            drawn = in_its_precision(fresh, partial(_signals, fresh, model, x=x, y=y, blocks=blocks))
            for null, signal, gradient in zip(nulls, drawn, truth.gradients, strict=True):
                if signal is not None:
                    null.append(_mean_cosine(signal, gradient)[0])
    places = sum(signal is not None for signal in signals)
    return tuple(
        None if signal is None else _at_depth(signal, gradient, null, places)
        for signal, gradient, null in zip(signals, truth.gradients, nulls, strict=True)
    )


def _at_depth(signal: Tensor, gradient: Tensor, null: Sequence[float], places: int) -> DepthAlignment:
    cosine, error = _mean_cosine(signal, gradient)
    ratio = float((lengths(signal) / lengths(gradient)).nanmedian())
    if len(null) < 2:
        return DepthAlignment(cosine, error, ratio, places=places)
    values = torch.tensor(null, dtype=torch.float64)
    return DepthAlignment(cosine, error, ratio, float(values.mean()), float(values.std()), len(null), places)


def _mean_cosine(signal: Tensor, gradient: Tensor) -> tuple[float, float]:
    values = exact_cosines(signal, gradient)
    values = values[values.isfinite()]
    if not len(values):
        return math.nan, math.nan
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), error
