"""Does fast code compute what slow code computes? Outputs, gradients, buffers and states against float64."""

from assay.audits.same.audit import NotSame, assert_same, audit_same

__all__ = ["NotSame", "assert_same", "audit_same"]
