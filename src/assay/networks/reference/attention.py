"""The oracle of energy attention: key-value attention and tanh layers in NumPy float64, with gradients by hand.

    E = sum_heads,i [ 1/2 |h_i|^2 - 1/(a g) logsumexp_j a (q_i . k_j + g h_i . v_j) ]
        + sum_l gamma^l sum_i [ R(z_li) - z_li . (W_l z_{l-1,i} + b_l) ],          z_0 = h, g = gamma, a = 1/sqrt(size)

Queries, keys and values are linear in the embedding (token plus position). It shares nothing with torch; the slopes of
E with respect to the embedding are written out, where the model uses automatic differentiation at fixed states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.networks.reference.layered import Array, repeated, softmax

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class AttentionReference:
    """Embeddings (vocabulary, width) and (length, width), one projection (3 width, width), layers, readout last."""

    tokens: Array
    positions: Array
    project: Array
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    gamma: float
    heads: int

    @property
    def depth(self) -> int:
        """The number of tanh layers."""
        return len(self.weights) - 1

    @property
    def scale(self) -> float:
        """a: one over the root of the size of a head."""
        return float((self.tokens.shape[1] // self.heads) ** -0.5)

    def start(self, x: Tokens) -> list[Array]:
        """Ordinary attention, then a feed-forward pass."""
        q, k, v = self._clamped(x)
        state = [self._join(softmax(self.scale * q @ k.swapaxes(-1, -2)) @ v)]
        for layer in range(self.depth):
            state.append(np.tanh(state[-1] @ self.weights[layer].T + self.biases[layer]))
        return state

    def sweep(self, x: Tokens, state: list[Array], *, beta: float = 0.0, y: Array | None = None) -> list[Array]:
        """One sweep: upwards when free (``y`` is None), downwards when nudged towards the one-hot ``y``."""
        new = [units.copy() for units in state]
        order = list(range(self.depth + 1))
        for layer in order if y is None else order[::-1]:
            if layer == 0:
                drive = self._join(self._attention(x, new[0]) @ self._clamped(x)[2])
            else:
                drive = new[layer - 1] @ self.weights[layer - 1].T + self.biases[layer - 1]
            if layer < self.depth:
                drive = drive + self.gamma * new[layer + 1] @ self.weights[layer]
            elif y is not None:
                drive = drive + beta * (y - softmax(self.output(new))) @ self.weights[-1]
            new[layer] = drive if layer == 0 else np.tanh(drive)
        return new

    def trajectory(
        self, x: Tokens, state: list[Array], *, sweeps: int, beta: float = 0.0, y: Array | None = None
    ) -> list[list[Array]]:
        """The state after each of ``sweeps`` sweeps."""
        return repeated(lambda layers: self.sweep(x, layers, beta=beta, y=y), state, sweeps)

    def output(self, state: list[Array]) -> Array:
        """The logits of every position."""
        return state[-1] @ self.weights[-1].T + self.biases[-1]

    def gradient(self, x: Tokens, y: Array, *, beta: float, sweeps: tuple[int, int]) -> dict[str, Array]:
        """Centered EP: the gradient of the loss, a mean over rows and positions, by parameter."""
        free = self.trajectory(x, self.start(x), sweeps=sweeps[0])[-1]
        plus, minus = (
            self.slopes(x, self.trajectory(x, free, sweeps=sweeps[1], beta=b, y=y)[-1]) for b in (beta, -beta)
        )
        items = x.size
        scale = 1 / (2 * beta * items * self.gamma**self.depth)
        gradients = {name: scale * (plus[name] - minus[name]) for name in plus}
        error = (softmax(self.output(free)) - y) / items
        gradients[f"weights.{self.depth}"] = np.einsum("blc,bld->cd", error, free[-1])
        gradients[f"biases.{self.depth}"] = error.sum(axis=(0, 1))
        return gradients

    def slopes(self, x: Tokens, state: list[Array]) -> dict[str, Array]:
        """dE/dtheta at a fixed state, summed over rows."""
        q, k, _ = self._clamped(x)
        p = self._attention(x, state[0])
        # d lse / d scores = p, and scores = a (q . k + g h . v), all over a g.
        of_q, of_k = -p @ k / self.gamma, -p.swapaxes(-1, -2) @ q / self.gamma
        of_v = -p.swapaxes(-1, -2) @ self._split(state[0])
        stacked = np.concatenate([self._join(part) for part in (of_q, of_k, of_v)], axis=-1)
        embedded = self.tokens[x] + self.positions
        of_embedded = stacked @ self.project
        of_tokens = np.zeros_like(self.tokens)
        np.add.at(of_tokens, x, of_embedded)
        found = {
            "tokens": of_tokens,
            "positions": of_embedded.sum(axis=0),
            "project": np.einsum("blo,bld->od", stacked, embedded),
        }
        for layer in range(self.depth):
            factor = -(self.gamma ** (layer + 1))
            found[f"weights.{layer}"] = factor * np.einsum("blo,bld->od", state[layer + 1], state[layer])
            found[f"biases.{layer}"] = factor * state[layer + 1].sum(axis=(0, 1))
        return found

    def _attention(self, x: Tokens, h: Array) -> Array:
        """softmax_j a (q_i . k_j + g h_i . v_j), (rows, heads, length, length)."""
        q, k, v = self._clamped(x)
        scores = q @ k.swapaxes(-1, -2) + self.gamma * self._split(h) @ v.swapaxes(-1, -2)
        return softmax(self.scale * scores)

    def _clamped(self, x: Tokens) -> tuple[Array, Array, Array]:
        """Queries, keys and values, (rows, heads, length, size)."""
        projected = (self.tokens[x] + self.positions) @ self.project.T
        q, k, v = (self._split(part) for part in np.split(projected, 3, axis=-1))
        return q, k, v

    def _split(self, units: Array) -> Array:
        rows, length, width = units.shape
        return units.reshape(rows, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def _join(self, heads: Array) -> Array:
        rows, count, length, size = heads.shape
        return heads.transpose(0, 2, 1, 3).reshape(rows, length, count * size)
