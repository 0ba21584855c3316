"""What is claimed: which outputs may depend on which inputs. Each declaration is a value, like a symmetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from assay.errors import expected

Names = tuple[str, ...]


@dataclass(frozen=True)
class Causal:
    """Output t does not depend on inputs after t."""

    inputs_dim: int = 1
    outputs_dim: int = 1
    inputs: Names = ()

    def allows(self, output: int, place: int) -> bool:
        """Whether output ``output`` may see place ``place`` of the input."""
        return place <= output

    def __str__(self) -> str:
        return f"output t does not depend on inputs after t (axis {self.inputs_dim} in, axis {self.outputs_dim} out)"


@dataclass(frozen=True)
class Local:
    """Output t depends only on inputs at most ``radius`` away: a receptive field."""

    inputs_dim: int
    outputs_dim: int
    radius: int
    inputs: Names = ()

    def allows(self, output: int, place: int) -> bool:
        """Whether output ``output`` may see place ``place`` of the input."""
        return abs(output - place) <= self.radius

    def __str__(self) -> str:
        return f"output t depends only on inputs within {self.radius} of t (axis {self.inputs_dim})"


@dataclass(frozen=True)
class Rows:
    """A row of the output does not depend on the other rows of the batch, nor on how many there are."""

    def __str__(self) -> str:
        return "a row does not depend on the other rows of the batch, nor on how many there are"


@dataclass(frozen=True)
class Padding:
    """Outputs at real tokens do not depend on what stands in padding, nor on how much of it, left or right."""

    mask: str
    dim: int = 1
    inputs: Names = ()
    sides: tuple[Literal["left", "right"], ...] = ("left", "right")
    amount: int = 3

    def __str__(self) -> str:
        sides = " and ".join(self.sides)
        return f"outputs at real tokens do not depend on padding ({self.mask} = 0): its content, its amount, {sides}"


@dataclass(frozen=True)
class Neighbours:
    """A node depends only on nodes from which it can be reached in ``hops`` edges."""

    edge_index: str
    hops: int
    nodes: str

    def __str__(self) -> str:
        return f"a node depends only on nodes within {self.hops} hops along {self.edge_index}"


@dataclass(frozen=True)
class Never:
    """No output depends on these inputs."""

    names: Names

    def __str__(self) -> str:
        return f"no output depends on {', '.join(self.names)}"


@dataclass(frozen=True)
class Only:
    """Outputs depend on these inputs and on no other."""

    names: Names

    def __str__(self) -> str:
        return f"outputs depend on {', '.join(self.names)} alone"


@dataclass(frozen=True)
class Cache:
    """Decoding step by step with a cache gives what the full pass gives.

    ``step(model, piece, cache) -> (outputs, cache)`` is called with one place of the input at a time; cache starts as
    None.
    """

    step: Callable[[nn.Module, Any, Any], tuple[Tensor, Any]]
    inputs_dim: int = 1
    outputs_dim: int = 1

    def __str__(self) -> str:
        return "decoding with a cache equals the full pass"


@dataclass(frozen=True)
class Accumulation:
    """The gradients of k micro-batches, averaged, are the gradient of the whole batch.

    ``loss(model, batch)`` is the training loss of a batch.
    """

    parts: int
    loss: Callable[[nn.Module, Any], Tensor]

    def __str__(self) -> str:
        return f"{self.parts} micro-batches give the gradient of the whole batch"


Positional = Causal | Local
Declaration = Causal | Local | Rows | Padding | Neighbours | Never | Only | Cache | Accumulation


def causal(inputs_dim: int = 1, outputs_dim: int = 1, *, inputs: Names | str = ()) -> Causal:
    """Output t does not depend on inputs after t; ``inputs`` names those that have time (default: the first).

    >>> print(causal())
    output t does not depend on inputs after t (axis 1 in, axis 1 out)
    """
    return Causal(_axis(inputs_dim, "inputs_dim"), _axis(outputs_dim, "outputs_dim"), _names(inputs))


def local(dim: int, radius: int, *, outputs_dim: int | None = None, inputs: Names | str = ()) -> Local:
    """Output t depends only on inputs within ``radius`` of t along ``dim``."""
    if radius < 0:
        raise expected("radius >= 0", given=f"radius={radius}")
    return Local(_axis(dim, "dim"), _axis(dim if outputs_dim is None else outputs_dim, "dim"), radius, _names(inputs))


def rows() -> Rows:
    """A row of the output does not depend on the other rows of the batch."""
    return Rows()


def padding(
    mask: str,
    *,
    dim: int = 1,
    inputs: Names | str = (),
    sides: tuple[Literal["left", "right"], ...] = ("left", "right"),
    amount: int = 3,
) -> Padding:
    """Outputs at real tokens do not depend on padding; ``mask`` names the input that is 1 at real tokens, else 0."""
    if not sides or any(side not in ("left", "right") for side in sides):
        raise expected("sides of 'left' and 'right'", given=repr(sides))
    if amount < 1:
        raise expected("amount >= 1", given=f"amount={amount}")
    return Padding(mask, _axis(dim, "dim"), _names(inputs), tuple(sides), amount)


def neighbours(edge_index: str, hops: int, *, nodes: str) -> Neighbours:
    """A node depends only on nodes within ``hops`` edges; the names are of inputs [2, edges] and [nodes, ...]."""
    if hops < 0:
        raise expected("hops >= 0", given=f"hops={hops}")
    return Neighbours(edge_index, hops, nodes)


def never(*names: str) -> Never:
    """No output depends on the named inputs."""
    if not names:
        raise expected("the name of at least one input", given="dep.never()")
    return Never(names)


def only(*names: str) -> Only:
    """Outputs depend on the named inputs and on nothing else."""
    if not names:
        raise expected("the name of at least one input", given="dep.only()")
    return Only(names)


def cache(
    step: Callable[[nn.Module, Any, Any], tuple[Tensor, Any]], *, inputs_dim: int = 1, outputs_dim: int = 1
) -> Cache:
    """Decoding with a cache equals the full pass; ``step(model, piece, cache) -> (outputs, cache)``."""
    return Cache(step, _axis(inputs_dim, "inputs_dim"), _axis(outputs_dim, "outputs_dim"))


def accumulation(parts: int, *, loss: Callable[[nn.Module, Any], Tensor]) -> Accumulation:
    """``parts`` micro-batches, their gradients averaged, give the gradient of ``loss`` on the whole batch."""
    if parts < 2:
        raise expected("at least 2 micro-batches", given=f"parts={parts}")
    return Accumulation(parts, loss)


def _axis(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise expected(f"{name} >= 0, counted from the front", given=f"{name}={value!r}")
    return value


def _names(given: Names | str) -> Names:
    return (given,) if isinstance(given, str) else tuple(given)
