r"""Forward-forward: two forward passes, one with the right label in the input and one with a wrong one.

Hinton (2022), "The forward-forward algorithm". The label overwrites the first numbers of the input. The goodness of a
hidden layer of n units is G = sum of its squared activities; each layer alone learns to tell the passes apart,

    loss_l = softplus(theta n - G_l(right)) + softplus(G_l(wrong) - theta n),

and hands on its activity divided by its root mean square, so that the next layer cannot read the goodness off its
length. The answer is the label with the largest goodness, summed over the hidden layers (without the first if there are
several), so ``predict`` is the rule's own. The last layer learns a softmax on the last hidden activity under a neutral
label, which ``read="softmax"`` asks instead.

Local: everything but the label, which is part of the input. Nothing is sent back, so the gradient of the model's own
loss is neither wanted nor met: ``audit_gradient`` must fail here.

Limit: for one hidden layer without activation the gradient of W is in closed form,
-2 s(theta n - G+) h+ x+^T + 2 s(G- - theta n) h- x-^T with s the logistic function.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import expected
from assay.probe.chain import Layer, layers_of
from assay.rules.graphs import add_gradients
from assay.seeding import torch_generator

SMALL = 1e-6
"""Added to a root mean square before dividing by it: a silent layer stays silent."""


class ForwardForward:
    """Forward-forward on a chain of layers that reads flat rows of at least as many numbers as there are classes.

    ``threshold`` is theta, per unit; ``label`` the number that marks the class in the input. Wrong labels are drawn
    from ``seed``, anew at every step. Takes at least one hidden layer; classification only.

    >>> net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> rule = ForwardForward(net)
    >>> loss = rule.backward(net, torch.ones(4, 6), torch.tensor([0, 1, 2, 0]))
    >>> tuple(rule.predict(net, torch.ones(4, 6)).shape)
    (4, 3)
    """

    local = True

    def __init__(
        self, model: nn.Module, *, threshold: float = 0.3, label: float = 1.0, seed: int = 0,
        read: Literal["goodness", "softmax"] = "goodness",
    ) -> None:
        layers = layers_of(model, rule="forward-forward")
        if len(layers) < 2:
            raise expected("at least one hidden layer for forward-forward", given=f"{len(layers)} layer")
        if not threshold > 0 or read not in ("goodness", "softmax"):
            raise expected("threshold > 0 and read 'goodness' or 'softmax'", given=f"{threshold} and {read!r}")
        self.threshold, self.label, self.seed, self.read, self.steps = threshold, label, seed, read, 0

    def __repr__(self) -> str:
        return f"ForwardForward(threshold={self.threshold}, label={self.label}, seed={self.seed}, read={self.read!r})"

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss, averaged over layers and rows, after adding each layer's own gradient to ``.grad``."""
        layers = layers_of(model, rule="forward-forward")
        classes = _classes(layers, x, y)
        self.steps += 1
        generator = torch_generator(self.seed, "wrong labels", self.steps)
        shift = torch.randint(1, classes, y.shape, generator=generator).to(y.device)
        right, wrong = (self._marked(x, labels, classes) for labels in (y, (y + shift) % classes))
        neutral = self._neutral(x, classes)
        losses = []
        for layer in layers[:-1]:
            with torch.enable_grad():
                good, bad = layer(right), layer(wrong)
                loss = self._told_apart(good, bad)
            add_gradients([loss], layer.parameters(), [None])
            losses.append(loss.detach())
            with torch.no_grad():
                right, wrong, neutral = normalised(good), normalised(bad), normalised(layer(neutral))
        with torch.enable_grad():
            readout = functional.cross_entropy(layers[-1](neutral), y)
        add_gradients([readout], layers[-1].parameters(), [None])
        return torch.stack(losses).mean()

    @torch.no_grad()
    def predict(self, model: nn.Module, x: Tensor) -> Tensor:
        """The score of every class: the goodness it finds as a label, or the softmax readout's logits."""
        layers = layers_of(model, rule="forward-forward")
        if self.read == "softmax":
            h = self._neutral(x, _classes(layers, x, None))
            for layer in layers[:-1]:
                h = normalised(layer(h))
            return layers[-1](h)
        classes = _classes(layers, x, None)
        scores = []
        for number in range(classes):
            h = self._marked(x, torch.full((len(x),), number, device=x.device), classes)
            found = []
            for layer in layers[:-1]:
                activity = layer(h)
                found.append(goodness(activity))
                h = normalised(activity)
            scores.append(sum(found[1:] if len(found) > 1 else found, start=torch.zeros_like(found[0])))
        return torch.stack(scores, dim=-1)

    def _told_apart(self, right: Tensor, wrong: Tensor) -> Tensor:
        """The loss of one layer, given its activities under right and wrong labels."""
        limit = self.threshold * right[0].numel()
        return (functional.softplus(limit - goodness(right)) + functional.softplus(goodness(wrong) - limit)).mean()

    def _marked(self, x: Tensor, labels: Tensor, classes: int) -> Tensor:
        marked = x.detach().clone()
        marked[:, :classes] = self.label * functional.one_hot(labels, classes).to(x.dtype)
        return marked

    def _neutral(self, x: Tensor, classes: int) -> Tensor:
        neutral = x.detach().clone()
        neutral[:, :classes] = self.label / classes
        return neutral


def goodness(activity: Tensor) -> Tensor:
    """The sum of the squared activities of each row."""
    return activity.square().flatten(1).sum(1)


def normalised(activity: Tensor) -> Tensor:
    """Each row divided by its root mean square."""
    size = activity.flatten(1).square().mean(1).sqrt().reshape(-1, *[1] * (activity.ndim - 1))
    return activity.detach() / (size.detach() + SMALL)


def _classes(layers: tuple[Layer, ...], x: Tensor, y: Tensor | None) -> int:
    """The number of classes, read off the last weight; an InputError for inputs or targets that do not fit."""
    classes = next(int(p.shape[0]) for module in layers[-1].weights for p in module.parameters() if p.ndim > 1)
    if x.ndim != 2 or x.shape[1] < classes or not x.is_floating_point():
        raise expected(f"flat rows of at least {classes} floating-point numbers for forward-forward, which writes the "
                       "label into the input", given=f"inputs of shape {tuple(x.shape)}, {x.dtype}")
    if y is not None and (y.is_floating_point() or y.ndim != 1):
        raise expected("one class index per row for forward-forward", given=f"targets of {y.dtype}, {tuple(y.shape)}",
                       do="predictive coding, dual propagation and target propagation take regressions")
    return classes
