"""Whose result it is: a digest of all code a cell can reach by imports, and of the versions of what it stands on.

Nothing is listed by hand. From the module of the cell's target the imports are followed through source files, lazily
imported modules included, inside Assay and inside the code of whoever wrote the target (its folder, or its
distribution when it is installed); these files count by content. Every other package it imports counts by its version,
and so do Python, torch, numpy and scipy. Files are read when the question is asked: an edited helper is another
identity at once, in a running notebook too.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.engine.imports import ALL, DATA, PATH, Imports, imports_of
from assay.engine.plan import content_key

WORKER = ("assay.engine.workers.worker", "assay.seeding")
"""Every cell runs inside this."""
VERSIONED = ("torch", "numpy", "scipy")
SETTLED_SECONDS = 2.0
"""A file changed less than this before it was read may change again within the same tick of its clock."""
INSTALLED = ("site-packages", "dist-packages")
OUTPUTS = ("assay-runs",)
NAME = re.compile(r"^Name:\s*(\S+)", re.M)


def cell_key(
    target: str, identity: Mapping[str, Any], *, modules: Iterable[str] = (), extras: Iterable[str] = ()
) -> str:
    """The key of the cell that calls ``target`` on work described by ``identity`` (JSON values).

    ``modules`` are further roots of the closure, ``extras`` distributions whose version matters though nobody imports
    them. Texts of the form ``module:name`` anywhere in ``identity`` are roots too: a model or rule of the user's own.
    """
    roots = [target.partition(":")[0], *modules, *named_modules(identity)]
    return content_key({**identity, "target": target, "code": fingerprint(roots, extras=extras)})


def fingerprint(modules: Iterable[str], *, extras: Iterable[str] = ()) -> str:
    """A digest of the code that ``modules`` can reach and of the versions it stands on; nothing is imported.

    >>> fingerprint(["assay.errors"]) == fingerprint(["assay.errors"])
    True
    """
    roots = tuple(sorted({*WORKER, *modules}))
    known = _known.get(roots)
    if known is None or not known.holds():
        known = closure_of(roots)
        _known[roots] = known
    versions = {name: version_of(name) for name in sorted({*VERSIONED, *known.packages, *extras})}
    return content_key({"python": platform.python_version(), "versions": versions, "files": dict(known.files)})


def named_modules(value: Any) -> set[str]:
    """The modules of all texts ``module:name`` inside JSON data."""
    if isinstance(value, str):
        return {value.partition(":")[0]} if ":" in value and PATH.fullmatch(value) else set()
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return set()
    return {module for each in value for module in named_modules(each)}


def own_roots(modules: Iterable[str]) -> list[str]:
    """The top-level modules, besides Assay, of all code that ``modules`` reach and that counts by content.

    They are what must be sent along to a machine where only packages are installed.
    """
    files = closure_of(modules).files
    return sorted({_root(name.partition("/")[0]) for name, digest in files.items() if digest != "absent"} - {"assay"})


@dataclass(frozen=True)
class Closure:
    """All code reachable from some modules: ``files`` by content, ``packages`` imported besides, and how it was seen.

    ``files`` maps ``module`` (or ``module/data-file``) to the digest of its content; ``absent`` where a root does not
    exist.
    """

    files: Mapping[str, str]
    packages: frozenset[str]
    seen: Mapping[Path, tuple[int, ...]]
    settled: bool

    def holds(self) -> bool:
        """Whether no file or folder of it has changed since; False too while that cannot be told."""
        return self.settled and all(_signature(path) == signature for path, signature in self.seen.items())


_known: dict[tuple[str, ...], Closure] = {}


def closure_of(modules: Iterable[str]) -> Closure:
    """The closure of ``modules``, read from the files as they are now."""
    roots = tuple(modules)
    walk = _Walk({_root(name) for name in roots})
    for name in roots:
        walk.enter(name, {ALL}, root=True)
    walk.finish()
    newest = max((max(signature[:2], default=0) for signature in walk.seen.values()), default=0)
    settled = time.time_ns() - newest > SETTLED_SECONDS * 1e9
    return Closure(dict(sorted(walk.files.items())), frozenset(walk.packages), walk.seen, settled)


class _Walk:
    """One pass from the roots outwards."""

    def __init__(self, own: set[str]) -> None:
        self.files: dict[str, str] = {}
        self.packages: set[str] = set()
        self.seen: dict[Path, tuple[int, ...]] = {}
        self._own = own
        self._found: dict[str, Imports] = {}
        self._places: dict[str, tuple[Path, bool] | None] = {}
        self._tops: dict[str, tuple[list[Path], tuple[Path, bool] | None]] = {}
        self._asked: dict[str, set[str]] = {}
        self._todo: list[str] = []

    def enter(self, name: str, attributes: Iterable[str], *, root: bool = False) -> bool:
        """Note that ``attributes`` of the module ``name`` are used; False if it is no module of ours."""
        place = self._place(name)
        if place is None:
            if root:
                self.files[name] = "absent"
            return False
        wanted = self._asked.setdefault(name, set())
        fresh = set(attributes) - wanted
        if fresh or name not in self.files:
            wanted |= fresh
            self._todo.append(name)
        parent = name.rpartition(".")[0]
        if parent:
            self.enter(parent, ())  # its __init__ runs first
        return True

    def finish(self) -> None:
        while self._todo:
            name = self._todo.pop()
            self._follow(name, self._imports(name), self._asked[name])

    def _follow(self, name: str, found: Imports, wanted: set[str]) -> None:
        for module, names in found.modules.items():
            if not self.enter(module, names):
                self._package(module)
            elif ALL in names:  # a star takes the submodules that a package names in __all__, too
                for text in self._imports(module).texts:
                    self.enter(f"{module}.{text}", {ALL})
        for target in found.targets:
            self.enter(target.partition(":")[0], {ALL})
        if found.lazy:
            for attribute in self._exports(found) if ALL in wanted else wanted:
                self._by_name(name, found, attribute)
        elif found.dynamic:
            for text in found.texts:
                self._by_name(name, found, text)

    def _imports(self, name: str) -> Imports:
        if name not in self._found:
            place = self._place(name)
            self._found[name] = self._read(name, *place) if place else Imports()
        return self._found[name]

    def _exports(self, found: Imports) -> set[str]:
        return {*found.homes, *found.texts}

    def _by_name(self, module: str, found: Imports, text: str) -> None:
        """Modules that a text of a dynamically importing file may stand for."""
        home = found.homes.get(text, text)
        for prefix in ("", *found.prefixes, f"{module}."):
            if "." in f"{prefix}{home}":
                self.enter(f"{prefix}{home}", {text})
                self.enter(f"{prefix}{home}.{text}", {ALL})

    def _read(self, name: str, path: Path, package: bool) -> Imports:
        content = self._content(path)
        self.files[name] = hashlib.sha256(content).hexdigest()
        if path.suffix != ".py":
            return Imports()
        _forget_older_bytecode(path)
        found = imports_of(content, name, package=package)
        for file in self._data(path.parent, found, packaged=package or "." in name):
            self.files[f"{name}/{file.relative_to(path.parent).as_posix()}"] = hashlib.sha256(
                self._content(file)).hexdigest()
        return found

    def _data(self, folder: Path, found: Imports, *, packaged: bool) -> Iterator[Path]:
        """Data files beside a module that its text names: by name, by ending, or (in a package) by their folder."""
        for ending in found.endings:
            yield from sorted(file for file in folder.glob(f"*{ending}") if file.is_file())
        for text in sorted(found.texts):
            file = folder / text
            if text.endswith(DATA) and file.is_file():
                yield file
            elif packaged and "." not in text and text not in OUTPUTS and _plain_folder(file):
                self.seen[file] = _signature(file)
                yield from sorted(each for each in file.rglob("*") if each.suffix in DATA and each.is_file())

    def _content(self, path: Path) -> bytes:
        self.seen[path] = _signature(path)
        self.seen.setdefault(path.parent, _signature(path.parent))
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def _package(self, module: str) -> None:
        root = _root(module)
        if root and root not in sys.stdlib_module_names and self._top(root) == ([], None):
            self.packages.add(root)

    def _place(self, name: str) -> tuple[Path, bool] | None:
        """The file of a module of ours and whether it is a package."""
        if name not in self._places:
            folders, found = self._top(_root(name))
            for part in name.split(".")[1:]:
                folders, found = _below(folders, part)
            self._places[name] = found
        return self._places[name]

    def _top(self, root: str) -> tuple[list[Path], tuple[Path, bool] | None]:
        if root not in self._tops:
            self._tops[root] = _top(root, self._own)
        return self._tops[root]


def _root(name: str) -> str:
    return name.partition(".")[0]


def _top(root: str, own: set[str]) -> tuple[list[Path], tuple[Path, bool] | None]:
    """Where a top-level module lies, if its code counts by content: the folders of its parts, and its own file."""
    if root in sys.stdlib_module_names or not root:
        return [], None
    if root == "__main__":
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        return [], (Path(file).resolve(), False) if file else None
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return [], None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    where = file or (folders[0] if folders else None)
    if where is None or (any(part in INSTALLED for part in where.parts) and not _belongs(root, own)):
        return [], None
    return folders, (file, bool(folders)) if file else None


def _below(folders: list[Path], part: str) -> tuple[list[Path], tuple[Path, bool] | None]:
    deeper = []
    for folder in folders:
        if (init := folder / part / "__init__.py").is_file():
            return [folder / part], (init, True)
        for ending in (".py", *importlib.machinery.EXTENSION_SUFFIXES):
            if (file := folder / f"{part}{ending}").is_file():
                return [], (file, False)
        if (folder / part).is_dir():
            deeper.append(folder / part)
    return deeper, None


def _belongs(root: str, own: set[str]) -> bool:
    """Whether an installed package is Assay, a root itself, or of the same distribution as one."""
    if root == "assay" or root in own:
        return True
    ours = {name for each in own if each != "assay" for name in _distributions().get(each, ())}
    return bool(ours & set(_distributions().get(root, ())))


@cache
def _distributions() -> Mapping[str, list[str]]:
    """What ``importlib.metadata.packages_distributions`` finds, in a tenth of its time: everyone who plans asks."""
    found: dict[str, list[str]] = {}
    for each in importlib.metadata.distributions():
        if name := NAME.search(each.read_text("METADATA") or each.read_text("PKG-INFO") or ""):
            for top in _tops(each):
                found.setdefault(top, []).append(name[1])
    return found


def _tops(distribution: importlib.metadata.Distribution) -> set[str]:
    if declared := distribution.read_text("top_level.txt"):
        return set(declared.split())
    rows = (distribution.read_text("RECORD") or distribution.read_text("SOURCES.txt") or "").splitlines()
    files = (row.partition(",")[0] for row in rows)
    return {file.partition("/")[0].removesuffix(".py") for file in files if file.endswith(".py")}


@cache
def version_of(package: str) -> str:
    """The version of a distribution or of the one that holds an importable package; ``absent`` if there is none."""
    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            return "absent"
    names = _distributions().get(package, ())
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names))) or "unknown"


def _plain_folder(path: Path) -> bool:
    return path.is_dir() and not (path / "__init__.py").exists()


def _forget_older_bytecode(path: Path) -> None:
    """Python takes a compiled file for current if the source's second and size are its own, also after another edit.

    A worker would run the old code under the new identity; one that was written before the source is removed.
    """
    with contextlib.suppress(OSError, NotImplementedError):
        compiled = Path(importlib.util.cache_from_source(path))
        if compiled.stat().st_mtime_ns < path.stat().st_mtime_ns:
            compiled.unlink()


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
