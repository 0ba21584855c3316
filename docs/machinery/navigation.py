"""The navigation: a folder stands for its pages, so that a new page is never left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def expanded(nav: list[Any], pages: Mapping[str, str]) -> list[Any]:
    """The navigation with every ``folder/*`` replaced by the pages of that folder that are named nowhere else.

    >>> expanded(["index.md", {"Guides": "guides/*"}], {"index.md": "", "guides/b.md": "# B", "guides/index.md": ""})
    ['index.md', {'Guides': ['guides/index.md', {'B': 'guides/b.md'}]}]
    """
    return _expand(nav, pages, set(_named(nav)))


def _expand(nav: list[Any], pages: Mapping[str, str], named: set[str]) -> list[Any]:
    result: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/*"):
            result += _folder(entry[:-2], pages, named)
        elif isinstance(entry, dict):
            for title, inner in entry.items():
                listed = [inner] if isinstance(inner, str) and inner.endswith("/*") else inner
                result.append({title: _expand(listed, pages, named) if isinstance(listed, list) else inner})
        else:
            result.append(entry)
    return result


def _folder(folder: str, pages: Mapping[str, str], named: set[str]) -> list[Any]:
    """Index first, then the pages by their ``order:`` or title, then folders inside as sections of their own."""
    inside = [page for page in pages if page.startswith(f"{folder}/") and page not in named]
    own = [page for page in inside if "/" not in page.removeprefix(f"{folder}/")]
    below = sorted({page.removeprefix(f"{folder}/").split("/")[0] for page in inside} - {p.split("/")[-1] for p in own})
    index = [page for page in own if page.endswith("/index.md")]
    rest = sorted(set(own) - set(index), key=lambda page: (_order(pages[page]), _title(pages[page])))
    sections = [{_section(f"{folder}/{name}", pages): _folder(f"{folder}/{name}", pages, named)} for name in below]
    return [*index, *({_title(pages[page]): page} for page in rest), *sections]


def _section(folder: str, pages: Mapping[str, str]) -> str:
    return _title(pages.get(f"{folder}/index.md", "")) or folder.rsplit("/", 1)[1]


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [] if nav.endswith("/*") else [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in _named(part)]


def _order(text: str) -> int:
    found = re.match(r"---\n(?:.*\n)*?order: *(\d+)\n", text)
    return int(found[1]) if found else 1000


def _title(text: str) -> str:
    found = re.search(r"^(?:title: *|# +)(.+?) *$", text, flags=re.M)
    return re.sub(r"[`*]", "", found[1]) if found else ""
