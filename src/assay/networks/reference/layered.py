"""The oracle: layered and looped networks and their EP gradients in NumPy float64, slow, plain and on its own.

It imports nothing of Assay and nothing of torch. It follows the formulas of the energy unit by unit of meaning, with no
cached drive, no merged phases, no change of coordinates and no early stop, so that a fast kernel that agrees with it
step by step and gradient by gradient has made none of those tricks wrongly. It never changes to make a test pass.

Weights are (units, units below), rows of the batch come first, layers count from 1 in formulas and from 0 in lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
S = TypeVar("S")


@dataclass(frozen=True)
class LayeredReference:
    """E = sum_l gamma^l [ R(s_l) - s_l . (W_l s_{l-1} + b_l) ]: all weights and biases, the last pair the output's.

    ``readout`` is ``softmax`` (the last pair reads the state) or ``squared`` (the last pair feeds linear output units).
    ``activation`` is tanh, clipped, smooth or identity.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    gamma: float
    activation: str = "tanh"
    readout: str = "softmax"

    @property
    def depth(self) -> int:
        """The number of layers of units."""
        return len(self.weights) - (1 if self.readout == "softmax" else 0)

    def start(self, x: Array) -> list[Array]:
        """A feed-forward pass."""
        state: list[Array] = []
        below = x
        for layer in range(self.depth):
            below = self._unit(layer, below @ self.weights[layer].T + self.biases[layer])
            state.append(below)
        return state

    def sweep(self, x: Array, state: list[Array], *, beta: float = 0.0, y: Array | None = None) -> list[Array]:
        """One sweep: upwards when free (``y`` is None), downwards when nudged towards the one-hot rows ``y``."""
        new = [layer.copy() for layer in state]
        order = list(range(self.depth))
        for layer in order if y is None else order[::-1]:
            below = x if layer == 0 else new[layer - 1]
            drive = below @ self.weights[layer].T + self.biases[layer]
            if layer + 1 < self.depth:
                drive = drive + self.gamma * new[layer + 1] @ self.weights[layer + 1]
            elif y is not None and self.readout == "softmax":
                drive = drive + beta * (y - softmax(self.output(new))) @ self.weights[-1]
            elif y is not None:
                drive = (drive + beta * y) / (1 + beta)
            new[layer] = self._unit(layer, drive)
        return new

    def trajectory(
        self, x: Array, state: list[Array], *, sweeps: int, beta: float = 0.0, y: Array | None = None
    ) -> list[list[Array]]:
        """The state after each of ``sweeps`` sweeps."""
        return repeated(lambda layers: self.sweep(x, layers, beta=beta, y=y), state, sweeps)

    def output(self, state: list[Array]) -> Array:
        """Logits, or the output units themselves."""
        return state[-1] if self.readout == "squared" else state[-1] @ self.weights[-1].T + self.biases[-1]

    def loss(self, state: list[Array], y: Array) -> float:
        """The mean loss over rows."""
        if self.readout == "squared":
            return float(np.mean(0.5 * np.sum((self.output(state) - y) ** 2, axis=1)))
        return float(np.mean(-np.sum(y * np.log(softmax(self.output(state))), axis=1)))

    def energy(self, x: Array, state: list[Array]) -> Array:
        """The energy of each row."""
        total = np.zeros(len(x))
        for layer, units in enumerate(state):
            below = x if layer == 0 else state[layer - 1]
            drive = below @ self.weights[layer].T + self.biases[layer]
            name = "identity" if self._is_output(layer) else self.activation
            total += self.gamma ** (layer + 1) * np.sum(cost(name, units) - units * drive, axis=1)
        return total

    def gradient(self, x: Array, y: Array, *, beta: float, sweeps: tuple[int, int]) -> list[tuple[Array, Array]]:
        """Centered EP: (weight, bias) gradients of the mean loss, output included, after ``sweeps`` of each phase."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        plus = self.trajectory(x, free, sweeps=sweeps[1], beta=beta, y=y)[-1]
        minus = self.trajectory(x, free, sweeps=sweeps[1], beta=-beta, y=y)[-1]
        gradients = []
        for layer in range(self.depth):
            scale = -(self.gamma ** (layer + 1 - self.depth)) / (2 * beta * len(x))
            up, down = (x if layer == 0 else phase[layer - 1] for phase in (plus, minus))
            weight = scale * (plus[layer].T @ up - minus[layer].T @ down)
            gradients.append((weight, scale * np.sum(plus[layer] - minus[layer], axis=0)))
        if self.readout == "softmax":
            error = (softmax(self.output(free)) - y) / len(x)
            gradients.append((error.T @ free[-1], error.sum(axis=0)))
        return gradients

    def deviations(self, x: Array, free: list[Array], *, sweeps: int, beta: float, y: Array) -> list[list[Array]]:
        """How far each of ``sweeps`` nudged sweeps has moved every unit from ``free``, per unit of beta gamma^(K-l).

        d_l <- sigma(a_l + e_l) - s_l, plainly, with a_l the drive of the free state (the inverse of sigma where it has
        one, so that a free state need not be at rest) and e_l what the neighbours' deviations and the loss add to it.
        """
        moved, found = [np.zeros_like(layer) for layer in free], []
        for _ in range(sweeps):
            for layer in reversed(range(self.depth)):
                force = np.zeros_like(free[layer])
                if layer > 0:
                    force = force + moved[layer - 1] @ self.weights[layer].T
                if layer + 1 < self.depth:
                    force = force + self.gamma * moved[layer + 1] @ self.weights[layer + 1]
                elif self.readout == "softmax":
                    force = force + beta * (y - softmax(self.output([free[-1] + moved[-1]]))) @ self.weights[-1]
                else:
                    force = (force + beta * (y - free[-1])) / (1 + beta)
                moved[layer] = self._unit(layer, self._drive_at(x, free, layer) + force) - free[layer]
            scales = [beta * self.gamma ** (self.depth - 1 - layer) for layer in range(self.depth)]
            found.append([d / scale for d, scale in zip(moved, scales, strict=True)])
        return found

    def deviation_gradient(
        self, x: Array, y: Array, *, beta: float, sweeps: tuple[int, int]
    ) -> list[tuple[Array, Array]]:
        """Centered EP from deviations, with the products of the nudged states written as they are in the energy."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        gradients = []
        ends = [(b, self.deviations(x, free, sweeps=sweeps[1], beta=b, y=y)[-1]) for b in (beta, -beta)]
        for layer in range(self.depth):
            weight, bias = np.zeros_like(self.weights[layer]), np.zeros_like(self.biases[layer])
            for b, response in ends:
                shift = [b * self.gamma ** (self.depth - 1 - k) * r for k, r in enumerate(response)]
                below = x if layer == 0 else free[layer - 1] + shift[layer - 1]
                weight -= 0.5 * response[layer].T @ below / len(x)
                bias -= 0.5 * response[layer].sum(axis=0) / len(x)
                if layer > 0:
                    weight -= 0.5 * self.gamma * free[layer].T @ response[layer - 1] / len(x)
            gradients.append((weight, bias))
        if self.readout == "softmax":
            error = (softmax(self.output(free)) - y) / len(x)
            gradients.append((error.T @ free[-1], error.sum(axis=0)))
        return gradients

    def _drive_at(self, x: Array, free: list[Array], layer: int) -> Array:
        """a_l of the free state."""
        if not self._is_output(layer) and self.activation in ("tanh", "smooth"):
            return inverse(self.activation, free[layer])
        if self._is_output(layer) or self.activation == "identity":
            return free[layer]
        drive = (x if layer == 0 else free[layer - 1]) @ self.weights[layer].T + self.biases[layer]
        if layer + 1 < self.depth:
            drive = drive + self.gamma * free[layer + 1] @ self.weights[layer + 1]
        # Between its ends a clipped unit is its drive; at an end only a drive beyond it is not drift.
        units = free[layer]
        return np.where(units <= 0, np.minimum(drive, 0), np.where(units >= 1, np.maximum(drive, 1), units))

    def _unit(self, layer: int, drive: Array) -> Array:
        return drive if self._is_output(layer) else activate(self.activation, drive)

    def _is_output(self, layer: int) -> bool:
        return self.readout == "squared" and layer == self.depth - 1


