"""Single nodes of the autograd graph: their neighbours, their shapes, and what they answer when asked with an error.

A node can be called with an error and answers with what it sends to each of its inputs; no names of operations are
needed for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

POSITIONS = 4
"""How many single errors a node is asked with."""
Sent = tuple[Tensor | None, ...]


def children(node: Any) -> list[Any]:
    """The nodes of a node's inputs."""
    return [child for child, _ in node.next_functions if child is not None]


def opaque(node: Any) -> bool:
    """Whether this is a function written in Python, which may keep a weight where nobody sees it."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def kind(node: Any) -> str:
    """The name of the operation, as a reader knows it."""
    return type(node).__name__.removesuffix("Backward0").removesuffix("Backward")


def sizes(node: Any, output: int = 0) -> torch.Size | None:
    """The shape of a node's output, if it is known."""
    try:
        return torch.Size(node._input_metadata[output].shape)
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None


def is_complex(node: Any) -> bool:
    """Whether a node's output is complex."""
    try:
        return bool(node._input_metadata[0].dtype.is_complex)
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return False


def spread_over(node: Any, index: int) -> bool:
    """Whether an input of a node is repeated to the size of its output, by the node or just before it."""
    shape, (child, output) = sizes(node), node.next_functions[index]
    if child is not None and type(child).__name__.startswith(("Expand", "Repeat")) and children(child):
        child, output = child.next_functions[0]
    given = sizes(child, output) if child is not None else None
    return shape is not None and given is not None and given.numel() < shape.numel()


def make_error(node: Any, make: Callable[[Tensor], Tensor]) -> list[Tensor | None] | None:
    """An error for the first output of a node and none for others; None if its shape is not known."""
    try:
        outputs = node._input_metadata
        first = torch.empty(tuple(outputs[0].shape), dtype=outputs[0].dtype, device=outputs[0].device)
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None
    return [make(first), *(None for _ in outputs[1:])]


def output_like(node: Any, output: int, error: Tensor) -> list[Tensor | None]:
    """An error for one output of a node and none for others."""
    try:
        count = len(node._input_metadata)
    except (AttributeError, RuntimeError):
        count = output + 1
    return [error if place == output else None for place in range(max(count, output + 1))]


def ask(node: Any, error: list[Tensor | None], *, learn: bool = False) -> Sent | None:
    """What a node sends to each input, or None if it cannot be asked; with ``learn`` the answer has a graph."""
    try:
        with torch.set_grad_enabled(learn):
            sent = node.apply(*error) if opaque(node) else node(*error)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return None
    parts = list(sent) if isinstance(sent, tuple) else [sent]
    while len(parts) > len(node.next_functions) and parts[-1] is None:  # arguments that are no tensors
        parts.pop()
    return tuple(parts) if len(parts) == len(node.next_functions) else None


def elementwise(node: Any, depends: Collection[Any], tensor: Tensor, *, repeated: bool = False) -> bool:
    """Whether every value of the error goes to one place only, the same, of inputs in ``depends``: nothing is
    transposed.

    Asked with other values in the ``tensor`` that the node uses: a product with the identity looks elementwise. The
    input that is the tensor itself does not matter where there is another. ``repeated`` allows an input that is
    repeated over the tensor, as a gate is: one place, whichever.
    """
    shape = sizes(node)
    inputs = [index for index, (child, _) in enumerate(node.next_functions) if child in depends]
    inputs = [index for index in inputs if node.next_functions[index][0] is not tensor.grad_fn] or inputs
    if tensor.layout is not torch.strided:  # a sparse matrix
        return False
    if shape is None or not shape.numel() or (
            not repeated and tensor.numel() > 1 and any(spread_over(node, index) for index in inputs)):
        return False
    generator = torch.Generator().manual_seed(0)
    with changed([tensor]):
        for position in torch.randint(shape.numel(), (POSITIONS,), generator=generator).tolist():
            error = make_error(node, lambda like, at=position: _single(like, at))  # type: ignore[misc]
            sent = None if error is None else ask(node, error)
            if sent is None:
                return False
            for index in inputs:
                given = sent[index]
                if given is not None and (int(given.count_nonzero()) > 1 if repeated else
                                          given.shape != shape or _elsewhere(given, position)):
                    return False
    return True


def otherwise(value: Tensor) -> Tensor:
    """Other values, not zeros and ones alone."""
    return 0.37 - 1.25 * value


@contextlib.contextmanager
def changed(tensors: Iterable[Tensor], how: Callable[[Tensor], Tensor] = otherwise) -> Iterator[None]:
    """Inside, the memory of these tensors holds other values; versions do not notice."""
    kept = []
    for tensor in tensors:
        writable = tensor.layout is torch.strided and not tensor._is_zerotensor()
        if writable and (tensor.is_floating_point() or tensor.is_complex()):
            # Of a tensor that repeats its memory (expanded) one copy is changed.
            once = tuple(slice(0, 1) if not step else slice(None) for step in tensor.stride())
            memory = tensor.data[once] if once else tensor.data
            kept.append((memory, memory.clone()))
    try:
        for memory, value in kept:
            memory.copy_(how(value))
        yield
    finally:
        for memory, value in kept:
            memory.copy_(value)


@contextlib.contextmanager
def changed_where(tensor: Tensor, where: Tensor) -> Iterator[None]:
    """Inside, a tensor's memory holds other values where ``where`` says so, and the same elsewhere."""
    before = tensor.detach().clone()
    with changed([tensor]):
        tensor.data[~where] = before[~where]
        yield


def _single(like: Tensor, position: int) -> Tensor:
    error = torch.zeros_like(like)
    error.view(-1)[position] = 1
    return error


def _elsewhere(given: Tensor, position: int) -> bool:
    flat = given.flatten()
    return int(flat.count_nonzero()) > int(bool(flat[position] != 0))
