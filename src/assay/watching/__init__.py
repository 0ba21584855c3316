"""Credit, symmetry and gradient health during somebody else's training: any loop, Lightning, Hugging Face.

    from assay.watching import Watch                                  # any loop: watch.step(model, step)
    from assay.watching.lightning import AssayCallback                # Trainer(callbacks=[AssayCallback(...)])
    from assay.watching.huggingface import AssayCallback              # Trainer(..., callbacks=[AssayCallback(...)])
"""

from assay.watching.watch import Entry, Watch

__all__ = ["Entry", "Watch"]
