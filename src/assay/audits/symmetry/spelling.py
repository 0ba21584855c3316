"""A symmetry as text, spelt as reports print it: ``C(4): image(-2, -1) -> invariant``."""

from __future__ import annotations

import ast
from typing import Any

from assay import symmetry as sym
from assay.audits.symmetry.spec import Symmetry
from assay.errors import InputError, expected, unknown

GROUPS = ("S", "C", "D", "Shifts", "Flip", "sign", "time_reversal", "SO", "O", "SE", "E", "Lorentz", "Scale")
ACTIONS = (
    "invariant", "vector", "pseudovector", "pseudoscalar", "point", "tensor", "permuted", "node_index", "image",
    "regular", "odd", "scaled", "backwards", "irreps",
)  # fmt: skip
EXAMPLE = "C(4): image(-2, -1) -> invariant"


def spelt(text: str) -> Symmetry:
    """The symmetry that ``text`` spells: a group, what it does to the inputs and what to the outputs.

    Several inputs or outputs are a tuple in parentheses. As in Python, ``*`` multiplies groups and ``@`` joins actions.

    >>> spelt("C(4): image(-2, -1) -> invariant")
    Symmetry(C(4): image(-2, -1) -> invariant)
    >>> spelt("SE(3) * S: (permuted(1), point @ permuted(1)) -> invariant")
    Symmetry(SE(3) x S: (permuted(1), point @ permuted(1)) -> invariant)
    """
    group, colon, rest = text.partition(":")
    inputs, arrow, outputs = rest.partition("->")
    if not colon or not arrow:
        raise expected("GROUP: INPUTS -> OUTPUTS", given=repr(text), do=f'for instance "{EXAMPLE}"')
    return Symmetry(_value(group, GROUPS), inputs=_value(inputs, ACTIONS), outputs=_value(outputs, ACTIONS))


def _value(text: str, names: tuple[str, ...]) -> Any:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise expected("names and calls such as image(-2, -1)", given=repr(text.strip()),
                       do=f'for instance "{EXAMPLE}"') from None
    return _made(node, names)


def _made(node: ast.expr, names: tuple[str, ...]) -> Any:
    """What a node stands for. Only the names above are called, and only with constants: nothing else is evaluated."""
    match node:
        case ast.Tuple(elts=parts):
            return tuple(_made(part, names) for part in parts)
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if names is GROUPS:
            return _made(left, names) * _made(right, names)
        case ast.BinOp(left=left, op=ast.MatMult(), right=right) if names is ACTIONS:
            return _made(left, names) @ _made(right, names)
        case ast.Name(id=name):
            return _called(name, names, (), {})
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named):
            options = {one.arg: _constant(one.value) for one in named if one.arg is not None}
            return _called(name, names, tuple(_constant(one) for one in given), options)
        case _:
            raise expected("names and calls such as image(-2, -1)", given=ast.unparse(node))


def _called(name: str, names: tuple[str, ...], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name not in names:
        raise InputError(unknown("group" if names is GROUPS else "action", name, names))
    try:
        return getattr(sym, name)(*given, **options)
    except TypeError as error:
        raise InputError(f"expected the arguments of sym.{name}; {error}") from None


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise expected("a constant", given=ast.unparse(node)) from None
