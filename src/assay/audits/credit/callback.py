"""Watch credit during training: the audit without depth utility, after every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from assay.audits.credit.audit import audit_credit
from assay.protocols import Rule
from assay.results import Figure, Finding, Series

if TYPE_CHECKING:
    from assay.learning.training import Epoch


class CreditCallback:
    """Hand it to ``assay.train(..., callbacks=[watch])``; ``findings`` holds one audit per epoch.

    >>> import assay, torch
    >>> task = assay.tasks.digits(seed=0)
    >>> model = assay.models.ResMLP(64, width=16, depth=2)
    >>> watch = CreditCallback(task.validation.x[:32], task.validation.y[:32], rule=assay.Backprop())
    >>> _ = assay.train(model, task, assay.Backprop(), epochs=1, seed=0, callbacks=[watch])
    >>> len(watch.findings)
    1
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        *,
        rule: Rule | None = None,
        blocks: str | None = None,
        seed: int = 0,
        redraws: int = 0,
    ) -> None:
        self.x, self.y, self.rule, self.blocks, self.seed, self.redraws = x, y, rule, blocks, seed, redraws
        self.epochs: list[int] = []
        self.findings: list[Finding] = []

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        self.epochs.append(epoch.number)
        self.findings.append(
            audit_credit(
                model,
                self.x,
                self.y,
                rule=self.rule,
                blocks=self.blocks,
                seed=self.seed,
                redraws=self.redraws,
                responses=False,
            )
        )

    def figure(self) -> Figure:
        """Growth and gradient norm against epochs; one whose weights were no longer finite has no point."""
        names = ("largest growth of a block", "gradient norm behind the last block")
        measured = [(float(e), f) for e, f in zip(self.epochs, self.findings, strict=True) if f.measurements]
        return Figure(
            key="credit-by-epoch",
            question="When does the stream start to explode?",
            x_label="epoch",
            y_label="value",
            y_scale="log",
            series=tuple(
                Series(
                    name=name,
                    x=tuple(epoch for epoch, _ in measured),
                    y=tuple(f.measurement(name).value or 0.0 for _, f in measured),
                )
                for name in names
            ),
        )
