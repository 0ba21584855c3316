"""Kernels to be judged: those of this library, and planted ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from assay.audits.equilibrium.kernel_problems import Array, Kernel, KernelAnswer, Model, Problem, Steps, oracle
from assay.models import EnergyAttention, EnergyConv, EnergyMLP, LoopedMLP
from assay.networks.energy_mlp.layers import Layers
from assay.networks.energy_mlp.population import population_gradient, stack
from assay.networks.equilibrium import EquilibriumModule
from assay.networks.reference.attention import AttentionReference
from assay.networks.reference.conv import ConvReference
from assay.networks.reference.layered import LayeredReference, LoopedReference
from assay.protocols import Nudge, State
from assay.rules import EqProp
from assay.rules.estimators import Centered


def eager(problem: Problem) -> KernelAnswer:
    """The pure sweeps of the models, and gradients by automatic differentiation of the energy at the end states."""
    model = _model(problem)
    return _stepwise(problem, model, partial(_swept, model), autograd=True)


def fast(problem: Problem) -> KernelAnswer:
    """What training uses: ``model.relax`` (in place, cached, merged) and the written-out contrast of ``EqProp``."""
    model = _model(problem)
    return _stepwise(problem, model, partial(_relaxed, model), autograd=False)


def deviations(problem: Problem) -> KernelAnswer:
    """What training uses by default: ``model.deviate`` and the contrast of small terms; layered and looped networks."""
    model = _model(problem)
    return _stepwise(problem, model, partial(_relaxed, model), autograd=False)


def population(problem: Problem) -> KernelAnswer:
    """The problem as the first of two networks relaxed side by side; layered networks only."""
    model = _model(problem)
    if not isinstance(model, EnergyMLP):
        return deviations(problem)
    net = problem.network
    if not isinstance(net, LayeredReference):
        raise TypeError("a layered model without a layered network")
    other = replace(net, weights=tuple(-w for w in net.weights))
    first, second = _layers(model), _layers(_model(replace(problem, network=other)))
    both = stack([first, second])
    x = torch.from_numpy(np.stack([problem.x, problem.x[::-1].copy()]))
    y = torch.from_numpy(np.stack([problem.y, problem.y[::-1].copy()]))
    beta = problem.beta
    betas, coefficients = (beta, -beta), (0.5 / beta, -0.5 / beta)

    def run(sweeps: tuple[int, int]) -> Any:
        return population_gradient(both, x, y, sweeps=sweeps, betas=betas, coefficients=coefficients)

    free = [_numpy(tuple(s[0] for s in run((k + 1, 1)).free.value)) for k in range(problem.sweeps[0])]
    plus, minus, rows = [], [], len(problem.x)
    for k in range(problem.sweeps[1]):
        nudged = run((problem.sweeps[0], k + 1)).nudged.value
        plus.append(_numpy(tuple(u[0][:rows] / beta for u in nudged)))
        minus.append(_numpy(tuple(u[0][rows:] / -beta for u in nudged)))
    pairs = run(problem.sweeps).gradients
    gradients = {f"{kind}.{i}": pair[j][0].numpy() for i, pair in enumerate(pairs) for j, kind in enumerate(_KINDS)}
    output = model.logits(tuple(torch.from_numpy(s) for s in free[-1])).detach().numpy()
    return KernelAnswer(free, plus, minus, output, gradients)


KERNELS: dict[str, Kernel] = {"eager": eager, "fast": fast, "deviations": deviations, "population": population}
DEVIATING: tuple[Kernel, ...] = (deviations, population)
"""Kernels whose nudged phase moves deviations: they are asked for those, by whatever name they are called."""
_KINDS = ("weights", "biases")


def rounded(problem: Problem) -> KernelAnswer:
    """The oracle with its inputs and results rounded to the precision of the problem: what no kernel can avoid."""
    exact = oracle(problem)
    dtype = problem.dtype

    def cut(steps: Steps) -> Steps:
        return [[layer.astype(dtype) for layer in step] for step in steps]

    gradients = {name: g.astype(dtype) for name, g in exact.gradients.items()}
    return KernelAnswer(cut(exact.free), cut(exact.plus), cut(exact.minus), exact.output.astype(dtype), gradients)


def planted() -> dict[str, Kernel]:
    """Kernels with one mistake each, by name; every one must be rejected."""
    return {
        "wrong sign of the feedback": _altered(_wrong_sign),
        "transposed weight": _altered(_transposed),
        "dropped bias": _altered(_dropped_bias),
        "stale cache of the input": lambda problem: rounded(replace(problem, x=np.roll(problem.x, 1, axis=0))),
        "one sweep short": _one_short,
        "gradient of a bias forgotten": _gradient_changed(lambda name, g: 0 * g if name in ("biases.1", "b") else g),
        "nudge of the wrong sign": _gradient_changed(lambda name, g: -g if name in ("weights.0", "w_in") else g),
        "factor missing in a gradient": _gradient_changed(lambda name, g: g / 4 if name in ("weights.1", "w") else g),
    }


def _altered(change: Callable[[Any], Any]) -> Kernel:
    return lambda problem: rounded(replace(problem, network=change(problem.network)))


def _wrong_sign(net: Any) -> Any:
    if isinstance(net, LoopedReference):
        return replace(net, w=-net.w)
    return replace(net, gamma=-net.gamma)


def _transposed(net: Any) -> Any:
    if isinstance(net, LoopedReference):
        # A tied loop is its own transpose; the same slip there swaps the rows of the input weights.
        return replace(net, w_in=net.w_in[::-1].copy())
    if isinstance(net, AttentionReference):
        # Neither map is square there: the slip is to take keys for values.
        return replace(net, project=np.roll(net.project, net.tokens.shape[1], axis=0))
    # Of a kernel the slip is to leave out the flip that turns a convolution into its transpose.
    turned = net.weights[1][:, :, ::-1, ::-1] if isinstance(net, ConvReference) else net.weights[1].T
    return replace(net, weights=(net.weights[0], turned.copy(), *net.weights[2:]))


def _dropped_bias(net: Any) -> Any:
    if isinstance(net, LoopedReference):
        return replace(net, b=0 * net.b)
    return replace(net, biases=(net.biases[0], 0 * net.biases[1], *net.biases[2:]))


def _one_short(problem: Problem) -> KernelAnswer:
    """Every state one sweep late: the k-th reported is the (k-1)-th computed."""
    answer = rounded(problem)
    net, x = problem.cast("float64").network, problem.cast("float64").x
    first: Any = net.start(x)
    before = [first] if isinstance(first, np.ndarray) else first
    late = [[layer.astype(problem.dtype) for layer in before], *answer.free[:-1]]
    return replace(answer, free=late)


def _gradient_changed(change: Callable[[str, Array], Array]) -> Kernel:
    def kernel(problem: Problem) -> KernelAnswer:
        answer = rounded(problem)
        return replace(answer, gradients={name: change(name, g) for name, g in answer.gradients.items()})

    return kernel


def _model(problem: Problem) -> Model:
    """The model with the problem's weights, in its precision; a loop's weights are used as they are."""
    net = problem.network
    dtype = torch.from_numpy(np.zeros((), problem.dtype)[None]).dtype
    model: Model
    values: tuple[Array, ...]
    parameters: tuple[Tensor, ...]
    if isinstance(net, LoopedReference):
        hidden, width = net.w_in.shape
        model = LoopedMLP(width, hidden, problem.classes, spectral_norm=False, activation=net.activation)
        values = (net.w_in, net.b, net.w, net.w_out, net.b_out)
        parameters = (model.input.weight, model.input.bias, model.loop.weight, model.output.weight, model.output.bias)
    elif isinstance(net, ConvReference):
        channels, size = [len(w) for w in net.weights[:-1]], net.weights[0].shape[-1]
        model = EnergyConv(problem.x.shape[1:], channels, classes=problem.classes, kernel=size, pooling=net.pooling,
                           gamma=net.gamma, activation=net.activation)  # fmt: skip
        values = tuple(array for pair in zip(net.weights, net.biases, strict=True) for array in pair)
        parameters = tuple(model.parameters())
    elif isinstance(net, AttentionReference):
        (vocabulary, width), hidden = net.tokens.shape, len(net.biases[0])
        model = EnergyAttention(vocabulary, length=len(net.positions), classes=problem.classes, width=width,
                                heads=net.heads, layers=net.depth, hidden=hidden, gamma=net.gamma)  # fmt: skip
        pairs = (array for pair in zip(net.weights, net.biases, strict=True) for array in pair)
        values = (net.tokens, net.positions, net.project, *pairs)
        parameters = tuple(model.parameters())
    else:
        widths = [net.weights[0].shape[1], *(len(bias) for bias in net.biases)]
        model = EnergyMLP(widths, gamma=abs(net.gamma), activation=net.activation, readout=net.readout)
        values = tuple(array for pair in zip(net.weights, net.biases, strict=True) for array in pair)
        parameters = tuple(model.parameters())
    model.to(dtype)
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
    return model


class Mover(Protocol):
    """A state some sweeps later."""

    def __call__(self, clamped: Any, state: State, *, sweeps: int, nudge: Nudge | None) -> State: ...


def _stepwise(problem: Problem, model: Model, move: Mover, *, autograd: bool) -> KernelAnswer:
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    with torch.no_grad():
        clamped: Any = model.clamp(x)
        free = [move(clamped, model.start(clamped), sweeps=k + 1, nudge=None) for k in range(problem.sweeps[0])]
        nudged = {}
        for sign in (1, -1):
            pull = Nudge(torch.full((len(x),), sign * problem.beta, dtype=free[0][0].dtype), y)
            steps = range(problem.sweeps[1])
            if problem.coordinates == "deviations":
                moved = [model.deviate(clamped, free[-1], pull, sweeps=k + 1).value for k in steps]
                nudged[sign] = [tuple(u / (sign * problem.beta) for u in step) for step in moved]
            else:
                nudged[sign] = [
                    move(clamped, tuple(s.clone() for s in free[-1]), sweeps=k + 1, nudge=pull) for k in steps
                ]
        output = model.logits(free[-1]).numpy()
        if autograd:
            weight = torch.full((len(x),), 1 / (2 * problem.beta * len(x) * model.loss_scale), dtype=free[0][0].dtype)
            model.add_readout_gradient(free[-1], y)
            EquilibriumModule.add_energy_gradient(model, clamped, nudged[1][-1], weight)
            EquilibriumModule.add_energy_gradient(model, clamped, nudged[-1][-1], -weight)
        else:
            rule = EqProp(Centered(problem.beta), sweeps=problem.sweeps, coordinates=cast(Any, problem.coordinates))
            rule.backward(model, x, y)
    steps_of = {sign: [_numpy(state) for state in states] for sign, states in nudged.items()}
    return KernelAnswer([_numpy(s) for s in free], steps_of[1], steps_of[-1], output, _gradients(model))


def _swept(model: Model, clamped: Any, state: State, *, sweeps: int, nudge: Nudge | None) -> State:
    for _ in range(sweeps):
        state = model.sweep(clamped, state, nudge)
    return state


def _relaxed(model: Model, clamped: Any, state: State, *, sweeps: int, nudge: Nudge | None) -> State:
    return model.relax(clamped, state, sweeps=sweeps, nudge=nudge).value


def _gradients(model: Model) -> dict[str, Array]:
    def grad(parameter: Tensor) -> Array:
        return np.zeros(tuple(parameter.shape)) if parameter.grad is None else parameter.grad.numpy()

    if isinstance(model, LoopedMLP):
        pairs = (("w_in", model.input.weight), ("b", model.input.bias), ("w", model.loop.weight),
                 ("w_out", model.output.weight), ("b_out", model.output.bias))  # fmt: skip
        return {name: grad(parameter) for name, parameter in pairs}
    layers: list[Any] = [*model.layers, model.output] if isinstance(model, EnergyConv) else list(model.layers)
    named: dict[str, Any] = {}
    if isinstance(model, EnergyAttention):
        named = {"tokens": model.tokens, "positions": model.positions, "project": model.project.weight}
    return {name: grad(parameter) for name, parameter in named.items()} | {
        f"{kind}.{i}": grad(getattr(layer, kind[:-1] if kind == "weights" else "bias"))
        for i, layer in enumerate(layers)
        for kind in _KINDS
    }


def _layers(model: Model) -> Layers:
    return cast(EnergyMLP, model).as_layers()


def _numpy(state: State) -> list[Array]:
    return [layer.detach().numpy() for layer in state]
