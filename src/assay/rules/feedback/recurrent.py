"""Recurrent layers written out, so that each of their weights is a product of its own.

PyTorch runs a whole LSTM or GRU as one operation, inside which no weight can be told apart. While a feedback rule runs
a step, the same recurrences are computed time step by time step (same formulas, so equal up to rounding), of packed
sequences too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]


def unfused(name: str) -> Callable[..., Any]:
    """The function ``torch._VF.name`` written out."""
    cell = CELLS[name]
    if name.endswith("_cell"):
        def one_step(x: Tensor, state: Any, *weights: Any) -> Any:
            after = cell(x, state if isinstance(state, tuple | list) else (state,), *weights)
            return after if len(after) > 1 else after[0]

        return one_step

    def layers(x: Tensor, state: Any, *rest: Any) -> Any:
        if isinstance(state, Tensor) and not state.is_floating_point():  # the sizes of a packed batch, one per time
            outputs, finals = _run(cell, x.split(state.tolist()), *rest)  # type: ignore[no-untyped-call]
            return torch.cat(outputs), *finals
        batch_first = rest[-1]
        outputs, finals = _run(cell, x.unbind(1 if batch_first else 0), state, *rest[:-1])
        return torch.stack(outputs, 1 if batch_first else 0), *finals

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


def _run(cell: Callable[..., State], steps: Sequence[Tensor], state: Any, weights: Sequence[Tensor], biases: bool,
         depth: int, dropout: float, training: bool, bidirectional: bool) -> tuple[list[Tensor], State]:
    """All layers and directions: the outputs, time by time, and the last state of each layer and direction."""
    sides = 2 if bidirectional else 1
    each = len(weights) // (depth * sides)
    projected = each - 2 - 2 * biases == 1
    first = tuple(state) if isinstance(state, tuple | list) else (state,)
    now, last = list(steps), list[State]()
    for layer in range(depth):
        if layer and dropout:
            now = [F.dropout(h, dropout, training) for h in now]
        outputs = []
        for side in range(sides):
            index = layer * sides + side
            own = list(weights[index * each : (index + 1) * each])
            named = {"projection": own.pop()} if projected else {}
            walk = _backwards if side else _forwards
            written, end = walk(_bind(cell, own, named), now, tuple(part[index] for part in first))
            outputs.append(written)
            last.append(end)
        now = [torch.cat(parts, -1) for parts in zip(*outputs, strict=True)] if sides > 1 else outputs[0]
    return now, tuple(torch.stack(parts) for parts in zip(*last, strict=True))


Step = Callable[[Tensor, State], State]


def _bind(cell: Callable[..., State], own: list[Tensor], named: dict[str, Tensor]) -> Step:
    return lambda x, state: cell(x, state, *own, **named)


def _forwards(step: Step, steps: list[Tensor], state: State) -> tuple[list[Tensor], State]:
    """First time to last; in a packed batch the shorter sequences, which come last, end on the way."""
    outputs, ended = [], list[State]()
    for h in steps:
        if len(h) < len(state[0]):
            ended.append(tuple(part[len(h):] for part in state))
            state = tuple(part[: len(h)] for part in state)
        state = step(h, state)
        outputs.append(state[0])
    return outputs, tuple(torch.cat(parts) for parts in zip(state, *reversed(ended), strict=True)) if ended else state


def _backwards(step: Step, steps: list[Tensor], state: State) -> tuple[list[Tensor], State]:
    """Last time to first; in a packed batch the shorter sequences begin on the way."""
    outputs = []
    now = tuple(part[: len(steps[-1])] for part in state)
    for h in reversed(steps):
        if len(h) > len(now[0]):
            now = tuple(torch.cat([part, first[len(part) : len(h)]]) for part, first in zip(now, state, strict=True))
        now = step(h, now)
        outputs.append(now[0])
    return outputs[::-1], now
