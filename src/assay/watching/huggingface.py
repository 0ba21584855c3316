"""A callback for the Trainer of Hugging Face: ``Trainer(..., callbacks=[AssayCallback(credit=(tokens, labels))])``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import MissingExtra
from assay.watching.watch import Watch

if TYPE_CHECKING:
    TrainerCallback = Any
else:
    try:
        from transformers import TrainerCallback
    except ImportError:
        TrainerCallback = object


class AssayCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Numbers of ``assay.watching.Watch`` in ``trainer.state.log_history``; ``callback.watch`` holds the findings.

    ``options`` are those of ``Watch``. Models that answer with an object are audited as functions to their logits.
    """

    def __init__(self, **options: Any) -> None:
        if TrainerCallback is object:
            raise MissingExtra("transformers", "huggingface", "the callback for Hugging Face's Trainer")
        self.watch = Watch(**options)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """After the backward, before the weights move: gradients are there."""
        del args, control
        values = self.watch.step(more["model"], state.global_step + 1)
        if values:
            state.log_history.append({"step": state.global_step + 1, **values})
