"""Every format a run can be shown in, by the name the command line uses."""

from __future__ import annotations

from collections.abc import Callable

from assay.errors import InputError, unknown
from assay.reports.checklist import checklist
from assay.reports.citation import citation
from assay.reports.html import html
from assay.reports.junit import junit
from assay.reports.markdown import markdown
from assay.reports.tabular import csv_table, latex
from assay.results import Run

FORMATS: dict[str, Callable[[Run], str]] = {
    "md": markdown,
    "html": html,
    "json": Run.to_json,
    "junit": junit,
    "csv": csv_table,
    "latex": latex,
    "checklist": checklist,
    "citation": lambda run: str(citation(run)),
}


def render(run: Run, format_name: str) -> str:
    """``run`` as text in the named format.

    >>> render(Run(id="r", created="2026-01-01"), "csv").splitlines()[0][:20]
    'track,name,subject,v'
    """
    if format_name not in FORMATS:
        raise InputError(unknown("format", format_name, FORMATS))
    return FORMATS[format_name](run)
