"""Declare what outputs may depend on and audit a model: ``from assay import dependence as dep``.

Every name is loaded on first use, so importing this module does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "declarations": ("causal", "local", "rows", "padding", "neighbours", "never", "only", "cache", "accumulation"),
    "audit": ("audit_dependence", "assert_depends", "NotIndependent"),
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay.dependence' has no attribute '{name}': {unknown('name', name, __all__)}")
    value = getattr(importlib.import_module(f"assay.audits.dependence.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from assay.audits.dependence.audit import NotIndependent as NotIndependent
    from assay.audits.dependence.audit import assert_depends as assert_depends
    from assay.audits.dependence.audit import audit_dependence as audit_dependence
    from assay.audits.dependence.declarations import accumulation as accumulation
    from assay.audits.dependence.declarations import cache as cache
    from assay.audits.dependence.declarations import causal as causal
    from assay.audits.dependence.declarations import local as local
    from assay.audits.dependence.declarations import neighbours as neighbours
    from assay.audits.dependence.declarations import never as never
    from assay.audits.dependence.declarations import only as only
    from assay.audits.dependence.declarations import padding as padding
    from assay.audits.dependence.declarations import rows as rows
