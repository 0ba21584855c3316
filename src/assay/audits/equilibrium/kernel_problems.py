"""What a kernel is asked, what it answers, what the oracle answers, and how far rounding may put them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.networks.reference.attention import AttentionReference
from assay.networks.reference.conv import ConvReference
from assay.networks.reference.layered import LayeredReference, LoopedReference, one_hot

Array = NDArray[Any]
Network = LayeredReference | LoopedReference | ConvReference | AttentionReference
Model = EnergyMLP | LoopedMLP | EnergyConv | EnergyAttention
Steps = list[list[Array]]
"""The units of every layer after each sweep."""
SIGMAS = 4.0
"""Rounding errors of a dot product add up like a random walk: root n of them, and four standard deviations."""
LEAST_GAP = 0.05
"""A map that contracts by rho amplifies an error by at most 1 / (1 - rho); slower maps than 0.95 are taken as 0.95."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One question to a kernel: a network, a batch and a schedule, every array in the precision to be tested.

    ``network`` is a ``LayeredReference`` (weights, biases, gamma, activation, readout), a ``LoopedReference`` (w_in, b,
    w, w_out, b_out, activation), a ``ConvReference`` (weights, biases, gamma, activation, pooling) or an
    ``AttentionReference`` (tokens, positions, project, weights, biases, gamma, heads; ``x`` holds tokens). ``y`` holds
    class indices.
    """

    name: str
    network: Network
    x: Array
    y: NDArray[np.int64]
    beta: float
    sweeps: tuple[int, int]
    classes: int
    coordinates: str = "states"
    """What a nudged sweep is asked for: the states it leaves, or the deviations per unit of beta and gamma^(K-l)."""

    @lru_cache(maxsize=128)  # noqa: B019 - a question is small, and asked again for every planted mistake
    def cast(self, dtype: str) -> Problem:
        """The same question in another precision."""
        if self.precision == dtype:
            return self
        fields = {name: getattr(self.network, name) for name in self.network.__dataclass_fields__}
        arrays: Any = {n: _cast(v, dtype) for n, v in fields.items() if isinstance(v, tuple | np.ndarray)}
        x = self.x if np.issubdtype(self.x.dtype, np.integer) else self.x.astype(dtype)
        return replace(self, network=replace(self.network, **arrays), x=x)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the network."""
        net = self.network
        return net.b.dtype if isinstance(net, LoopedReference) else net.biases[0].dtype

    @property
    def precision(self) -> str:
        """The name of the dtype."""
        return str(self.dtype)


@dataclass(frozen=True)
class KernelAnswer:
    """States after each free sweep and each sweep nudged by +beta and -beta, the output, and gradients by name.

    A gradient is of the mean loss, by the centered difference; names are ``weights.0``, ``biases.0``, ... for layers
    and ``w_in``, ``b``, ``w``, ``w_out``, ``b_out`` for a loop (``w`` with all its entries free); attention adds
    ``tokens``, ``positions`` and ``project``.
    """

    free: Steps
    plus: Steps
    minus: Steps
    output: Array
    gradients: Mapping[str, Array]


Kernel = Callable[[Problem], KernelAnswer]


@dataclass(frozen=True)
class Tolerance:
    """How far a state and each gradient may be off by rounding alone."""

    state: float
    gradients: Mapping[str, float]
    nudged: float
    """Of the states, or deviations, of the nudged phases."""


@lru_cache(maxsize=128)
def oracle(problem: Problem) -> KernelAnswer:
    """The answer of the NumPy reference in float64; the same question is worked out once, since most of an audit's
    time went into answering it again for every planted mistake.
    """
    exact = problem.cast("float64")
    net: Any = exact.network
    x, y = exact.x, one_hot(exact.y, exact.classes)
    if exact.coordinates == "deviations":
        return _oracle_of_deviations(exact, y)
    free_sweeps, nudged_sweeps = exact.sweeps
    if isinstance(net, LoopedReference):
        free = net.trajectory(x, net.start(x), sweeps=free_sweeps)
        plus, minus = (
            net.trajectory(x, free[-1], sweeps=nudged_sweeps, beta=b, y=y) for b in (exact.beta, -exact.beta)
        )
        output = free[-1] @ net.w_out.T + net.b_out
        gradients = dict(net.gradient(x, y, beta=exact.beta, sweeps=exact.sweeps))
        return KernelAnswer([[h] for h in free], [[h] for h in plus], [[h] for h in minus], output, gradients)
    states = net.trajectory(x, net.start(x), sweeps=free_sweeps)
    up, down = (net.trajectory(x, states[-1], sweeps=nudged_sweeps, beta=b, y=y) for b in (exact.beta, -exact.beta))
    pairs = net.gradient(x, y, beta=exact.beta, sweeps=exact.sweeps)
    return KernelAnswer(states, up, down, net.output(states[-1]), _by_name(pairs))


