"""Feedback alignment on any model: the error travels back through other matrices than the transposed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from assay.errors import InputError, expected, unknown
from assay.probe.blocks import Blocks
from assay.probe.samples import Layout
from assay.rules.backprop import mean_loss
from assay.rules.feedback.blocks import BlockFeedback
from assay.rules.feedback.coverage import Coverage, describe
from assay.rules.feedback.layers import feedback_layers
from assay.rules.feedback.matrices import Matrices
from assay.rules.feedback.routes import AlignedRoutes, DirectRoutes, Feedback, measure_layouts, weight_scale

Kind = Literal["fa", "dfa"]
Level = Literal["layer", "block"]
Loss = Callable[[Tensor, Tensor], Tensor]


class FeedbackAlignment:
    """Gives a model's parameters gradients whose error came back through feedback matrices.

    ``kind="fa"`` sends each error one step down through a fixed matrix B (Lillicrap et al. 2016), ``"dfa"`` sends the
    output error straight to every depth (Nokland 2016). ``level="layer"`` does so at every weight (linear, convolution,
    attention projections, products with a parameter) and keeps skip connections; ``level="block"`` once per block and
    throws the skip away. The two differ by orders of magnitude in what they do to a residual net: name both.

    ``feedback`` says what B is, at layer level with ``kind="fa"``: ``random``; the signs of the weight with one size
    (``sign``, uSF), with fixed random sizes (``sign-fixed``, frSF) or sizes redrawn every step (``sign-batch``, brSF);
    ``kolen-pollack``, where B gets the gradient of W and learns beside it: ``assay.train`` does so, any other loop
    hands ``rule.parameters()`` to the optimiser too; with weight decay;
    ``weights``, B = W, which is backprop and the proof that nothing else was changed.

    ``penalty`` (block level) adds lambda |f_l|^2 to the loss of each block, f_l being what the block writes.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> rule = FeedbackAlignment(model, kind="dfa", seed=0)
    >>> loss = rule.backward(model, torch.ones(2, 4), torch.tensor([0, 1]))
    >>> rule.coverage.used
    ('2.weight', '4.weight')
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        kind: Kind = "fa",
        level: Level = "layer",
        feedback: Feedback = "random",
        seed: int = 0,
        blocks: str | None = None,
        penalty: float = 0.0,
        loss: Loss = mean_loss,
    ) -> None:
        _check(model, kind, level, feedback, blocks, penalty)
        self.kind, self.level, self.feedback, self.seed = kind, level, feedback, seed
        self.blocks, self.penalty, self.loss = blocks, penalty, loss
        self.matrices = Matrices(seed, learned=feedback == "kolen-pollack")
        self._block = BlockFeedback(kind, self.matrices, glob=blocks, penalty=penalty, exact=feedback == "weights")
        self._layouts: dict[str, Layout | None] | None = None
        self._coverage: Coverage | None = None
        self._step = 0
        if self.matrices.learned:  # the optimiser must see them before the first step
            for name, weight in model.named_parameters():
                if weight.ndim > 1:
                    self.matrices.draw(name, tuple(weight.shape), scale=weight_scale(weight), like=weight.detach())

    def __repr__(self) -> str:
        return (f"FeedbackAlignment(kind={self.kind!r}, level={self.level!r}, feedback={self.feedback!r}, "
                f"seed={self.seed})")

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached mean loss, after adding this rule's gradient to ``.grad`` of every parameter it reaches."""
        self._step += 1
        if self.level == "block":
            return self._block.backward(model, x, y, self.loss)
        routes, first = self._routes(model, x), self._coverage is None
        with torch.enable_grad(), feedback_layers(routes):
            logits = model(x)
            if not isinstance(logits, Tensor) or not logits.requires_grad:
                raise expected("a model whose output is a tensor that depends on its parameters",
                               given=type(logits).__name__)
            if isinstance(routes, DirectRoutes):
                logits.register_hook(routes.error.append)  # type: ignore[no-untyped-call]
            loss = self.loss(logits, y)
            with self.matrices.learning(model, routes.usage.sent):
                loss.backward(retain_graph=first)  # type: ignore[no-untyped-call]
        if first:
            self._coverage = describe(model, routes.usage, loss)
            if not self._coverage.used:
                raise InputError(f"no weight of {type(model).__name__} could use feedback, so this would be plain "
                                 f"backprop: {self._coverage}; a compiled or scripted model cannot be reached")
        return loss.detach()

    @property
    def coverage(self) -> Coverage:
        """Which weights used feedback in the first backward pass (layer level)."""
        if self._coverage is None:
            raise InputError("coverage is known after the first backward pass of a layer-level rule; call "
                             "rule.backward(model, x, y) once" if self.level == "layer" else
                             "a block-level rule replaces the stream's gradient; see rule.discovered")
        return self._coverage

    @property
    def discovered(self) -> Blocks | None:
        """The blocks a block-level rule works on, once it has seen an input."""
        return self._block.blocks

    def parameters(self) -> Iterator[nn.Parameter]:
        """Matrices that learn (Kolen-Pollack); give them to the optimiser together with the model's."""
        return (tensor for tensor in self.matrices.tensors.values() if isinstance(tensor, nn.Parameter))

    def redrawn(self, model: nn.Module, seed: int) -> FeedbackAlignment:
        """The same rule with other matrices: the null against which alignment is judged."""
        return FeedbackAlignment(model, kind=self.kind, level=self.level, feedback=self.feedback, seed=seed,
                                 blocks=self.blocks, penalty=self.penalty, loss=self.loss)

    def state_dict(self) -> dict[str, Tensor]:
        """All matrices drawn so far; a checkpoint without them cannot be audited."""
        return self.matrices.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the matrices of a checkpoint."""
        self.matrices.load_state_dict(state)

    def _routes(self, model: nn.Module, x: Tensor) -> AlignedRoutes | DirectRoutes:
        if self.kind == "fa":
            return AlignedRoutes(model, self.matrices, self.feedback, step=self._step)
        if self._layouts is None:
            self._layouts = measure_layouts(model, x)
        return DirectRoutes(model, self.matrices, self._layouts)


def _check(model: nn.Module, kind: str, level: str, feedback: str, blocks: str | None, penalty: float) -> None:
    if not isinstance(model, nn.Module):
        raise expected("a torch.nn.Module", given=type(model).__name__)
    for what, given, known in (("kind", kind, get_args(Kind)), ("level", level, get_args(Level)),
                               ("feedback", feedback, get_args(Feedback))):
        if given not in known:
            raise InputError(unknown(what, given, known))
    if feedback not in ("random", "weights") and (kind, level) != ("fa", "layer"):
        raise expected(f"kind='fa' and level='layer' with feedback='{feedback}'",
                       given=f"kind='{kind}', level='{level}'",
                       do="only there does every weight have a matrix of its own shape")
    if feedback == "weights" and kind == "dfa":
        raise expected("feedback='random' with kind='dfa'", given="feedback='weights'",
                       do="no weight leads from the output straight to a depth")
    if level == "layer" and (blocks is not None or penalty):
        raise expected("blocks= and penalty= with level='block' only", given=f"blocks={blocks!r}, penalty={penalty}")
    if penalty < 0:
        raise expected("penalty >= 0", given=penalty)
