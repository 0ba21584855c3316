"""Everything a credit audit measures, as one frozen value; deciding and describing happen elsewhere."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from assay.audits.credit.alignment import DepthAlignment, can_redraw, credit_signals, is_gradient, measure_alignment
from assay.audits.credit.depth import NOT_RUN, Baselines, Utility, judge_utility
from assay.audits.credit.equilibrium import layers_at_rest, parameter_alignment, stream_at_rest
from assay.audits.credit.published import Published, published
from assay.audits.credit.reference import ReferenceSizes, clamped_cosine, measure_reference
from assay.audits.credit.response import DepthResponse, measure_response
from assay.audits.credit.scale import StreamScale, measure_scale
from assay.audits.credit.stream import Stream, exact_stream, in_precision, plain_stream
from assay.audits.explained import explained
from assay.probe.blocks import Blocks, discover_blocks
from assay.protocols import EquilibriumModel, Rule, is_local
from assay.rules.feedback import Coverage, FeedbackAlignment


@dataclass(frozen=True)
class Credit:
    """The measurements of one audit. ``places`` name the depths of the stream, ``sites`` those of the alignment."""

    blocks: Blocks
    places: tuple[str, ...]
    scale: StreamScale
    reference: ReferenceSizes
    published: Published
    sites: tuple[str, ...]
    alignment: tuple[DepthAlignment | None, ...]
    clamped: tuple[float | None, ...]
    response: tuple[DepthResponse, ...]
    utility: Utility
    baselines: Baselines | None
    rule: str
    has_null: bool
    samples: int
    coverage: Coverage | None = None
    """Which weights a layer-level feedback rule reaches; None for other rules."""


def measure_credit(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    rule: Rule | None,
    baselines: Baselines | None,
    glob: str | None,
    seed: int,
    redraws: int,
    responses: bool,
) -> Credit:
    """Measure the stream, the reference, the rule's signals and, given baselines, the use of depth."""
    at_rest = isinstance(model, EquilibriumModel)
    with explained(x):
        blocks = layers_at_rest(model) if at_rest else discover_blocks(model, x, glob=glob)
    if at_rest:
        with explained(x):
            exact, plain = stream_at_rest(model, x, y, torch.float64), stream_at_rest(model, x, y, None)
    else:
        exact, plain = exact_stream(model, x, y, blocks), plain_stream(model, x, y, blocks)
    places = tuple(f"layer {i + 1}" if at_rest else f"h_{i}" for i in range(exact.depth + 1))
    signals = _measure_signals(
        model, x, y=y, rule=rule, blocks=blocks, exact=exact, places=places, at_rest=at_rest, seed=seed,
        redraws=redraws, responses=responses,
    )
    accuracy = baselines.accuracy("rule") if baselines else None
    frozen = baselines.accuracy("frozen") if baselines else None
    return Credit(
        blocks=blocks,
        places=places,
        scale=measure_scale(exact),
        reference=measure_reference(exact, plain),
        published=published(exact, accuracy=accuracy, frozen_accuracy=frozen),
        sites=signals.sites,
        alignment=signals.alignment,
        clamped=signals.clamped,
        response=signals.response,
        utility=judge_utility(baselines) if baselines else NOT_RUN,
        baselines=baselines,
        rule=type(rule).__name__ if rule else "",
        has_null=can_redraw(rule) and redraws > 1,
        samples=len(y),
        coverage=_coverage(rule, model, x),
    )


def _coverage(rule: Rule | None, model: nn.Module, x: Tensor) -> Coverage | None:
    if not isinstance(rule, FeedbackAlignment) or rule.level != "layer":
        return None
    twin, inputs = in_precision(model, x, None)
    with warnings.catch_warnings():  # it becomes a check of the audit
        warnings.simplefilter("ignore")
        return rule.redrawn(twin, 0).survey(twin, inputs)


class _Signals(NamedTuple):
    """Where the rule's signal was read, its alignment there, the published clamped cosine, and the loss's response."""

    sites: tuple[str, ...]
    alignment: tuple[DepthAlignment | None, ...]
    clamped: tuple[float | None, ...]
    response: tuple[DepthResponse, ...]


def _measure_signals(
    model: nn.Module,
    x: Tensor,
    *,
    y: Tensor,
    rule: Rule | None,
    blocks: Blocks,
    exact: Stream,
    places: tuple[str, ...],
    at_rest: bool,
    seed: int,
    redraws: int,
    responses: bool,
) -> _Signals:
    signals: list[Tensor | None] = [None] * len(places)
    alignment: tuple[DepthAlignment | None, ...] = (None,) * len(places)
    if rule is not None:
        # A local rule sends nothing down the stream: what it gives the weights is all there is to look at.
        signals = [] if at_rest or is_local(rule) else credit_signals(rule, model, x, y, blocks=blocks)
        own_graph = any(signal is not None for signal in signals)
        if own_graph:
            alignment = measure_alignment(
                rule, model, x=x, y=y, blocks=blocks, truth=exact, seed=seed, redraws=redraws, signals=signals
            )
        if all(is_gradient(a) for a in alignment):  # then what reached the weights tells: a rule may change it last
            found = parameter_alignment(rule, model, x, y)
            if not own_graph or not all(is_gradient(a) for a in found.values()):
                return _Signals(tuple(found), tuple(found.values()), (None,) * len(found), ())
    samples = len(y)
    clamped = tuple(
        None if signal is None else clamped_cosine(signal / samples, gradient / samples)
        for signal, gradient in zip(signals, exact.gradients, strict=True)
    )
    response: tuple[DepthResponse, ...] = ()
    if responses and not at_rest:
        response = measure_response(model, x, y=y, blocks=blocks, truth=exact, signals=signals, seed=seed)
    return _Signals(places, alignment, clamped, response)
