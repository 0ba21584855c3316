"""Feedback alignment on any model: the error travels back through other matrices than the transposed weights."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from assay.errors import InputError, expected, unknown
from assay.probe.blocks import Blocks
from assay.probe.samples import Layout
from assay.rules.backprop import mean_loss
from assay.rules.feedback.blocks import BlockFeedback
from assay.rules.feedback.coverage import Coverage
from assay.rules.feedback.inputs import check_batch, check_finite, refuse_compiled
from assay.rules.feedback.matrices import Matrices
from assay.rules.feedback.places import feedback_layers
from assay.rules.feedback.routes import (
    AlignedRoutes,
    DirectRoutes,
    Feedback,
    LinearRoute,
    measure_layouts,
    weight_scale,
)
from assay.rules.feedback.survey import Survey, reading, take_survey
from assay.rules.feedback.weights import WeightNames

Kind = Literal["fa", "dfa"]
Level = Literal["layer", "block"]
Loss = Callable[[Tensor, Tensor], Tensor]
NOTHING = nullcontext()


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
        _check(model, kind, level=level, feedback=feedback, blocks=blocks, penalty=penalty)
        self.kind, self.level, self.feedback, self.seed = kind, level, feedback, seed
        self.blocks, self.penalty, self.loss = blocks, penalty, loss
        self.matrices = Matrices(seed, learned=feedback == "kolen-pollack")
        self._block = BlockFeedback(kind, self.matrices, glob=blocks, penalty=penalty, exact=feedback == "weights")
        self.refuse_partial = False
        """Whether to refuse a model that feedback does not reach wholly, instead of warning: comparisons do."""
        self._layouts: dict[str, Layout | None] = {}
        self._known: WeightNames | None = None
        self._survey: Survey | None = None
        self._carried: tuple[Survey, dict[str, Layout | None]] | None = None
        self._sent: set[str] | None = None
        self._prepared: dict[int, LinearRoute] = {}
        self._step = 0
        self._learnable = {
            name: (tuple(weight.shape), weight_scale(weight), torch.empty(0, dtype=weight.dtype, device=weight.device))
            for name, weight in model.named_parameters() if self.matrices.learned and weight.ndim > 1}

    def __repr__(self) -> str:
        return (f"FeedbackAlignment(kind={self.kind!r}, level={self.level!r}, feedback={self.feedback!r}, "
                f"seed={self.seed})")

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached mean loss, after adding this rule's gradient to ``.grad`` of every parameter it reaches."""
        self._step += 1
        check_batch(x, y)
        if self.level == "block":
            if self._block.blocks is None:
                refuse_compiled(model)
            return self._block.backward(model, x, y, self.loss)
        known, survey = self._look_around(model, x)
        routes: AlignedRoutes | DirectRoutes
        if self.kind == "fa":
            routes = AlignedRoutes(known, self.matrices, self.feedback, step=self._step, skip=survey.skip,
                                   prepared=self._prepared)
        else:
            routes = DirectRoutes(known, self.matrices, self._layouts, skip=survey.skip)
        watched = known.watched() if known.computes else NOTHING
        with torch.enable_grad(), feedback_layers(routes, only=survey.places, imported=survey.imported), watched:
            logits = model(x)
            if isinstance(routes, DirectRoutes):
                logits.register_hook(routes.error.append)
            loss = self.loss(logits, y)
            if not math.isfinite(loss.item()):
                check_finite(x)
            if self.matrices.learned:
                self.matrices.learn(loss, known.parameters, routes.usage.sent)
            else:
                loss.backward()  # type: ignore[no-untyped-call]
        if self._sent is not None and not routes.usage.sent >= self._sent:
            self._known = None  # the model does something else now: look again before the next step
        self._sent = routes.usage.sent
        return loss.detach()

    @property
    def coverage(self) -> Coverage:
        """Which weights use feedback, as found at the first backward pass (layer level)."""
        if self._survey is None:
            raise InputError("coverage is known after the first backward pass of a layer-level rule; call "
                             "rule.backward(model, x, y) once, or rule.survey(model, x)" if self.level == "layer" else
                             "a block-level rule replaces the stream's gradient; see rule.discovered")
        return self._survey.coverage

    def survey(self, model: nn.Module, x: Tensor) -> Coverage:
        """Which weights of ``model`` this rule reaches on inputs like ``x``: without a step, proved with zero feedback.

        Read from the autograd graph: a weight is reached when the error that passes it goes through feedback.
        """
        if self.level == "block":
            raise InputError("a block-level rule replaces the stream's gradient; see rule.discovered")
        check_batch(x, x)
        check_finite(x)
        self._survey = None
        return self._look_around(model, x)[1].coverage

    @property
    def discovered(self) -> Blocks | None:
        """The blocks a block-level rule works on, once it has seen an input."""
        return self._block.blocks

    def parameters(self) -> Iterator[nn.Parameter]:
        """Matrices that learn (Kolen-Pollack); give them to the optimiser together with the model's.

        Before the first step, or a ``survey``, nobody knows which weights will use theirs, so there is one for each;
        those that nothing uses are emptied at the first step.
        """
        wanted = self._learnable if self._survey is None else self._survey.coverage.used
        for name, (shape, scale, like) in self._learnable.items():
            if name in wanted:
                self.matrices.draw(name, shape, scale=scale, like=like)
        return (tensor for tensor in self.matrices.tensors.values() if isinstance(tensor, nn.Parameter))

    def redrawn(self, model: nn.Module, seed: int) -> FeedbackAlignment:
        """The same rule with other matrices: the null against which alignment is judged."""
        other = FeedbackAlignment(model, kind=self.kind, level=self.level, feedback=self.feedback, seed=seed,
                                  blocks=self.blocks, penalty=self.penalty, loss=self.loss)
        other._carried = self._to_carry()
        other._block.acquaint(self._block)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> FeedbackAlignment:
        """The same matrices for a copy of the model; what was found of the model holds for its copy too."""
        twin = object.__new__(type(self))
        fresh: dict[str, Any] = {"_known": None, "_survey": None, "_sent": None, "_prepared": {}}
        fresh["_carried"] = self._to_carry()
        for name, value in vars(self).items():
            setattr(twin, name, fresh[name] if name in fresh else copy.deepcopy(value, memo))
        return twin

    def _to_carry(self) -> tuple[Survey, dict[str, Layout | None]] | None:
        return self._carried if self._survey is None else (self._survey, dict(self._layouts))

    def state_dict(self) -> dict[str, Tensor]:
        """All matrices drawn so far; a checkpoint without them cannot be audited."""
        return self.matrices.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the matrices of a checkpoint."""
        self.matrices.load_state_dict(state)
        self._prepared.clear()

    def _look_around(self, model: nn.Module, x: Tensor) -> tuple[WeightNames, Survey]:
        """The model's weights and the survey, made anew for another model; warns where feedback does not reach."""
        known = self._known
        if known is None or known.model is not model:
            refuse_compiled(model)
            known = self._known = WeightNames(model)
            self._survey, self._sent = None, None
            self._prepared.clear()
            if self._carried is not None:
                (self._survey, self._layouts), self._carried = self._carried, None
        if self._survey is None:
            direct = self.kind == "dfa"
            if direct:
                with reading(model, x):
                    self._layouts = measure_layouts(model, x, known)
            mixed = [name for name, layout in self._layouts.items() if layout is None]
            found = take_survey(model, x, known, direct=direct, unreachable=mixed,
                                learned=self.feedback == "kolen-pollack")
            if not found.coverage.used:
                raise InputError(f"no weight of {type(model).__name__} could use feedback, so this would be plain "
                                 f"backprop: {found.coverage}")
            if not found.coverage.complete and self.refuse_partial:
                raise InputError(f"{found.coverage.warning()}; a comparison would call backprop by another name")
            if not found.coverage.complete:
                warnings.warn(found.coverage.warning(), stacklevel=3)
            if found.coverage.constants:
                warnings.warn(found.coverage.notice(), stacklevel=3)
            self._survey = found
            if self.matrices.learned:
                self.matrices.release(found.coverage.used)
        return known, self._survey


def _check(model: nn.Module, kind: str, *, level: str, feedback: str, blocks: str | None, penalty: float) -> None:
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
