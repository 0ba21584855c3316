"""Writes a run or a finding to a file or a folder, each file whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from assay.environment import capture
from assay.errors import InputError, expected
from assay.reports import words
from assay.reports.html import html
from assay.reports.junit import junit
from assay.reports.markdown import markdown
from assay.reports.tabular import csv_table, latex
from assay.results import Finding, Run

RENDERERS: dict[str, Callable[[Run], str]] = {
    ".html": html,
    ".md": markdown,
    ".json": Run.to_json,
    ".xml": junit,
    ".tex": latex,
    ".csv": csv_table,
}
FOLDER = {"run.json": ".json", "index.html": ".html", "report.md": ".md", "junit.xml": ".xml"}
"""What a run folder holds. run.json comes first: it is the product, the others are renderings of it."""


def save_report(result: Finding | Run, path: str | Path) -> Path:
    """The path written: one file by its suffix (.html, .md, .json, .xml, .tex, .csv), or a folder with the first four.

    A bare Finding is wrapped in a Run of kind "audit". Each file is written beside its place, synced and renamed, so a
    reader never sees half a report and a failure leaves the old one.
    """
    if not isinstance(result, (Finding, Run)):
        raise expected(
            "a Finding or a Run", given=f"{type(result).__name__}", do="pass what an audit or verify returned"
        )
    run = as_run(result)
    target = check_place(path)
    if _is_folder(target):
        for name, kind in FOLDER.items():
            write_atomically(target / name, RENDERERS[kind](run))
        return target
    write_atomically(target, RENDERERS[target.suffix.lower()](run))
    return target


def check_place(path: str | Path) -> Path:
    """``path`` if a report can go there; an InputError otherwise, to be had before hours of work rather than after."""
    target = Path(path)
    if not _is_folder(target) and target.suffix.lower() not in RENDERERS:
        raise expected(f"a folder or a file ending in {', '.join(RENDERERS)}", given=str(target))
    there = next(parent for parent in (target.absolute(), *target.absolute().parents) if parent.exists())
    if there.is_file() and there != target.absolute():
        raise InputError(f"cannot write {target}: {there} is a file; choose a folder you may write to")
    if not os.access(there, os.W_OK):
        raise InputError(f"cannot write {target}: no permission for {there}; choose a folder you may write to")
    return target


def check_folder(path: str | Path) -> Path:
    """``path`` if a folder can be there; an InputError otherwise. A run is several files, so a file will not do."""
    target = Path(path).absolute()
    there = next(parent for parent in (target, *target.parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"cannot write into {path}: {there} is a file; expected a folder, give another --out")
    if not os.access(there, os.W_OK):
        raise InputError(f"cannot write into {path}: no permission for {there}; choose a folder you may write to")
    return Path(path)


def _is_folder(target: Path) -> bool:
    return target.is_dir() or target.suffix == ""


def as_run(result: Finding | Run) -> Run:
    """``result`` itself if it is a run, else a run of kind "audit" around the finding."""
    if isinstance(result, Run):
        return result
    digest = hashlib.sha256(result.model_dump_json().encode()).hexdigest()[:12]
    return Run(
        id=f"audit-{digest}",
        kind="audit",
        title=_audit_title(result),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=result.seconds,
        environment=capture(),
        findings=(result,),
    )


def _audit_title(finding: Finding) -> str:
    """What was audited and of whom, for a list of runs."""
    if finding.title:
        return words.named(finding)
    return f"{words.capital(finding.name)}: {finding.subject}" if finding.name else f"Audit of {finding.subject}"


def write_atomically(path: Path, content: str) -> None:
    """Put ``content`` at ``path`` in one step; an unwritable place is an InputError that says which."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose a folder you may write to") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
