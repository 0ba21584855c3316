"""What mkdocs does not do by itself: reference pages from code, formulas as MathML, pictures of tables, navigation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maths import typeset
from mkdocs.structure.files import File, Files
from navigation import expanded
from plots import with_plots
from reference import reference_pages

from assay.results import json_schema


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages made from code, then let the navigation name every page there is."""
    pages = reference_pages()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    schema = json.dumps(json_schema(), indent=1)
    files.append(File.generated(config, "reference/run.schema.json", content=schema))
    written = {file.src_uri: Path(file.abs_src_path).read_text(encoding="utf-8")
               for file in files.documentation_pages() if file.abs_src_path}
    config.nav = expanded(config.nav, {**written, **pages})
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Pictures of the results pages, drawn from the tables that stand on them."""
    return with_plots(page.file.src_uri, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML: no script, no font, and a screen reader can read them."""
    return typeset(html)


def on_post_build(*, config: Any) -> None:
    """A page for addresses that do not exist belongs to a server; opened from a folder its links lead nowhere."""
    (Path(config.site_dir) / "404.html").unlink()