@dataclass(frozen=True)
class LoopedReference:
    """h <- sigma(W_in x + b + W h) with W as the sweep uses it (tied and normalised already), and a softmax readout."""

    w_in: Array
    b: Array
    w: Array
    w_out: Array
    b_out: Array
    activation: str = "tanh"

    def start(self, x: Array) -> Array:
        """All units at zero."""
        return np.zeros((len(x), len(self.b)))

    def sweep(self, x: Array, h: Array, *, beta: float = 0.0, y: Array | None = None) -> Array:
        """All units at once."""
        drive = x @ self.w_in.T + self.b + h @ self.w.T
        if y is not None:
            drive = drive + beta * (y - softmax(h @ self.w_out.T + self.b_out)) @ self.w_out
        return activate(self.activation, drive)

    def trajectory(self, x: Array, h: Array, *, sweeps: int, beta: float = 0.0, y: Array | None = None) -> list[Array]:
        """The state after each of ``sweeps`` sweeps."""
        return repeated(lambda units: self.sweep(x, units, beta=beta, y=y), h, sweeps)

    def gradient(self, x: Array, y: Array, *, beta: float, sweeps: tuple[int, int]) -> dict[str, Array]:
        """Centered EP for a symmetric W: gradients with respect to w_in, b, w (all entries free), w_out and b_out."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        plus = self.trajectory(x, free, sweeps=sweeps[1], beta=beta, y=y)[-1]
        minus = self.trajectory(x, free, sweeps=sweeps[1], beta=-beta, y=y)[-1]
        scale = -1 / (2 * beta * len(x))
        error = (softmax(free @ self.w_out.T + self.b_out) - y) / len(x)
        return {
            "w_in": scale * (plus - minus).T @ x,
            "b": scale * (plus - minus).sum(axis=0),
            "w": scale * 0.5 * (plus.T @ plus - minus.T @ minus),
            "w_out": error.T @ free,
            "b_out": error.sum(axis=0),
        }


    def deviations(self, h: Array, *, sweeps: int, beta: float, y: Array) -> list[Array]:
        """How far each of ``sweeps`` nudged sweeps has moved every unit from the free ``h``, per unit of beta."""
        moved, found = np.zeros_like(h), []
        for _ in range(sweeps):
            force = moved @ self.w.T + beta * (y - softmax((h + moved) @ self.w_out.T + self.b_out)) @ self.w_out
            moved = activate(self.activation, inverse(self.activation, h) + force) - h
            found.append(moved / beta)
        return found

    def deviation_gradient(self, x: Array, y: Array, *, beta: float, sweeps: tuple[int, int]) -> dict[str, Array]:
        """Centered EP from deviations for a symmetric W."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        ends = [(b, self.deviations(free, sweeps=sweeps[1], beta=b, y=y)[-1]) for b in (beta, -beta)]
        error = (softmax(free @ self.w_out.T + self.b_out) - y) / len(x)
        mean = 0.5 * (ends[0][1] + ends[1][1])
        crossed = np.zeros_like(self.w)
        for b, r in ends:
            middle = free + 0.5 * b * r
            crossed += 0.5 * (r.T @ middle + middle.T @ r)
        return {
            "w_in": -mean.T @ x / len(x), "b": -mean.sum(axis=0) / len(x), "w": -0.5 * crossed / len(x),
            "w_out": error.T @ free, "b_out": error.sum(axis=0),
        }


