"""The three diagnostics exactly as published, thresholds and all, as a drop-in evaluator.

D1 fires when some block multiplies the stream by more than 50, D2 when the gradient of the batch-mean loss behind the
deepest block is below 10 eps = 1e-7, D3 when accuracy is less than 2 points above the frozen-blocks baseline. A run
fails if D1 and D2 fire together, or D3. ``audit_credit`` shows where these mislead; here they are kept for
comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.audits.credit.inputs import check_arguments
from assay.audits.credit.reference import measure_reference
from assay.audits.credit.scale import measure_scale
from assay.audits.credit.stream import Stream, exact_stream, lengths
from assay.audits.explained import explained
from assay.errors import expected
from assay.probe.blocks import discover_blocks, evaluating

GROWTH_LIMIT = 50.0
GRADIENT_LIMIT = 1e-7
UTILITY_MARGIN = 0.02


@dataclass(frozen=True)
class Published:
    """The published diagnostics; a flag of None means that the diagnostic was not run."""

    growth: float
    gradient: float
    utility: float | None

    @property
    def flags(self) -> tuple[bool, bool, bool | None]:
        """Whether D1, D2 and D3 fire; a NaN fires."""
        return (
            not self.growth <= GROWTH_LIMIT,
            not self.gradient >= GRADIENT_LIMIT,
            None if self.utility is None else not self.utility >= UTILITY_MARGIN,
        )

    @property
    def verdict(self) -> str:
        """'PASS', 'FAIL(D1+D2)', 'FAIL(D3)', 'FAIL(D1+D2+D3)', or 'NOT RUN(D3)' where only D3 is missing."""
        return _verdict(*self.flags)


def published(stream: Stream, *, accuracy: float | None = None, frozen_accuracy: float | None = None) -> Published:
    """The diagnostics of a stream measured in float64 on one batch; D3 needs both accuracies."""
    # Rounded far below one item: .95 - .93 is 2 points, not .0199999.
    utility = None if accuracy is None or frozen_accuracy is None else round(accuracy - frozen_accuracy, 9)
    return Published(measure_scale(stream).max_growth, measure_reference(stream, stream).raw[-1], utility)


class FAProtocol:
    """The published protocol on a trained model and a test batch, as its users call it.

    Medians over samples; of a stream of tokens the first one (the class token) is measured, or the last one where the
    model answers there (a causal one), of a picture the mean over its pixels. The model may be any ``nn.Module``; its
    blocks are found (``blocks`` overrides the choice). D3 compares with a baseline whose blocks were left frozen;
    without one it is not run and the verdict says so.

    >>> from assay.models import ResMLP
    >>> x, y = torch.linspace(-1, 1, 96).reshape(8, 12), torch.arange(8) % 3
    >>> protocol = FAProtocol(ResMLP(12, width=8, depth=2, classes=3), x, y, d1_threshold=50.0)
    >>> protocol.run()["verdict"]
    'NOT RUN(D3)'
    >>> protocol.run(frozen_baseline_acc=0.95, test_acc=0.97)["verdict"]
    'PASS'
    """

    def __init__(
        self,
        model: nn.Module,
        x_eval: Tensor,
        y_eval: Tensor,
        d1_threshold: float = GROWTH_LIMIT,
        d2_threshold: float = GRADIENT_LIMIT,
        d3_threshold: float = UTILITY_MARGIN,
        *,
        blocks: str | None = None,
        accuracy: float | None = None,
        frozen_accuracy: float | None = None,
    ) -> None:
        check_arguments(model, x_eval, y_eval, least=1)
        self.model, self.x, self.y = model, x_eval, y_eval
        self.limits = (d1_threshold, d2_threshold, d3_threshold)
        if not all(limit >= 0 for limit in self.limits):
            raise expected("thresholds of at least 0", given=", ".join(map(str, self.limits)))
        self.blocks, self.accuracy, self.frozen_accuracy = blocks, accuracy, frozen_accuracy

    def run(self, frozen_baseline_acc: float | None = None, test_acc: float | None = None) -> dict[str, Any]:
        """A dictionary with 'verdict', 'diagnostics' and 'blocks'; the model is left as it was.

        ``test_acc`` is the accuracy to compare with ``frozen_baseline_acc``; by default that of the batch.
        """
        frozen = self.frozen_accuracy if frozen_baseline_acc is None else frozen_baseline_acc
        accuracy = self.accuracy if test_acc is None else test_acc
        with explained(self.x):
            found = discover_blocks(self.model, self.x, glob=self.blocks)
        stream = exact_stream(self.model, self.x, self.y, found, part="read")
        utility = None
        if frozen is not None:
            reached = self._batch_accuracy() if accuracy is None else exact_share(accuracy, self.y.numel())
            utility = reached - exact_share(frozen, self.y.numel())
        steps = zip(stream.values, stream.ends, strict=False)
        growths = [_median(lengths(after) / lengths(before)) for before, after in steps]
        growth = math.nan if any(map(math.isnan, growths)) else max(growths)
        gradient = _median(lengths(stream.gradients[-1])) / len(self.y)
        fires = (
            not growth <= self.limits[0],
            not gradient >= self.limits[1],
            None if utility is None else utility < exact_share(self.limits[2], 0),
        )
        return {
            "verdict": _verdict(*fires),
            "diagnostics": {
                "D1_scale_growth": _entry(growth, self.limits[0], fires[0]),
                "D2_ref_validity": _entry(gradient, self.limits[1], fires[1]),
                "D3_depth_utility": _entry(None if utility is None else float(utility), self.limits[2], fires[2]),
            },
            "blocks": str(found),
        }

    @torch.no_grad()
    def _batch_accuracy(self) -> Fraction:
        with evaluating(self.model):
            right = int((self.model(self.x).argmax(-1) == self.y).sum())
        return Fraction(right, self.y.numel())


def exact_share(accuracy: float, items: int) -> Fraction:
    """An accuracy as a ratio of counts: of ``items`` where it is one, otherwise the decimal number that was written.

    .95 - .93 is then 2 points, not 0.0199999.

    >>> exact_share(0.95, 100) - exact_share(0.93, 100)
    Fraction(1, 50)

    A mean that was taken in float32, as accuracies mostly are, is the number that float32 stands for.

    >>> exact_share(0.9300000071525574, 64)
    Fraction(93, 100)
    """
    if not 0 <= accuracy <= 1:
        raise expected("an accuracy from 0 to 1", given=accuracy, do="give .349 for 34.9 %")
    count = round(accuracy * items)
    single = np.float32(accuracy)
    rounding = float(np.spacing(single)) if float(single) == accuracy else 1e-9
    if items and abs(accuracy * items - count) <= rounding * items:
        return Fraction(count, items)
    return Fraction(str(single) if float(single) == accuracy else repr(float(accuracy)))


def _verdict(one: bool, two: bool, three: bool | None) -> str:
    """A run fails if D1 and D2 fire together, or D3; what failed is joined by a plus."""
    failed = [*(["D1", "D2"] if one and two else []), *(["D3"] if three else [])]
    if failed:
        return f"FAIL({'+'.join(failed)})"
    return "NOT RUN(D3)" if three is None else "PASS"


def _median(values: Tensor) -> float:
    """The middle value, mean of the two middle ones of an even number; NaN if any is."""
    return float(values.quantile(0.5)) if not bool(values.isnan().any()) else math.nan


def _entry(value: float | None, threshold: float, fires: bool | None) -> dict[str, Any]:
    status = {True: "fires", False: "quiet", None: "not run: no frozen-blocks baseline was given"}[fires]
    return {"value": value, "threshold": threshold, "fires": fires, "status": status}