def has_deviations(problem: Problem) -> bool:
    """Whether the reference of this network answers in deviations too."""
    return isinstance(problem.network, LayeredReference | LoopedReference)


def _oracle_of_deviations(exact: Problem, y: Array) -> KernelAnswer:
    net, x, betas = exact.network, exact.x, (exact.beta, -exact.beta)
    if isinstance(net, LoopedReference):
        free = net.trajectory(x, net.start(x), sweeps=exact.sweeps[0])
        moved = [[[d] for d in net.deviations(free[-1], sweeps=exact.sweeps[1], beta=b, y=y)] for b in betas]
        output, states = free[-1] @ net.w_out.T + net.b_out, [[h] for h in free]
    elif isinstance(net, LayeredReference):
        states = net.trajectory(x, net.start(x), sweeps=exact.sweeps[0])
        moved = [net.deviations(x, states[-1], sweeps=exact.sweeps[1], beta=b, y=y) for b in betas]
        output = net.output(states[-1])
    else:
        raise TypeError(f"{type(net).__name__} has no deviations of its own")
    gradients = _by_name(net.deviation_gradient(x, y, beta=exact.beta, sweeps=exact.sweeps))
    plus, minus = moved
    return KernelAnswer(states, plus, minus, output, gradients)


def _by_name(pairs: Any) -> dict[str, Array]:
    if isinstance(pairs, dict):
        return pairs
    kinds = enumerate(("weights", "biases"))
    return {f"{kind}.{i}": pair[j] for j, kind in kinds for i, pair in enumerate(pairs)}


def tolerance(problem: Problem, answer: KernelAnswer) -> Tolerance:
    """Unit roundoff x 4 sqrt(terms) x size of the sums x layers, amplified by the contraction; see the lines below."""
    roundoff = float(np.finfo(problem.precision).eps) / 2
    net = problem.network
    loop = isinstance(net, LoopedReference)
    if isinstance(net, LoopedReference):
        matrices, outward, gamma, depth = [net.w_in, net.w], net.w_out, 1.0, 1
    else:
        matrices, outward = [w.reshape(len(w), -1) for w in net.weights], net.weights[-1]
        gamma, depth = net.gamma, net.depth
    given, positions = problem.x, 1
    if isinstance(net, AttentionReference):
        matrices.append(net.project)
        given = net.tokens[problem.x] + net.positions
    if isinstance(net, ConvReference):
        # The gradient of a kernel is a sum over the places of a map, of which a random walk is the root.
        positions = problem.x[0, 0].size
    units = max(1.0, *(float(np.abs(layer).max()) for step in answer.free for layer in step))
    largest_input = max(units, float(np.abs(given).max()))
    # One drive is a few dot products: the size of its terms is the largest row sum of weights times units.
    size = max(float(np.abs(matrix).sum(1).max()) for matrix in matrices) * largest_input + 1.0
    terms = max(matrix.shape[1] for matrix in matrices)
    state = SIGMAS * np.sqrt(terms) * roundoff * size * depth / max(LEAST_GAP, 1 - _contraction(answer))
    # dW = -(s+ s+' - s- s-') / 2 beta: each product is off by twice the state's error times the other factor; for a
    # bias, -(s+ - s-) / 2 beta, there is no other factor.
    places = float(np.sqrt(positions))
    of_weight, of_bias = 2 * state * largest_input * places / problem.beta, state * places / problem.beta
    gradients = {}
    for name in answer.gradients:
        if isinstance(net, AttentionReference) and name in ("tokens", "positions", "project"):
            gradients[name] = _of_embedding(problem, net, name, of_bias)
            continue
        layer = 0 if loop else int(name.rpartition(".")[2])
        inside = not loop and layer < depth
        scale = gamma ** (layer + 1 - depth) if inside else 1.0
        # The output layer is read at the free state: no division by beta, but logits are sums of its weights.
        reads = name in ("w_out", "b_out") or (not loop and layer >= depth)
        of_entry = scale * (of_bias if name.startswith("b") else of_weight)
        gradients[name] = float(2 * state * (1 + np.abs(outward).sum(1).max()) if reads else of_entry)
    if problem.coordinates == "deviations":
        return _of_deviations(problem, answer, float(state), gradients)
    return Tolerance(float(state), gradients, float(state))


def _of_deviations(problem: Problem, answer: KernelAnswer, state: float, gradients: dict[str, float]) -> Tolerance:
    """A deviation is a sum of products like a state, as wrong in proportion to its own size, and depends on the state
    where it bends; a gradient is a product of the two. Neither is divided by beta or by powers of gamma, except in the
    oracle, whose plain difference of states loses float64's last digits that way."""
    response = max(1.0, *(float(np.abs(layer).max()) for step in answer.plus for layer in step))
    scale = problem.beta * getattr(problem.network, "gamma", 1.0) ** (len(answer.plus[-1]) - 1)
    own = float(np.finfo(np.float64).eps) * SIGMAS / scale
    nudged = 2 * state * response + own
    largest = max(1.0, float(np.abs(problem.x).max()))
    inside = {n: 2 * nudged * largest * (1 if n.startswith("b") else 2) for n in gradients}
    reads = ("w_out", "b_out", f"weights.{len(answer.plus[-1])}", f"biases.{len(answer.plus[-1])}")
    return Tolerance(state, {n: gradients[n] if n in reads else inside[n] for n in gradients}, nudged)