def repeated(sweep: Callable[[S], S], state: S, sweeps: int) -> list[S]:
    """The state after each of ``sweeps`` sweeps."""
    states = []
    for _ in range(sweeps):
        state = sweep(state)
        states.append(state)
    return states


def activate(name: str, a: Array) -> Array:
    """sigma(a)."""
    if name == "tanh":
        return np.tanh(a)
    if name == "clipped":
        return np.clip(a, 0.0, 1.0)
    if name == "smooth":
        return 1 / (1 + np.exp(-(4 * a - 2)))
    if name == "identity":
        return a
    raise ValueError(f"unknown activation '{name}'; known: tanh, clipped, smooth, identity")


def inverse(name: str, s: Array) -> Array:
    """The drive of a unit at rest at s."""
    if name == "tanh":
        return np.arctanh(s)
    if name == "smooth":
        return (np.log(s) - np.log1p(-s) + 2) / 4
    if name == "identity":
        return s
    raise ValueError(f"'{name}' has no inverse")


def cost(name: str, s: Array) -> Array:
    """R(s), whose slope is the inverse of sigma."""
    if name == "tanh":
        return 0.5 * ((1 + s) * np.log1p(s) + (1 - s) * np.log1p(-s))
    if name == "smooth":
        return 0.25 * (s * np.log(s) + (1 - s) * np.log1p(-s) + 2 * s)
    return 0.5 * s * s


def softmax(logits: Array) -> Array:
    """Exponentials over their sum, along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


def one_hot(y: NDArray[np.int64], classes: int) -> Array:
    """Class indices as rows of zeros with a single one."""
    return np.eye(classes)[y]
