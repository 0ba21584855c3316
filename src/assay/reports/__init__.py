"""Renderings of a run: Markdown, HTML, JSON, JUnit, exports, and the comparison of two runs. They compute nothing."""

from assay.reports.compare import Comparison, compare
from assay.reports.save import save_report

__all__ = ["Comparison", "compare", "save_report"]
