"""A symmetry as text, spelt as reports print it: ``C(4): image(-2, -1) -> invariant``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from assay.audits.symmetry.groups import continuous, discrete, grids, unitary
from assay.audits.symmetry.representations import actions, base, images, irreps
from assay.audits.symmetry.representations import unitary as fields
from assay.audits.symmetry.spec import Symmetry
from assay.errors import InputError, expected, unknown

GROUPS: dict[str, Callable[..., Any]] = {
    "S": discrete.S, "C": discrete.C, "D": discrete.D, "Shifts": discrete.Shifts, "Flip": discrete.Flip,
    "sign": discrete.sign, "time_reversal": discrete.time_reversal, "SO": continuous.SO, "O": continuous.O,
    "SE": continuous.SE, "E": continuous.E, "Lorentz": continuous.Lorentz, "Scale": continuous.Scale,
    "Cube": grids.Cube, "U": unitary.U, "SU": unitary.SU, "Gauge": unitary.Gauge,
}  # fmt: skip
ACTIONS: dict[str, Callable[..., Any]] = {
    "invariant": base.invariant, "scalar": base.invariant, "vector": base.vector, "pseudovector": base.pseudovector,
    "pseudoscalar": base.pseudoscalar, "point": base.point, "tensor": base.tensor, "permuted": actions.permuted,
    "node_index": actions.node_index, "image": images.image, "regular": actions.regular, "odd": actions.odd,
    "scaled": actions.scaled, "backwards": actions.backwards, "irreps": irreps.irreps,
    "spinor": fields.spinor, "phase": fields.phase, "adjoint": fields.adjoint, "site": fields.site,
    "link": fields.link,
}  # fmt: skip
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


def _value(text: str, names: dict[str, Callable[..., Any]]) -> Any:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise expected("names and calls such as image(-2, -1)", given=repr(text.strip()),
                       do=f'for instance "{EXAMPLE}"') from None
    return _made(node, names)


def _made(node: ast.expr, names: dict[str, Callable[..., Any]]) -> Any:
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


def _called(name: str, names: dict[str, Callable[..., Any]], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if name not in names:
        raise InputError(unknown("group" if names is GROUPS else "action", name, list(names)))
    try:
        return names[name](*given, **options)
    except TypeError as error:
        raise InputError(f"expected the arguments of sym.{name}; {error}") from None


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise expected("a constant", given=ast.unparse(node)) from None
