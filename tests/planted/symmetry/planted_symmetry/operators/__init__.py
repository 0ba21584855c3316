"""Every operator: a named way to break the symmetry of a family at a known module."""

from __future__ import annotations

from planted_symmetry.operators.euclidean import EUCLIDEAN
from planted_symmetry.operators.hidden import HIDDEN
from planted_symmetry.operators.images import IMAGES
from planted_symmetry.operators.irreducible import IRREDUCIBLE
from planted_symmetry.operators.orders import ORDERS
from planted_symmetry.plant import Operator


def operators(kind: str = "forward") -> list[Operator]:
    """The operators of a kind: forward, latent or backward."""
    return [one for one in [*EUCLIDEAN, *IMAGES, *ORDERS, *IRREDUCIBLE, *HIDDEN] if one.kind == kind]
