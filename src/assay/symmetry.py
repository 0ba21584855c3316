"""Declare a symmetry and audit a model: ``from assay import symmetry as sym``.

Every name is loaded on first use, so importing this module does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "audits.symmetry.groups.base": ("Group", "matrix_group"),
    "audits.symmetry.groups.elements": ("Elements",),
    "audits.symmetry.groups.discrete": ("S", "C", "D", "Shifts", "Flip", "sign", "time_reversal"),
    "audits.symmetry.groups.grids": ("Cube",),
    "audits.symmetry.groups.unitary": ("U", "SU", "Gauge"),
    "audits.symmetry.groups.continuous": ("SO", "O", "SE", "E", "Lorentz", "Scale"),
    "audits.symmetry.representations.base": (
        "Representation",
        "invariant",
        "vector",
        "pseudovector",
        "pseudoscalar",
        "point",
        "tensor",
        "custom",
    ),
    "audits.symmetry.representations.actions": (
        "permuted",
        "node_index",
        "regular",
        "odd",
        "scaled",
        "backwards",
    ),
    "audits.symmetry.representations.fields": ("fields",),
    "audits.symmetry.representations.images": ("image",),
    "audits.symmetry.representations.irreps": ("irreps",),
    "audits.symmetry.representations.unitary": ("spinor", "phase", "adjoint", "site", "link"),
    "audits.symmetry.spec": ("Symmetry",),
    "audits.symmetry.recall": ("audited",),
    "audits.symmetry.audit": ("audit_symmetry",),
    "audits.symmetry.quick": (
        "assert_equivariant",
        "audit_invariance",
        "audit_equivariance",
        "audit_so3",
        "audit_se3",
        "audit_permutations",
        "audit_images",
    ),
    "audits.symmetry.versus": ("against",),
    "audits.symmetry.molecule": ("molecule", "guess"),
    "audits.symmetry.logger": ("EquivarianceLogger",),
    "audits.symmetry.present.template": ("original_template",),
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names}
_ALIASES = {
    "shifts": "Shifts",
    "scale": "Scale",
    "lorentz": "Lorentz",
    "flip": "Flip",
    "scalar": "invariant",  # what e3nn and escnn users type: the trivial representation
    # The names of the original: a layer is a model, and every audit tests layers and gradients too.
    "test_model_equivariance": "audit_equivariance",
    "test_model_invariance": "audit_invariance",
    "test_layer_equivariance": "audit_equivariance",
    "test_gradient_equivariance": "audit_equivariance",
    "audit_all_layers": "audit_symmetry",
    "seed_template": "original_template",  # its name until 0.1; goes in the next release
}

__all__ = [*_WHERE, *_ALIASES]


def __getattr__(name: str) -> Any:
    real = _ALIASES.get(name, name)
    if real not in _WHERE:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay.symmetry' has no attribute '{name}': {unknown('name', name, __all__)}")
    value = getattr(importlib.import_module(f"assay.{_WHERE[real]}"), real)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from assay.audits.symmetry.audit import audit_symmetry as audit_symmetry
    from assay.audits.symmetry.groups.base import Group as Group
    from assay.audits.symmetry.groups.base import matrix_group as matrix_group
    from assay.audits.symmetry.groups.continuous import SE as SE
    from assay.audits.symmetry.groups.continuous import SO as SO
    from assay.audits.symmetry.groups.continuous import E as E
    from assay.audits.symmetry.groups.continuous import Lorentz as Lorentz
    from assay.audits.symmetry.groups.continuous import O as O
    from assay.audits.symmetry.groups.continuous import Scale as Scale
    from assay.audits.symmetry.groups.discrete import C as C
    from assay.audits.symmetry.groups.discrete import D as D
    from assay.audits.symmetry.groups.discrete import Flip as Flip
    from assay.audits.symmetry.groups.discrete import S as S
    from assay.audits.symmetry.groups.discrete import Shifts as Shifts
    from assay.audits.symmetry.groups.discrete import sign as sign
    from assay.audits.symmetry.groups.discrete import time_reversal as time_reversal
    from assay.audits.symmetry.groups.elements import Elements as Elements
    from assay.audits.symmetry.groups.grids import Cube as Cube
    from assay.audits.symmetry.groups.unitary import SU as SU
    from assay.audits.symmetry.groups.unitary import Gauge as Gauge
    from assay.audits.symmetry.groups.unitary import U as U
    from assay.audits.symmetry.logger import EquivarianceLogger as EquivarianceLogger
    from assay.audits.symmetry.molecule import guess as guess
    from assay.audits.symmetry.molecule import molecule as molecule
    from assay.audits.symmetry.present.template import original_template as original_template
    from assay.audits.symmetry.quick import assert_equivariant as assert_equivariant
    from assay.audits.symmetry.quick import audit_equivariance as audit_equivariance
    from assay.audits.symmetry.quick import audit_images as audit_images
    from assay.audits.symmetry.quick import audit_invariance as audit_invariance
    from assay.audits.symmetry.quick import audit_permutations as audit_permutations
    from assay.audits.symmetry.quick import audit_se3 as audit_se3
    from assay.audits.symmetry.quick import audit_so3 as audit_so3
    from assay.audits.symmetry.recall import audited as audited
    from assay.audits.symmetry.representations.actions import backwards as backwards
    from assay.audits.symmetry.representations.actions import node_index as node_index
    from assay.audits.symmetry.representations.actions import odd as odd
    from assay.audits.symmetry.representations.actions import permuted as permuted
    from assay.audits.symmetry.representations.actions import regular as regular
    from assay.audits.symmetry.representations.actions import scaled as scaled
    from assay.audits.symmetry.representations.base import Representation as Representation
    from assay.audits.symmetry.representations.base import custom as custom
    from assay.audits.symmetry.representations.base import invariant as invariant
    from assay.audits.symmetry.representations.base import point as point
    from assay.audits.symmetry.representations.base import pseudoscalar as pseudoscalar
    from assay.audits.symmetry.representations.base import pseudovector as pseudovector
    from assay.audits.symmetry.representations.base import tensor as tensor
    from assay.audits.symmetry.representations.base import vector as vector
    from assay.audits.symmetry.representations.fields import fields as fields
    from assay.audits.symmetry.representations.images import image as image
    from assay.audits.symmetry.representations.irreps import irreps as irreps
    from assay.audits.symmetry.representations.unitary import adjoint as adjoint
    from assay.audits.symmetry.representations.unitary import link as link
    from assay.audits.symmetry.representations.unitary import phase as phase
    from assay.audits.symmetry.representations.unitary import site as site
    from assay.audits.symmetry.representations.unitary import spinor as spinor
    from assay.audits.symmetry.spec import Symmetry as Symmetry
    from assay.audits.symmetry.versus import against as against
