"""Does the output see what it must not see? A declaration, changed inputs, the first leaking module."""

from assay.audits.dependence.audit import NotIndependent, assert_depends, audit_dependence

__all__ = ["NotIndependent", "assert_depends", "audit_dependence"]
