"""The oracle of convolution and pooling: an energy network of feature maps in NumPy float64, by loops over offsets.

    E = sum_l gamma^l [ R(s_l) - s_l . P(w_l * s_{l-1} + b_l) ],        s_0 = image

Like ``reference.py`` it shares nothing with torch and follows the formula: the convolution first, then the pooling by
two, no merged kernels and no cached drive. Maps are (rows, channels, height, width), kernels (channels, channels below,
size, size) with an odd size and zeros around the map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.networks.reference.layered import Array, activate, repeated, softmax


@dataclass(frozen=True)
class ConvReference:
    """All kernels and biases, the last pair those of the linear softmax readout of the flattened top maps.

    ``pooling`` is ``average``, ``max`` or ``max-first`` (a maximum of the image, averages above); of equal entries the
    first in reading order wins.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    gamma: float
    activation: str = "clipped"
    pooling: str = "average"

    @property
    def depth(self) -> int:
        """The number of layers of maps."""
        return len(self.weights) - 1

    def start(self, x: Array) -> list[Array]:
        """A feed-forward pass."""
        state: list[Array] = []
        for layer in range(self.depth):
            state.append(activate(self.activation, self._drive(layer, x if layer == 0 else state[-1])))
        return state

    def sweep(self, x: Array, state: list[Array], *, beta: float = 0.0, y: Array | None = None) -> list[Array]:
        """One sweep: upwards when free (``y`` is None), downwards when nudged towards the one-hot rows ``y``."""
        new = [maps.copy() for maps in state]
        order = list(range(self.depth))
        for layer in order if y is None else order[::-1]:
            drive = self._drive(layer, x if layer == 0 else new[layer - 1])
            if layer + 1 < self.depth:
                drive = drive + self.gamma * self._feedback(layer + 1, new[layer + 1], new[layer])
            elif y is not None:
                pull = beta * (y - softmax(self.output(new))) @ self.weights[-1]
                drive = drive + pull.reshape(drive.shape)
            new[layer] = activate(self.activation, drive)
        return new

    def trajectory(
        self, x: Array, state: list[Array], *, sweeps: int, beta: float = 0.0, y: Array | None = None
    ) -> list[list[Array]]:
        """The state after each of ``sweeps`` sweeps."""
        return repeated(lambda layers: self.sweep(x, layers, beta=beta, y=y), state, sweeps)

    def output(self, state: list[Array]) -> Array:
        """The logits."""
        return state[-1].reshape(len(state[-1]), -1) @ self.weights[-1].T + self.biases[-1]

    def gradient(self, x: Array, y: Array, *, beta: float, sweeps: tuple[int, int]) -> list[tuple[Array, Array]]:
        """Centered EP: (kernel, bias) gradients of the mean loss, the readout's last, after ``sweeps`` each."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        ends = [self.trajectory(x, free, sweeps=sweeps[1], beta=b, y=y)[-1] for b in (beta, -beta)]
        gradients = []
        for layer in range(self.depth):
            scale = -(self.gamma ** (layer + 1 - self.depth)) / (2 * beta * len(x))
            (weight, bias), (other_weight, other_bias) = (self._slope(layer, x, end) for end in ends)
            gradients.append((scale * (weight - other_weight), scale * (bias - other_bias)))
        error = (softmax(self.output(free)) - y) / len(x)
        gradients.append((error.T @ free[-1].reshape(len(x), -1), error.sum(axis=0)))
        return gradients

    def _slope(self, layer: int, x: Array, state: list[Array]) -> tuple[Array, Array]:
        """The derivative of s . P(w * s_below + b) with respect to w and b, summed over rows."""
        below, kernel = (x if layer == 0 else state[layer - 1]), self.weights[layer]
        spread = self._unpool(layer, state[layer], self._convolve(layer, below))
        size = kernel.shape[-1]
        padded = _padded(below, size // 2)
        height, width = spread.shape[2:]
        slope = np.zeros_like(kernel)
        for i in range(size):
            for j in range(size):
                window = padded[:, :, i : i + height, j : j + width]
                slope[:, :, i, j] = np.einsum("bohw,bchw->oc", spread, window)
        return slope, spread.sum(axis=(0, 2, 3))

    def _drive(self, layer: int, below: Array) -> Array:
        maps = self._convolve(layer, below)
        windows = _windows(maps)
        pooled: Array = windows.max(axis=-1) if self._by_maximum(layer) else windows.mean(axis=-1)
        return pooled

    def _feedback(self, layer: int, above: Array, below: Array) -> Array:
        """w^T P^T s: the transpose of the convolution applied to the pooled maps spread out again."""
        spread, kernel = self._unpool(layer, above, self._convolve(layer, below)), self.weights[layer]
        size = kernel.shape[-1]
        height, width = spread.shape[2:]
        total = _padded(np.zeros_like(below), size // 2)
        for i in range(size):
            for j in range(size):
                sent = np.einsum("bohw,oc->bchw", spread, kernel[:, :, i, j])
                total[:, :, i : i + height, j : j + width] += sent
        edge = size // 2
        return total[:, :, edge : edge + height, edge : edge + width]

    def _convolve(self, layer: int, below: Array) -> Array:
        kernel = self.weights[layer]
        size = kernel.shape[-1]
        height, width = below.shape[2:]
        padded = _padded(below, size // 2)
        total = np.zeros((len(below), len(kernel), height, width)) + self.biases[layer][None, :, None, None]
        for i in range(size):
            for j in range(size):
                total += np.einsum("bchw,oc->bohw", padded[:, :, i : i + height, j : j + width], kernel[:, :, i, j])
        return total

    def _by_maximum(self, layer: int) -> bool:
        return self.pooling == "max" or (self.pooling == "max-first" and layer == 0)

    def _unpool(self, layer: int, pooled: Array, maps: Array) -> Array:
        """P^T s at the maps that were pooled: a quarter to each entry of a window, or all of it to the winner."""
        windows = _windows(maps)
        share = np.eye(4)[windows.argmax(axis=-1)] if self._by_maximum(layer) else np.full(windows.shape, 0.25)
        spread = np.zeros_like(maps)
        for place in range(4):
            spread[:, :, place // 2 :: 2, place % 2 :: 2] = pooled * share[..., place]
        return spread


def _windows(maps: Array) -> Array:
    """The four entries of each two by two window, in reading order: (rows, channels, height / 2, width / 2, 4)."""
    return np.stack([maps[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=-1)


def _padded(maps: Array, edge: int) -> Array:
    return np.pad(maps, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
