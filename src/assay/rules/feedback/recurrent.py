"""Recurrent layers written out, so that each of their weights is a product of its own.

PyTorch runs a whole LSTM or GRU as one operation, inside which no weight can be told apart. While a feedback rule runs
a step, the same recurrences are computed time step by time step (same formulas, so equal up to rounding). Packed
sequences keep the fused operation; the coverage then says that their weights were not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]


def unfused(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function ``torch._VF.name`` written out; ``original`` serves packed sequences."""
    cell = CELLS[name]
    if name.endswith("_cell"):
        def one_step(x: Tensor, state: Any, *weights: Any) -> Any:
            after = cell(x, state if isinstance(state, tuple | list) else (state,), *weights)
            return after if len(after) > 1 else after[0]

        return one_step

    def layers(x: Tensor, state: Any, weights: Any, *settings: Any) -> Any:
        if isinstance(state, Tensor) and not state.is_floating_point():  # the sizes of a packed batch
            return original(x, state, weights, *settings)
        return _run(cell, x, tuple(state) if isinstance(state, tuple | list) else (state,), weights, *settings)

    return layers


def lstm_cell(x: Tensor, state: Sequence[Tensor], w_input: Tensor, w_hidden: Tensor, b_input: Tensor | None = None,
              b_hidden: Tensor | None = None, projection: Tensor | None = None) -> State:
    """h' = o tanh(c'), c' = f c + i g; ``projection`` makes h' narrower."""
    h, c = state
    i, f, g, o = (F.linear(x, w_input, b_input) + F.linear(h, w_hidden, b_hidden)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if projection is None else F.linear(h, projection)), c


def gru_cell(x: Tensor, state: Sequence[Tensor], w_input: Tensor, w_hidden: Tensor, b_input: Tensor | None = None,
             b_hidden: Tensor | None = None) -> State:
    """h' = (1 - z) n + z h, n = tanh(W x + r (U h))."""
    (h,) = state
    reset, update, new = F.linear(x, w_input, b_input).chunk(3, -1)
    reset_h, update_h, new_h = F.linear(h, w_hidden, b_hidden).chunk(3, -1)
    candidate = torch.tanh(new + torch.sigmoid(reset + reset_h) * new_h)
    return (candidate + torch.sigmoid(update + update_h) * (h - candidate),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    def cell(x: Tensor, state: Sequence[Tensor], w_input: Tensor, w_hidden: Tensor, b_input: Tensor | None = None,
             b_hidden: Tensor | None = None) -> State:
        return (activation(F.linear(x, w_input, b_input) + F.linear(state[0], w_hidden, b_hidden)),)

    return cell


CELLS: dict[str, Callable[..., State]] = {
    "lstm_cell": lstm_cell, "gru_cell": gru_cell, "lstm": lstm_cell, "gru": gru_cell,
    **{f"rnn_{kind}{end}": _plain_cell(f) for kind, f in (("tanh", torch.tanh), ("relu", torch.relu))
       for end in ("", "_cell")},
}


def _run(cell: Callable[..., State], x: Tensor, state: State, weights: Sequence[Tensor], biases: bool, depth: int,
         dropout: float, training: bool, bidirectional: bool, batch_first: bool) -> tuple[Tensor, ...]:
    """All layers and directions; returns the outputs and the last state of each layer and direction."""
    sides = 2 if bidirectional else 1
    each = len(weights) // (depth * sides)
    projected = each - 2 - 2 * biases == 1
    h = x.transpose(0, 1) if batch_first else x
    last: list[State] = []
    for layer in range(depth):
        if layer and dropout:
            h = F.dropout(h, dropout, training)
        outputs = []
        for side in range(sides):
            index = layer * sides + side
            own = list(weights[index * each : (index + 1) * each])
            named = {"projection": own.pop()} if projected else {}
            now, steps = tuple(part[index] for part in state), []
            for time in range(len(h)) if side == 0 else reversed(range(len(h))):
                now = cell(h[time], now, *own, **named)
                steps.append(now[0])
            outputs.append(torch.stack(steps if side == 0 else steps[::-1]))
            last.append(now)
        h = torch.cat(outputs, -1) if sides > 1 else outputs[0]
    finals = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    return (h.transpose(0, 1) if batch_first else h, *finals)
