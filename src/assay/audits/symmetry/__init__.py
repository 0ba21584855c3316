"""The equivariance auditor: declare a symmetry, audit any nn.Module, learn where and why it breaks."""

from __future__ import annotations

from assay.audits.symmetry.audit import audit_symmetry

__all__ = ["audit_symmetry"]
