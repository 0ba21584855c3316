"""What a source file imports, read from its text: at the top, inside functions, lazily by name, and data it opens."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

DATA = (".json", ".toml", ".yaml", ".yml", ".csv", ".txt", ".npy", ".npz", ".safetensors")
"""Endings of files whose content may decide a result."""
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_][\w.]*)?")
ALL = "*"


@dataclass
class Imports:
    """The names a file refers to, none of them resolved yet.

    ``modules`` maps an imported module, or what may be one, to the attributes taken from it (``*`` if they cannot be
    told). ``targets`` are
    texts of the form ``module:function``. A file that imports by computed names has ``dynamic`` set; the names are then
    among its ``texts``, alone or after one of ``prefixes``; with a module-level ``__getattr__`` they are ``lazy``:
    loaded only for who asks, by the names in ``homes``.
    """

    modules: dict[str, set[str]] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    homes: dict[str, str] = field(default_factory=dict)
    endings: set[str] = field(default_factory=set)
    """Endings of data files whose names are computed."""
    dynamic: bool = False
    lazy: bool = False


def imports_of(source: bytes, name: str, *, package: bool) -> Imports:
    """The imports of a module called ``name``; a file that does not parse imports nothing (and cannot run either)."""
    return _read(source, name, package)


@lru_cache(maxsize=4096)
def _read(source: bytes, name: str, package: bool) -> Imports:
    found = Imports()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return found
    reader = _Reader(found, name if package else name.rpartition(".")[0])
    reader.block(tree)
    for alias, module in reader.aliases.items():
        found.modules[module] |= reader.attributes.get(alias, set())
    found.lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    return found


class _Reader:
    """Walks a file once."""

    def __init__(self, found: Imports, package: str) -> None:
        self.found = found
        self.package = package
        self.aliases: dict[str, str] = {}
        self.attributes: dict[str, set[str]] = {}

    def block(self, tree: ast.AST) -> None:
        for node in self._nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._text(node.value)
            elif isinstance(node, ast.JoinedStr):
                self._joined(node)
            elif isinstance(node, ast.Dict):
                self._homes(node)

    def _nodes(self, tree: ast.AST) -> Iterator[ast.AST]:
        """Every node that can run: what only a type checker reads is left out, and so are docstrings."""
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self.attributes.setdefault(node.value.id, set()).add(node.attr)
            elif isinstance(node, ast.Name):
                # The module itself is passed on: what is taken from it cannot be told. Names below an attribute were
                # taken off the stack above and do not come here.
                self.attributes.setdefault(node.id, set()).add(ALL)
            yield node
            if isinstance(node, ast.If) and _type_checking(node.test):
                stack += node.orelse
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            elif not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                stack += ast.iter_child_nodes(node)

    def _import(self, alias: ast.alias) -> None:
        names = self.found.modules.setdefault(alias.name, set())
        root = alias.name.partition(".")[0]
        if root != alias.name and not alias.asname:
            names.add(ALL)
        bound = alias.asname or root
        self.aliases[bound] = alias.name if alias.asname else root
        self.found.modules.setdefault(self.aliases[bound], set())

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self.package.split(".")
            kept = parts[: len(parts) - node.level + 1]
            module = ".".join([*kept, module] if module else kept)
        names = self.found.modules.setdefault(module, set())
        for alias in node.names:
            names.add(alias.name)
            if alias.name != ALL:  # it may be a module, of which only some attributes are used
                self.aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
                self.found.modules.setdefault(f"{module}.{alias.name}", set())

    def _call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in ("import_module", "__import__") or not node.args:
            return
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self.found.modules.setdefault(name.value, set()).add(ALL)
            return
        self.found.dynamic = True
        first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else getattr(name, "left", None)
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            self.found.prefixes.add(first.value)

    def _text(self, text: str) -> None:
        if len(text) > 200:
            return
        if PATH.fullmatch(text):
            (self.found.targets if ":" in text else self.found.texts).add(text)
        elif text.endswith(DATA):
            self.found.texts.add(text)

    def _joined(self, node: ast.JoinedStr) -> None:
        last = node.values[-1] if node.values else None
        if isinstance(last, ast.Constant) and isinstance(last.value, str):
            self.found.endings.update(ending for ending in DATA if last.value.endswith(ending))

    def _homes(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                self.found.homes[str(key.value)] = value.value


def _type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"