def _of_embedding(problem: Problem, net: AttentionReference, name: str, of_state: float) -> float:
    """What an error of h does to the gradients below the attention.

    It moves the weights of the attention by gamma |v| times itself (the scale a and the root of the size of a head
    cancel), and the slopes of queries and keys by |k| over gamma times that; those of the values follow it at once.
    The projection meets the embedding, or takes 3 width such errors back to it: a random walk, hence the norm.
    """
    embedded = net.tokens[problem.x] + net.positions
    part = float(np.abs(embedded @ net.project.T).max())
    back = float(np.abs(embedded).max()) if name == "project" else float(np.sqrt((net.project**2).sum(0).max()))
    return of_state / net.gamma**net.depth * max(1.0, part * part) * back


def problems(*, seed: int, sweeps: tuple[int, int], beta: float) -> tuple[Problem, ...]:
    """Layered, looped, convolutional and attention networks, fresh and trained, on random inputs; all in float64."""
    import torch

    from assay.learning import train
    from assay.rules import EqProp
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
    return tuple(asked) + _fields(seed=seed, sweeps=sweeps, beta=beta)


def _fields(*, seed: int, sweeps: tuple[int, int], beta: float) -> tuple[Problem, ...]:
    """The same of convolution and attention; *trained* is a few steps of EP on the batch itself."""
    import torch

    from assay.rules import EqProp
    from assay.seeding import torch_generator

    generator = torch_generator(seed, "kernel", "fields")
    images = torch.rand(6, 2, 8, 8, generator=generator), torch.randint(0, 3, (6,), generator=generator)
    tokens = tuple(torch.randint(0, 6, (6, 4), generator=generator) for _ in range(2))
    asked = []
    for trained in (False, True):
        # Averages: a maximum jumps when rounding changes a winner. It is compared in float64 by the tests.
        conv = EnergyConv((2, 8, 8), [3, 4], classes=3, pooling="average", activation="tanh", gamma=0.25, seed=seed)
        attention = EnergyAttention(6, length=4, width=8, heads=2, gamma=0.25, seed=seed)
        for kind, model, (x, y) in (("convolution", conv, images), ("attention", attention, tokens)):
            optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
            for _ in range(20 if trained else 0):
                optimiser.zero_grad()
                EqProp(beta=0.2, sweeps=(8, 5), on_divergence="record").backward(model, x, y)
                optimiser.step()
            name = f"{kind}, {'trained' if trained else 'untrained'}"
            inputs = x.double().numpy() if x.is_floating_point() else x.numpy()
            asked.append(Problem(name, network_of(model), inputs, y.numpy(), beta, sweeps, model.classes))
    return tuple(asked)


def network_of(model: Model) -> Network:
    """The parameters of a model as the oracle takes them, in float64."""

    def array(tensor: Any) -> Array:
        return np.asarray(tensor.detach().double().numpy())

    if isinstance(model, LoopedMLP):
        return LoopedReference(
            array(model.input_weight()), array(model.input.bias), array(model.loop_weight()),
            array(model.output.weight), array(model.output.bias), model.activation.name,
        )  # fmt: skip
    layers: list[Any] = [*model.layers, model.output] if isinstance(model, EnergyConv) else list(model.layers)
    weights, biases = (tuple(array(getattr(layer, part)) for layer in layers) for part in ("weight", "bias"))
    if isinstance(model, EnergyConv):
        return ConvReference(weights, biases, model.gamma, model.activation.name, model.pooling)
    if isinstance(model, EnergyAttention):
        tokens, positions, project = (array(p) for p in (model.tokens, model.positions, model.project.weight))
        return AttentionReference(tokens, positions, project, weights, biases, model.gamma, model.heads)
    return LayeredReference(
        weights, biases, model.gamma, model.activation.name, model.readout,
    )  # fmt: skip


def _contraction(answer: KernelAnswer) -> float:
    """The factor by which the oracle's free sweeps shrink the change, over those well above rounding."""
    changes = [
        max(float(np.abs(b - a).max()) for a, b in zip(before, after, strict=True))
        for before, after in zip(answer.free, answer.free[1:], strict=False)
    ]
    moving = [change for change in changes if change > 1e-12]
    return 0.0 if len(moving) < 2 else min(1.0, (moving[-1] / moving[0]) ** (1 / (len(moving) - 1)))


def _cast(value: Any, dtype: str) -> Any:
    return tuple(_cast(part, dtype) for part in value) if isinstance(value, tuple) else np.asarray(value, dtype=dtype)
