"""The three diagnostics exactly as published, thresholds and all, as a drop-in evaluator.

D1 fires when some block multiplies the stream by more than 50, D2 when the gradient of the batch-mean loss behind the
deepest block is below 10 eps = 1e-7, D3 when accuracy is less than 2 points above the frozen-blocks baseline. A run
fails if D1 and D2 fire together, or D3. ``audit_credit`` shows where these mislead; here they are kept for
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.credit.reference import measure_reference
from assay.audits.credit.scale import measure_scale
from assay.audits.credit.stream import Stream, exact_stream
from assay.audits.explained import explained
from assay.probe.blocks import discover_blocks

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
        """'PASS', 'FAIL(D1+D2)', 'FAIL(D3)' or 'FAIL(D1+D2, D3)'."""
        one, two, three = self.flags
        reasons = [*(["D1+D2"] if one and two else []), *(["D3"] if three else [])]
        return f"FAIL({', '.join(reasons)})" if reasons else "PASS"


def published(stream: Stream, *, accuracy: float | None = None, frozen_accuracy: float | None = None) -> Published:
    """The diagnostics of a stream measured in float64 on one batch; D3 needs both accuracies."""
    utility = None if accuracy is None or frozen_accuracy is None else accuracy - frozen_accuracy
    return Published(measure_scale(stream).max_growth, measure_reference(stream, stream).raw[-1], utility)


class FAProtocol:
    """The published protocol on a trained model and a test batch.

    The model may be any ``nn.Module``; its blocks are found (``blocks`` overrides the choice). D3 compares with a
    baseline: give ``frozen_accuracy``, and ``accuracy`` unless that of the batch will do. Without it D3 is reported as
    not run, and PASS then speaks of D1 and D2 alone.

    >>> from assay.models import ResMLP
    >>> x, y = torch.linspace(-1, 1, 96).reshape(8, 12), torch.arange(8) % 3
    >>> report = FAProtocol(ResMLP(12, width=8, depth=2, classes=3), x, y).run()
    >>> report["verdict"], report["diagnostics"]["D3_depth_utility"]["status"]
    ('PASS', 'not run: no frozen-blocks baseline was given')
    """

    def __init__(
        self,
        model: nn.Module,
        x_eval: Tensor,
        y_eval: Tensor,
        *,
        blocks: str | None = None,
        accuracy: float | None = None,
        frozen_accuracy: float | None = None,
    ) -> None:
        self.model, self.x, self.y = model, x_eval, y_eval
        self.blocks, self.accuracy, self.frozen_accuracy = blocks, accuracy, frozen_accuracy

    def run(self) -> dict[str, Any]:
        """A dictionary with 'verdict', 'diagnostics' and 'blocks'; the model is left as it was."""
        with explained(self.x):
            found = discover_blocks(self.model, self.x, glob=self.blocks)
        stream = exact_stream(self.model, self.x, self.y, found)
        accuracy = self.accuracy
        if accuracy is None and self.frozen_accuracy is not None:
            accuracy = self._batch_accuracy()
        result = published(stream, accuracy=accuracy, frozen_accuracy=self.frozen_accuracy)
        one, two, three = result.flags
        return {
            "verdict": result.verdict,
            "diagnostics": {
                "D1_scale_growth": _entry(result.growth, GROWTH_LIMIT, one),
                "D2_ref_validity": _entry(result.gradient, GRADIENT_LIMIT, two),
                "D3_depth_utility": _entry(result.utility, UTILITY_MARGIN, three),
            },
            "blocks": str(found),
        }

    @torch.no_grad()
    def _batch_accuracy(self) -> float:
        from assay.probe.blocks import evaluating

        with evaluating(self.model):
            return float((self.model(self.x).argmax(-1) == self.y).double().mean())


def _entry(value: float | None, threshold: float, fires: bool | None) -> dict[str, Any]:
    status = {True: "fires", False: "quiet", None: "not run: no frozen-blocks baseline was given"}[fires]
    return {"value": value, "threshold": threshold, "fires": fires, "status": status}
