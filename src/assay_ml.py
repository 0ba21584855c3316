"""Who answers to the name ``assay``: the command starts here, so that another package of that name is told, not run.

``assay`` on PyPI is another project, and ``assay-it`` installs a package ``assay`` too. This module has the name of our
distribution, which nobody else has, and imports nothing of the package before it has looked.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent / "assay"
MARK = "assay-ml"
DO_THIS = "Remove the other one, then run: pip install --force-reinstall assay-ml"


def main() -> None:
    """The ``assay`` command: refuse to start with modules of somebody else, then hand over."""
    if (other := hidden_by()) is not None:
        sys.stderr.write(f"assay: given {other}; expected the package of the distribution assay-ml. {DO_THIS}\n")
        raise SystemExit(2)
    # By a name put together: what the command line consists of is no part of what a cell's result depends on.
    command = importlib.import_module(".".join(("assay", "cli"))).main

    command()


def hidden_by() -> str | None:
    """What ``import assay`` would find instead of this project, in words; None if it finds this project."""
    from importlib.util import find_spec

    found = sys.modules.get("assay") or find_spec("assay")
    origin = getattr(found, "__file__", None) or getattr(found, "origin", None)
    if origin is None:
        return "no package assay, or a folder of that name without code"
    if Path(origin).resolve().parent != HOME:
        return f"another assay at {origin}, which hides {HOME}"
    if MARK not in Path(origin).read_text(encoding="utf-8", errors="replace"):
        return f"{origin}, which another distribution has overwritten"
    return None


def rivals(folder: Path = HOME.parent) -> list[str]:
    """Other distributions installed beside this one that bring a package ``assay``; nothing is imported."""
    found = []
    for record in sorted(folder.glob("assay*.dist-info/RECORD")):
        name = record.parent.name.removesuffix(".dist-info").replace("_", "-")
        files = record.read_text(encoding="utf-8", errors="replace").splitlines()
        if not name.startswith(f"{MARK}-") and any(file.startswith("assay/") for file in files):
            found.append(name)
    return found


def replaced() -> list[str]:
    """Installed files of this project whose content is no longer what was installed; none in an editable install."""
    import base64
    import hashlib
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        files = distribution(MARK).files or []
    except PackageNotFoundError:
        return []
    changed = []
    for file in files:
        if file.parts[0] != "assay" or file.hash is None or file.suffix != ".py":
            continue
        path = Path(str(file.locate()))
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest() if path.exists() else b""
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            changed.append(str(file))
    return changed


def warn_of_rivals() -> None:
    """At import: two distributions in one folder overwrite each other's files without a word from pip."""
    if others := rivals():
        import warnings

        warnings.warn(
            f"{', '.join(others)} and assay-ml both install a package named assay into {HOME.parent}; "
            f"whichever came last has overwritten files of the other. {DO_THIS}",
            RuntimeWarning,
            stacklevel=3,
        )
