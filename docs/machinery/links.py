"""Check the built site: every link and picture leads to a file, every fragment to a place in it, nothing to a network.

    python docs/machinery/links.py build/docs
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("audio", "src"), ("video", "src")}
"""What a browser loads by itself; a ``link`` is fetched unless it only names a relation."""
NAMED = {"canonical", "next", "prev", "author", "license"}


@dataclass
class Page(HTMLParser):
    """The links and the places of one page."""

    links: list[tuple[str, bool]] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given:
                relation = set(given.get("rel", "").split())
                fetched = (tag, name) in FETCHED or (tag == "link" and not relation & NAMED)
                self.links.append((given[name], fetched))


def faults(site: Path) -> list[str]:
    """One line for each link of the site that leads nowhere or asks a network for something."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site}: no pages"]
    return [f"{path.relative_to(site.resolve())}: {fault}" for path, page in pages.items()
            for fault in _faults(path, page, pages, site.resolve())]


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _faults(path: Path, page: Page, pages: dict[Path, Page], site: Path) -> list[str]:
    found: list[str] = []
    for link, fetched in dict.fromkeys(page.links):
        parts = urlsplit(link)
        if parts.scheme in ("http", "https") or parts.netloc:
            found += [f"fetches {link}"] if fetched else []
            continue
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_relative_to(site):
            found.append(f"{link} leaves the site")
        elif not target.is_file():
            found.append(f"{link} leads nowhere")
        elif parts.fragment and target in pages and not _has(pages[target], parts.fragment):
            found.append(f"{link} leads to no place of that page")
    return found


def _has(page: Page, fragment: str) -> bool:
    return unquote(fragment) in page.places or fragment.startswith(("__", ":~:"))


def main() -> None:
    """Exit 1 with a list if anything is wrong."""
    site = Path(sys.argv[1])
    found = faults(site)
    if found:
        raise SystemExit("\n".join([*found, f"{len(found)} links are wrong"]))
    pages = list(site.rglob("*.html"))
    print(f"{len(pages)} pages in {site}, every link checked")


if __name__ == "__main__":
    main()
