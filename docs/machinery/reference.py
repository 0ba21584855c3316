"""Reference pages made from the code: one per public object, the command line, the settings, run.json, the words."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from reference_commands import commands_page
from reference_data import glossary_page, schema_page, settings_page

import assay

PYTHON = "reference/python"
SECTIONS = ("claims", "models", "tasks", "symmetry", "dependence", "stats", "results", "errors")


@dataclass(frozen=True)
class Public:
    """One public object: the name a user writes, where griffe reads it from, and the name whose page describes it."""

    name: str
    path: str
    summary: str
    described_as: str

    @property
    def page(self) -> str:
        return f"{PYTHON}/{self.described_as.removeprefix('assay.').replace('.', '/')}.md"


def reference_pages() -> dict[str, str]:
    """Every generated page by its place in the site."""
    pages = {
        "reference/commands.md": commands_page(),
        "reference/configuration.md": settings_page(),
        "reference/run-json.md": schema_page(),
        "reference/glossary.md": glossary_page(),
    }
    described: dict[str, str] = {}
    root = list(_public("assay", assay, [name for name in assay.__all__ if name not in SECTIONS], described))
    pages[f"{PYTHON}/index.md"] = _index("Python", "What `import assay` offers, and its sections:", PYTHON, root)
    for section in SECTIONS:
        module, folder = getattr(assay, section), f"{PYTHON}/{section}"
        objects = list(_public(f"assay.{section}", module, _names(module), described))
        about = (inspect.getdoc(module) or "").replace("``", "`")
        pages[f"{folder}/index.md"] = _index(f"assay.{section}", about, folder, objects)
        pages[f"{PYTHON}/index.md"] += f"| [`{section}`]({section}/index.md) | {about.splitlines()[0]} |\n"
        root += objects
    return pages | {each.page: _object(each) for each in root if each.name == each.described_as}


def _names(module: ModuleType) -> list[str]:
    own = [name for name, value in vars(module).items()
           if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__]
    return list(getattr(module, "__all__", own))


def _public(prefix: str, module: ModuleType, names: list[str], described: dict[str, str]) -> Iterator[Public]:
    """The objects of a module; one that a page describes already, under whatever name, gets no page of its own."""
    for name in names:
        value: Any = getattr(module, name)
        home, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        ours = isinstance(home, str) and home.startswith("assay") and inner.isidentifier()
        path = f"{home}.{inner}" if ours else f"{module.__name__}.{name}"
        summary = (inspect.getdoc(value) or "").split("\n")[0].replace("``", "`") if ours else ""
        yield Public(f"{prefix}.{name}", path, summary, described.setdefault(path, f"{prefix}.{name}"))


def _object(public: Public) -> str:
    options = f"    options:\n      heading: {public.name}\n      toc_label: {public.name}\n"
    return f"---\ntitle: {public.name}\n---\n\n::: {public.path}\n{options}"


def _index(title: str, about: str, folder: str, objects: list[Public]) -> str:
    rows = [f"| {_linked(each, folder)} | {each.summary.replace('|', chr(92) + '|')} |" for each in objects]
    return "\n".join([f"# {title}", "", about, "", "| name | what |", "|---|---|", *rows, ""])


def _linked(each: Public, folder: str) -> str:
    link = f"[`{each.name.rsplit('.', 1)[1]}`]({os.path.relpath(each.page, folder)})"
    return link if each.name == each.described_as else f"{link}, the same as `{each.described_as}`"
