"""The credit metrics of the published audit, each as a function of its own: cosine, nudging, perturbation correlation.

All three take a model, a batch and the rule that trained it, and return one number per depth h_0 ... h_L (None
where the rule sends nothing through the stream). ``audit_credit`` shows them with their nulls and
controls, which a bare number lacks.
"""

from __future__ import annotations

from torch import Tensor, nn

from assay.audits.credit.alignment import credit_signals
from assay.audits.credit.response import measure_response
from assay.audits.credit.stream import Stream, exact_cosines, exact_stream
from assay.audits.explained import explained
from assay.probe.blocks import Blocks, discover_blocks
from assay.protocols import Rule

PerDepth = tuple[float | None, ...]


def credit_cosine(model: nn.Module, x: Tensor, y: Tensor, rule: Rule, *, blocks: str | None = None) -> PerDepth:
    """The mean cosine of the rule's signal with the true gradient, in float64 without a clamp.

    >>> import assay, torch
    >>> model = assay.models.ResMLP(12, width=8, depth=2, classes=3)
    >>> x, y = torch.linspace(-1, 1, 96).reshape(8, 12), torch.arange(8) % 3
    >>> [round(value, 6) for value in credit_cosine(model, x, y, assay.Backprop())]
    [1.0, 1.0, 1.0]
    """
    _, truth, signals = _measured(model, x, y, rule=rule, glob=blocks)
    return tuple(
        None if signal is None else float(exact_cosines(signal, gradient).nanmean())
        for signal, gradient in zip(signals, truth.gradients, strict=True)
    )


def nudging_test(
    model: nn.Module, x: Tensor, y: Tensor, rule: Rule, *, blocks: str | None = None, seed: int = 0
) -> PerDepth:
    """The relative change of the loss, L(h - eta a) / L(h) - 1, when the stream moves against the signal by 1e-3 |h|.

    Negative where the signal lowers the loss.
    """
    found, truth, signals = _measured(model, x, y, rule=rule, glob=blocks)
    return tuple(
        r.nudge for r in measure_response(model, x, y=y, blocks=found, truth=truth, signals=signals, seed=seed)
    )


def perturbation_correlation(
    model: nn.Module, x: Tensor, y: Tensor, rule: Rule, *, blocks: str | None = None, seed: int = 0
) -> PerDepth:
    """rho: the correlation over 32 random directions v of <a, eps v> with L(h + eps v) - L(h); 1 for the gradient."""
    found, truth, signals = _measured(model, x, y, rule=rule, glob=blocks)
    return tuple(r.rho for r in measure_response(model, x, y=y, blocks=found, truth=truth, signals=signals, seed=seed))


def _measured(
    model: nn.Module, x: Tensor, y: Tensor, *, rule: Rule, glob: str | None
) -> tuple[Blocks, Stream, list[Tensor | None]]:
    with explained(x):
        found = discover_blocks(model, x, glob=glob)
    return found, exact_stream(model, x, y, found), credit_signals(rule, model, x, y, blocks=found)
