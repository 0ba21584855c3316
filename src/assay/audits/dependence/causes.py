"""What usually causes a leak of this shape at such a module, and what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from assay.audits.dependence.declarations import Accumulation, Cache, Causal, Local, Neighbours, Never, Only, Padding

if TYPE_CHECKING:
    from assay.audits.dependence.audit import DependenceFacts

Pattern = Literal["next", "window", "everything", "none"]


def pattern(pairs: list[tuple[float, int, int]]) -> tuple[Pattern, int]:
    """How far ahead outputs see: one place, a window of some places, or everything."""
    ahead = [s - t for _, t, s in pairs if s > t]
    if not ahead:
        return "none", 0
    farthest = max(ahead)
    longest = max(max(t, s) for _, t, s in pairs)
    if farthest == 1:
        return "next", 1
    return ("window", farthest) if farthest < longest // 2 + 1 else ("everything", farthest)


def advice(facts: DependenceFacts, seen: tuple[Pattern, int]) -> tuple[str, str]:
    """The likely cause and the fix, from the declaration, the shape of the leak and the class of the module."""
    where = "the model" if facts.place is None else facts.place.module or "the model's own code"
    kind = facts.place.kind.lower() if facts.place is not None else ""
    by_gradient = facts.gradient is not None and facts.gradient[0] > facts.gradient_limit
    leaks = by_gradient or any(m.leaks for m in facts.movements)
    if facts.blind and not leaks:
        return facts.blind, "check the sign and the shape of the mask: it hides what it should let through"
    if isinstance(facts.depends, Causal | Local):
        return _in_time(where, kind, seen)
    if isinstance(facts.depends, Padding):
        return (
            f"{where} lets padding reach real tokens, or positions count padding",
            "pass the mask on to every attention, pooling and norm; count positions from the first real token",
        )
    if isinstance(facts.depends, Never | Only):
        return (
            f"{where} makes use of an input that must be ignored",
            "take that input out of the call, or out of this module",
        )
    if isinstance(facts.depends, Neighbours):
        return (
            f"{where} reaches beyond the neighbourhood: a norm or an attention over all nodes, or a wrong batch vector",
            "normalise per node or per graph, and give every global step the batch vector",
        )
    if isinstance(facts.depends, Cache):
        return (
            "decoding with the cache gives something else: positions or the cache are off",
            "offset positions by the length of the cache, and append keys and values in order",
        )
    if isinstance(facts.depends, Accumulation):
        return (
            "the loss is a mean over units of which micro-batches hold unequal numbers: a mean of means",
            "sum the losses and divide by the count of the whole batch",
        )
    if "batchnorm" in kind:
        return (
            f"{where} normalises over the batch with its own statistics",
            "put it into evaluation mode, or use another norm",
        )
    return f"{where} mixes rows of the batch", "look for a reduction, a norm or a capacity over axis 0"


def _in_time(where: str, kind: str, seen: tuple[Pattern, int]) -> tuple[str, str]:
    shape, ahead = seen
    if "lstm" in kind or "gru" in kind or "rnn" in kind:
        return f"{where} runs in both directions", "set bidirectional=False"
    if "conv" in kind:
        return (
            f"{where} sees {ahead} place(s) ahead: it is padded on both sides",
            "pad (kernel - 1) * dilation places on the left only",
        )
    if "norm" in kind:
        return f"{where} normalises over time", "normalise over features only, or keep running statistics"
    if shape == "next":
        return (
            f"{where} sees exactly one place ahead: its mask is shifted by one",
            "mask everything above the diagonal: triu(diagonal=1), or is_causal=True",
        )
    if shape == "window":
        return f"{where} sees {ahead} places ahead: a window that is not shifted into the past", "end the window at t"
    return (
        f"{where} sees the whole future: its mask is missing, dropped on the way, or something is taken over all time",
        "give the attention its causal mask, and take no mean, maximum or norm over time",
    )
