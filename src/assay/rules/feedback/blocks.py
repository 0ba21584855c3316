"""Block-level feedback: the gradient at every block boundary is thrown away and replaced.

With e = dL/dlogits, g_l = dL/dh_l and fixed random B_l:

    fa    a_L = g_L,    a_l = B_l a_{l+1}      (the identity skip is thrown away, as in the published audit)
    dfa   a_l = B_l e   for every l

Inside a block autograd runs as usual, so block l learns from the surrogate <h_{l+1}, a_{l+1}> and the head from its
true gradient. Replacing the gradient of the stream itself, with a hook on the tensor h_l, keeps one backward pass and
is right for both skip styles: whatever reads h_l, its gradient is discarded. As it is discarded, it need not be
computed: where that is safe a block reads h_l cut off from its past, which saves what the product with B_l costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.probe.blocks import Blocks, discover_blocks
from assay.probe.samples import Layout
from assay.probe.stream import can_cut, tapped
from assay.rules.feedback.direct import direct_signal
from assay.rules.feedback.inputs import check_finite
from assay.rules.feedback.matrices import Matrices

Loss = Callable[[Tensor, Tensor], Tensor]


class BlockFeedback:
    """One backward pass with the stream gradients replaced; ``penalty`` adds lambda |f_l|^2 to each block's loss.

    With ``exact`` every replacement is the gradient itself: the proof that the plumbing changes nothing else.
    """

    def __init__(self, kind: str, matrices: Matrices, *, glob: str | None, penalty: float, exact: bool = False) -> None:
        self.kind, self.matrices, self.glob, self.penalty, self.exact = kind, matrices, glob, penalty, exact
        self.blocks: Blocks | None = None
        self.cut = False
        self._asked: tuple[bool, ...] = ()

    def acquaint(self, other: BlockFeedback) -> None:
        """Take over what another rule for the same model has found out."""
        self.blocks, self.cut, self._asked = other.blocks, other.cut, other._asked

    def backward(self, model: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
        """The detached mean loss, after one backward pass with replaced stream gradients."""
        if self.blocks is None:
            self.blocks = discover_blocks(model, x, glob=self.glob)
        blocks = self.blocks
        state = (model.training, *(parameter.requires_grad for parameter in model.parameters()))
        if state != self._asked:  # a block may hide its weights in training alone, or have been frozen since
            self._asked, self.cut = state, not self.exact and can_cut(model, x, blocks)
        depth = len(blocks)
        layout: Layout = "batch second" if blocks.batch_axis else "batch first"
        credit: dict[int, Tensor] = {}
        written: dict[int, Tensor] = {}
        previous: list[Tensor] = []
        error: list[Tensor] = []
        roots: list[Tensor] = []

        def replace(level: int, gradient: Tensor) -> Tensor:
            if self.kind == "dfa":
                signal = direct_signal(self.matrices, f"stream.{level}", error[0], gradient, layout=layout)
            elif level == depth or self.exact:
                signal = gradient
            else:
                signal = self._from_above(level, credit[level + 1], gradient)
            credit[level] = signal
            # d/dh of lambda * mean_n |f|^2, f the part block ``level - 1`` wrote; its own gradient stops at its input.
            return signal + 2 * self.penalty / len(y) * written[level] if level in written else signal

        def visit(level: int, h: Tensor) -> Tensor | None:
            if self.penalty:
                now = h.detach().clone()  # a model may add in place
                if previous and previous[-1].shape == now.shape:
                    written[level] = now - previous[-1]
                previous.append(now)
            if not h.requires_grad:
                return None
            h.register_hook(lambda gradient: replace(level, gradient))  # type: ignore[no-untyped-call]
            if not self.cut or level == depth:
                return None
            roots.append(h)
            return h.detach()

        with torch.enable_grad(), tapped(model, blocks, visit):
            logits = model(x)
            if not isinstance(logits, Tensor):
                raise expected("a model that returns a tensor of logits", given=type(logits).__name__)
            logits.register_hook(error.append)  # type: ignore[no-untyped-call]
            value = loss(logits, y)
            if not math.isfinite(value.item()):
                check_finite(x)
        # Nothing may reach a cut stream, so its hooks are set off by a gradient of zero, which they throw away.
        # Autograd goes from the last operation to the first: a_{l+1} is known when a_l is asked for.
        torch.autograd.backward([value, *roots], [None, *(h.new_zeros(()).expand_as(h) for h in roots)])
        return value.detach()

    def _from_above(self, level: int, above: Tensor, like: Tensor) -> Tensor:
        """B_l a_{l+1}: a map of features, the same at every position (token or pixel)."""
        convolutional = like.ndim >= 4
        rows, columns = (t.shape[1 if convolutional else -1] for t in (like, above))
        # N(0, 1/rows) keeps the length of the signal: |B a| is about |a|.
        matrix = self.matrices.draw(f"stream.{level}", (rows, columns), scale=rows**-0.5, like=like)
        if not convolutional:
            return above @ matrix.T
        signal = torch.einsum("rc,nc...->nr...", matrix, above)
        if signal.shape != like.shape:  # a stage of a convolutional net halved the picture
            signal = nn.functional.interpolate(signal, size=like.shape[2:], mode="nearest")
        return signal
