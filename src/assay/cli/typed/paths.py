"""What a person types for an object of their own: ``pkg.module:name``, ``folder/mine.py:name`` or ``demo:name``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from assay.cli.terminal.common import see_this_folder
from assay.errors import expected

DEMOS = {
    "leaky-cnn": "assay.audits.symmetry.demo:leaky_cnn",
    "sound-cnn": "assay.audits.symmetry.demo:sound_cnn",
}
"""Subjects that ship with the package. A hyphen is in no Python name, so no module of a user is hidden by them."""


def as_module_path(text: str) -> str:
    """``pkg.module:name`` of what was typed, with its folder among those that imports look into.

    A file that belongs to a package is imported as part of it. Text that names no file and no demo stays as it is.
    """
    see_this_folder()
    home, colon, name = text.rpartition(":")
    if home == "demo" and not name.isidentifier():
        if name not in DEMOS:
            raise expected(f"demo:{' or demo:'.join(DEMOS)}", given=text)
        return DEMOS[name]
    if not colon or not home.endswith(".py"):
        return text
    file = Path(home).resolve()
    if not file.is_file():
        raise expected("a Python file that exists", given=home, do=f"run from its folder, now {Path.cwd()}")
    if not file.stem.isidentifier():
        raise expected("a file whose name can be imported (letters, digits, _)", given=file.name)
    top, parts = file.parent, [] if file.stem == "__init__" else [file.stem]
    while (top / "__init__.py").is_file():
        parts.insert(0, top.name)
        top = top.parent
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    _check_not_hidden(parts[0], top)
    return f"{'.'.join(parts)}:{name}"


def _check_not_hidden(root: str, top: Path) -> None:
    """An error if importing ``root`` would give another module than the one in the folder ``top``."""
    try:
        found = importlib.util.find_spec(root)
    except ValueError:  # a module of that name is loaded and has no spec
        found = None
    origin = Path(found.origin).resolve() if found is not None and found.origin else None
    if origin not in ((top / f"{root}.py").resolve(), (top / root / "__init__.py").resolve()):
        raise expected("a file that no other module hides", given=f"{root}.py, and Python already has a module {root}",
                       do=f"rename {root}.py")
