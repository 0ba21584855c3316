"""What a kernel is asked, what it answers, what the oracle answers, and how far rounding may put them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models import EnergyMLP, LoopedMLP
from assay.solvers.reference import LayeredReference, LoopedReference, one_hot

Array = NDArray[Any]
Steps = list[list[Array]]
"""The units of every layer after each sweep."""
SIGMAS = 4.0
"""Rounding errors of a dot product add up like a random walk: root n of them, and four standard deviations."""
LEAST_GAP = 0.05
"""A map that contracts by rho amplifies an error by at most 1 / (1 - rho); slower maps than 0.95 are taken as 0.95."""


@dataclass(frozen=True)
class Problem:
    """One question to a kernel: a network, a batch and a schedule, every array in the precision to be tested.

    ``network`` is a ``LayeredReference`` (weights, biases, gamma, activation, readout) or a ``LoopedReference`` (w_in,
    b, w, w_out, b_out, activation). ``y`` holds class indices.
    """

    name: str
    network: LayeredReference | LoopedReference
    x: Array
    y: NDArray[np.int64]
    beta: float
    sweeps: tuple[int, int]
    classes: int

    def cast(self, dtype: str) -> Problem:
        """The same question in another precision."""
        names = [name for name in self.network.__dataclass_fields__ if name not in ("gamma", "activation", "readout")]
        arrays = {name: _cast(getattr(self.network, name), dtype) for name in names}
        return replace(self, network=replace(self.network, **arrays), x=self.x.astype(dtype))

    @property
    def precision(self) -> str:
        """The name of the dtype."""
        return str(self.x.dtype)


@dataclass(frozen=True)
class Answer:
    """States after each free sweep and each sweep nudged by +beta and -beta, the output, and gradients by name.

    A gradient is of the mean loss, by the centered difference; names are ``weights.0``, ``biases.0``, ... for layers
    and ``w_in``, ``b``, ``w``, ``w_out``, ``b_out`` for a loop (``w`` with all its entries free).
    """

    free: Steps
    plus: Steps
    minus: Steps
    output: Array
    gradients: dict[str, Array]


Kernel = Callable[[Problem], Answer]


@dataclass(frozen=True)
class Tolerance:
    """How far a state and each gradient may be off by rounding alone."""

    state: float
    gradients: dict[str, float]


def oracle(problem: Problem) -> Answer:
    """The answer of the NumPy reference in float64."""
    exact = problem.cast("float64")
    net, x, y = exact.network, exact.x, one_hot(exact.y, exact.classes)
    free_sweeps, nudged_sweeps = exact.sweeps
    if isinstance(net, LoopedReference):
        free = net.trajectory(x, net.start(x), sweeps=free_sweeps)
        plus, minus = (
            net.trajectory(x, free[-1], sweeps=nudged_sweeps, beta=b, y=y) for b in (exact.beta, -exact.beta)
        )
        output = free[-1] @ net.w_out.T + net.b_out
        gradients = dict(net.gradient(x, y, beta=exact.beta, sweeps=exact.sweeps))
        return Answer([[h] for h in free], [[h] for h in plus], [[h] for h in minus], output, gradients)
    states = net.trajectory(x, net.start(x), sweeps=free_sweeps)
    up, down = (net.trajectory(x, states[-1], sweeps=nudged_sweeps, beta=b, y=y) for b in (exact.beta, -exact.beta))
    pairs = net.gradient(x, y, beta=exact.beta, sweeps=exact.sweeps)
    named = {f"{kind}.{i}": pair[j] for i, pair in enumerate(pairs) for j, kind in enumerate(("weights", "biases"))}
    return Answer(states, up, down, net.output(states[-1]), named)


def tolerance(problem: Problem, answer: Answer) -> Tolerance:
    """Unit roundoff x 4 sqrt(terms) x size of the sums x layers, amplified by the contraction; see the lines below."""
    roundoff = float(np.finfo(problem.precision).eps) / 2
    net = problem.network
    loop = isinstance(net, LoopedReference)
    if isinstance(net, LoopedReference):
        matrices, outward, gamma, depth = [net.w_in, net.w], net.w_out, 1.0, 1
    else:
        matrices, outward, gamma, depth = list(net.weights), net.weights[-1], net.gamma, net.depth
    units = max(1.0, *(float(np.abs(layer).max()) for step in answer.free for layer in step))
    largest_input = max(units, float(np.abs(problem.x).max()))
    # One drive is a few dot products: the size of its terms is the largest row sum of weights times units.
    size = max(float(np.abs(matrix).sum(1).max()) for matrix in matrices) * largest_input + 1.0
    terms = max(matrix.shape[1] for matrix in matrices)
    state = SIGMAS * np.sqrt(terms) * roundoff * size * depth / max(LEAST_GAP, 1 - _contraction(answer))
    # dW = -(s+ s+' - s- s-') / 2 beta: each product is off by twice the state's error times the other factor; for a
    # bias, -(s+ - s-) / 2 beta, there is no other factor.
    of_weight, of_bias = 2 * state * largest_input / problem.beta, state / problem.beta
    gradients = {}
    for name in answer.gradients:
        layer = 0 if loop else int(name.rpartition(".")[2])
        inside = not loop and layer < depth
        scale = gamma ** (layer + 1 - depth) if inside else 1.0
        # The output layer is read at the free state: no division by beta, but logits are sums of its weights.
        reads = name in ("w_out", "b_out") or (not loop and layer >= depth)
        of_entry = scale * (of_bias if name.startswith("b") else of_weight)
        gradients[name] = float(2 * state * (1 + np.abs(outward).sum(1).max()) if reads else of_entry)
    return Tolerance(float(state), gradients)


def problems(*, seed: int, sweeps: tuple[int, int], beta: float) -> tuple[Problem, ...]:
    """Layered and looped networks, fresh and trained, on random inputs; all in float64."""
    import torch

    from assay.rules import EqProp, train
    from assay.seeding import numpy_generator
    from assay.tasks import blobs

    task = blobs(seed=seed)
    width, classes = task.train.x.shape[1], task.classes
    chosen = numpy_generator(seed, "kernel", "inputs").permutation(len(task.test))[:8]
    x, y = task.test.x[torch.from_numpy(chosen)].double().numpy(), task.test.y[torch.from_numpy(chosen)].numpy()
    asked = []
    for trained in (False, True):
        layered = EnergyMLP([width, 16, 16, 16, classes], gamma=0.25, seed=seed)
        looped = LoopedMLP(width, 16, classes, seed=seed)
        for kind, model in (("layered", layered), ("looped", looped)):
            if trained:
                train(model, task, EqProp(beta=0.2), epochs=2, seed=seed)
            name = f"{kind}, {'trained' if trained else 'untrained'}"
            asked.append(Problem(name, network_of(model), x, y, beta, sweeps, classes))
    return tuple(asked)


def network_of(model: EnergyMLP | LoopedMLP) -> LayeredReference | LoopedReference:
    """The parameters of a model as the oracle takes them, in float64."""

    def array(tensor: Any) -> Array:
        return np.asarray(tensor.detach().double().numpy())

    if isinstance(model, LoopedMLP):
        return LoopedReference(
            array(model.input_weight()), array(model.input.bias), array(model.loop_weight()),
            array(model.output.weight), array(model.output.bias), model.activation.name,
        )  # fmt: skip
    layers: list[Any] = list(model.layers)
    return LayeredReference(
        tuple(array(layer.weight) for layer in layers), tuple(array(layer.bias) for layer in layers),
        model.gamma, model.activation.name, model.readout,
    )  # fmt: skip


def _contraction(answer: Answer) -> float:
    """The factor by which the oracle's free sweeps shrink the change, over those well above rounding."""
    changes = [
        max(float(np.abs(b - a).max()) for a, b in zip(before, after, strict=True))
        for before, after in zip(answer.free, answer.free[1:], strict=False)
    ]
    moving = [change for change in changes if change > 1e-12]
    return 0.0 if len(moving) < 2 else min(1.0, (moving[-1] / moving[0]) ** (1 / (len(moving) - 1)))


def _cast(value: Any, dtype: str) -> Any:
    return tuple(_cast(part, dtype) for part in value) if isinstance(value, tuple) else np.asarray(value, dtype=dtype)
