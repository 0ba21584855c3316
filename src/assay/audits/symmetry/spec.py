"""What is claimed: a group and how it acts on the inputs and outputs of a model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Both, Invariant, Representation
from assay.errors import InputError, expected
from assay.probe import tree
from assay.probe.copies import cast

TESTED = 8
"""Elements a representation is tested at."""
SELF_TEST_BYTES = 4 << 20
"""Copies of an input moved at once: of a large one, element after element."""
Declared = Any
"""A Representation, or a tuple or dict of them in the shape of what they describe."""


@dataclass(frozen=True)
class Symmetry:
    """The claim f(rho_in(g) x) = rho_out(g) f(x) for all g in ``group``.

    ``inputs`` and ``outputs`` are a representation, or a tuple or dict of them in the shape of the model's inputs and
    outputs. ``batch`` says whether axis 0 holds independent inputs: 0 yes, None no, "auto" finds out.
    ``forces=("forces", "energy", "pos")`` says that output ``forces`` is minus the gradient of output ``energy`` by
    input ``pos``; it is checked by finite differences.

    >>> from assay import symmetry as sym
    >>> sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
    Symmetry(SO(3): vector -> invariant)
    """

    group: Group
    inputs: Any
    outputs: Any
    batch: Literal["auto", 0] | None = "auto"
    forces: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.group, Group):
            raise _refused("a group such as sym.SO(3)", self.group, "docs/guides/symmetry.md lists them")
        for what, declared in (("inputs", self.inputs), ("outputs", self.outputs)):
            for rep in _representations(declared, what):
                for atom in atoms(rep):
                    _check_parts(atom, self.group)
        if self.batch not in ("auto", 0, None):
            raise expected("batch 'auto', 0 or None", given=repr(self.batch))

    def __repr__(self) -> str:
        return f"Symmetry({self})"

    def __str__(self) -> str:
        return f"{self.group.name}: {_text(self.inputs)} -> {_text(self.outputs)}"

    @property
    def is_invariance(self) -> bool:
        """True if every output is declared invariant."""
        return all(isinstance(rep, Invariant) for rep in _representations(self.outputs, "outputs"))


@dataclass(frozen=True)
class SelfTest:
    """How far a representation is from one: the largest relative errors of the three laws."""

    where: str
    identity: float
    product: float
    inverse: float
    tolerance: float
    interpolated: bool = False
    """A grid is interpolated: only the identity is exact, and what the others cost is measured with the model."""

    @property
    def worst(self) -> float:
        """The largest error among the laws that must hold to rounding."""
        return self.identity if self.interpolated else max(self.identity, self.product, self.inverse)

    @property
    def holds(self) -> bool:
        """All laws that must hold do, within rounding."""
        return self.worst <= self.tolerance

    def __str__(self) -> str:
        return (
            f"rho(e) = 1 to {self.identity:.1g}, rho(gh) = rho(g) rho(h) to {self.product:.1g}, "
            f"rho(1/g) rho(g) = 1 to {self.inverse:.1g}"
        )


def self_test(group: Group, rep: Representation, x: Tensor, *, where: str, generator: torch.Generator) -> SelfTest:
    """Checks rho(e) = I, rho(gh) = rho(g) rho(h) and rho(g^-1) rho(g) = I on a tensor of the model's shape.

    The tolerance follows from float64: three actions, each a sum of at most ``size`` products. It catches a wrong test
    before a model is blamed; it cannot know whether a correct representation is the one the model has.
    """
    a, b = group.sample(TESTED, generator), group.sample(TESTED, generator)
    rep.check(a, tuple(x.shape))
    value = cast(x.detach().cpu(), torch.float64)
    step = max(1, SELF_TEST_BYTES // max(1, value.numel() * value.element_size()))
    parts = [_laws(group, rep, value, a=a[i : i + step], b=b[i : i + step]) for i in range(0, TESTED, step)]
    identity, product, inverse, scale = (max(column) for column in zip(*parts, strict=True))
    scale = max(scale, 1e-300)
    size = max([2, *(part.shape[-1] for part in a.parts.values() if part.ndim == 3)])
    return SelfTest(
        where=where,
        identity=identity / scale,
        product=product / scale,
        inverse=inverse / scale,
        tolerance=_conditioning(a) * 64 * size**2 * torch.finfo(torch.float64).eps,
        interpolated=rep.inexact(a) or rep.inexact(b),
    )


def _laws(
    group: Group, rep: Representation, value: Tensor, *, a: Elements, b: Elements
) -> tuple[float, float, float, float]:
    """How far the laws are off at some elements, and how large the tensors get."""
    xs = value.expand(a.count, *value.shape).clone()
    moved, together = rep.act(a, xs), group.compose(a, b)
    mask = rep.mask(together, xs)
    once = rep.act(a, rep.act(b, xs))
    return (
        _distance(rep.act(group.identity(a.count), xs), xs, None),
        _distance(once, rep.act(together, xs), mask),
        _distance(rep.act(group.inverse(a), moved), xs, mask),
        max(_largest(once), _largest(xs), _largest(moved)),
    )


def _conditioning(elements: Elements) -> float:
    """How much the parts of an element can magnify rounding: the largest entry of a matrix, a factor or its inverse."""
    worst = 1.0
    for part in elements.parts.values():
        if part.is_floating_point() or part.is_complex():
            worst = max(worst, float(part.abs().max()), float(1 / part.abs().min()) if part.ndim == 1 else 1.0)
    return worst**2


def _distance(a: Tensor, b: Tensor, mask: Tensor | None) -> float:
    gap = (a.to(torch.complex128) - b.to(torch.complex128)).abs() if a.is_complex() else (a.double() - b.double()).abs()
    return _largest(gap if mask is None else gap * mask)


def _largest(x: Tensor) -> float:
    return float((x if x.is_complex() else x.double()).abs().max()) if x.numel() else 0.0


def atoms(rep: Representation) -> list[Representation]:
    """The factors of a product representation."""
    return [*atoms(rep.first), *atoms(rep.second)] if isinstance(rep, Both) else [rep]


def _check_parts(atom: Representation, group: Group) -> None:
    if atom.parts and not atom.parts & set(group.parts):
        raise expected(
            f"a group that acts on {atom!r} (it needs {' or '.join(sorted(atom.parts))})",
            given=f"{group.name}, which has {', '.join(group.parts)}",
            do=atom.advice or "multiply the missing group in, as in sym.E(3) * sym.S(), or use sym.invariant()",
        )


def _representations(declared: Any, what: str) -> list[Representation]:
    if declared is None:
        return []
    if isinstance(declared, Representation):
        return [declared]
    if isinstance(declared, Mapping):
        return [rep for one in declared.values() for rep in _representations(one, what)]
    if isinstance(declared, (tuple, list)):
        return [rep for one in declared for rep in _representations(one, what)]
    own = "an action of your own is sym.custom(act)"
    raise _refused(f"{what} made of representations such as sym.vector()", declared, own)


def _refused(what: str, value: Any, do: str) -> InputError:
    """The error for something that is no group or representation; one that was not called is told its call."""
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return expected(what, given=repr(value), do=do)
    kind = "class" if inspect.isclass(value) else "function"
    if not str(value.__module__).startswith("assay."):
        return expected(what, given=f"the {kind} {value.__name__}", do=do)
    parameters = inspect.signature(value).parameters.values()
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    call = f"call it: sym.{value.__name__}({', '.join(needed)})"
    return expected(what, given=f"the {kind} sym.{value.__name__} itself", do=call)


def _text(declared: Any) -> str:
    if isinstance(declared, Mapping):
        return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in declared.items()) + "}"
    if isinstance(declared, (tuple, list)):
        return "(" + ", ".join(_text(one) for one in declared) + ")"
    return "any" if declared is None else repr(declared)


def match(declared: Declared, value: Any, what: str, *, partial: bool = False) -> list[Representation | None]:
    """The representation of each leaf of ``value``; None where nothing was declared (only if ``partial``)."""
    if isinstance(declared, Representation):
        found = tree.leaves(value)
        if partial and sum(isinstance(leaf, Tensor) for _, leaf in found) == 1:
            return [declared if isinstance(leaf, Tensor) else None for _, leaf in found]
        if len(found) > 1:
            raise expected(
                f"one representation per {what}: {', '.join(name for name, _ in found)}",
                given=repr(declared),
                do=f"give {what}s=... as a {'dict' if isinstance(value, Mapping) else 'tuple'} of the same shape",
            )
        return [declared]
    if declared is None:
        return [None if partial else Invariant() for _ in tree.leaves(value)]
    if isinstance(declared, Mapping) and (named := _named(value)) is not None:
        return _match_dicts(declared, named, what, partial)
    if _is_sequence(declared) and _is_sequence(value) and len(declared) == len(value):
        pairs = zip(declared, value, strict=True)
        return [rep for one, item in pairs for rep in match(one, item, what, partial=partial)]
    raise expected(f"{what}s declared in the shape of the {what}s", given=f"{declared!r} for {_shape(value)}")


def _match_dicts(
    declared: Mapping[str, Declared], value: Mapping[str, Any], what: str, partial: bool
) -> list[Representation | None]:
    extra = [key for key in declared if key not in value]
    missing = [key for key in value if key not in declared]
    if extra or (missing and not partial):
        raise expected(
            f"the {what}s {', '.join(map(str, value))}",
            given=f"{'unknown ' + ', '.join(extra) if extra else 'nothing for ' + ', '.join(map(str, missing))}",
            do="declare every one; sym.invariant() if the group leaves it alone",
        )
    return [rep for key, item in value.items() for rep in match(declared.get(key), item, what, partial=partial)]


def _named(value: Any) -> Mapping[str, Any] | None:
    """What is declared by names: a dict, and the fields of a dataclass or a named tuple."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(str, value))}"
    return f"{type(value).__name__} of {len(value)}" if _is_sequence(value) else type(value).__name__
