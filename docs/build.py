"""Build the documentation site: ``make docs`` renders docs/*.md and an API page to build/docs, checking every link.

python docs/build.py [DEST]
"""

from __future__ import annotations

import html
import inspect
import json
import re
import sys
from pathlib import Path

import markdown

import assay
from assay.results import json_schema

HERE = Path(__file__).resolve().parent
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Assay</title>
<style>
:root {{ color-scheme: light dark; --ink: #1d232b; --page: #fff; --rule: #dfe3e8; --soft: #f5f7f9; --link: #0b5cad; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e8ee; --page: #14181d; --rule: #303843; --soft: #1c222a; --link: #7ab8ff; }} }}
body {{ font: 16px/1.6 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 52rem; padding: 2rem 1.25rem 5rem; }}
a {{ color: var(--link); }} nav {{ border-bottom: 1px solid var(--rule); padding-bottom: .75rem; margin-bottom: 2rem; }}
pre, code {{ font: .875em/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 4px; }}
pre {{ padding: .9rem 1rem; overflow-x: auto; }} code {{ padding: .1em .3em; }} pre code {{ padding: 0; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }}
th, td {{ border-bottom: 1px solid var(--rule); padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; }}
img, svg {{ max-width: 100%; }}
</style></head><body><nav><a href="index.html">Assay</a> · <a href="api.html">API</a></nav>{body}</body></html>
"""


def main() -> None:
    """Render every page; exit 1 with a list if a relative link leads nowhere."""
    dest = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "build" / "docs"
    pages = {path.relative_to(HERE): path.read_text(encoding="utf-8") for path in sorted(HERE.rglob("*.md"))}
    broken = [problem for page, text in pages.items() for problem in broken_links(page, text)]
    if broken:
        raise SystemExit("links that lead nowhere:\n" + "\n".join(broken))
    for page, text in pages.items():
        linked = re.sub(r"\]\((?![a-z]+:)([^)#\s]+)\.md", r"](\1.html", text)
        write(dest / page.with_suffix(".html"), markdown.markdown(linked, extensions=["tables", "fenced_code", "toc"]))
    write(dest / "api.html", api_page())
    (dest / "run.schema.json").write_text(json.dumps(json_schema(), indent=1), encoding="utf-8")
    print(f"{len(pages) + 1} pages in {dest}")


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page whose target does not exist."""
    targets = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", re.sub(r"```.*?```", "", text, flags=re.S))
    return [f"{page}: {target}" for target in targets if not (HERE / page.parent / target).exists()]


def write(file: Path, body: str) -> None:
    """Write one page with the frame around it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, flags=re.S)
    text = re.sub(r"<[^>]+>", "", title[1]) if title else file.stem
    file.write_text(PAGE.format(title=text, body=body), encoding="utf-8")


def api_page() -> str:
    """Signature and docstring of every public name."""
    parts = ["<h1>Public names</h1>"]
    for name in dir(assay):
        value = getattr(assay, name)
        if inspect.ismodule(value):
            continue
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = ""
        doc = inspect.getdoc(value) or ""
        parts.append(
            f"<h2 id='{name}'>{name}</h2><pre>{html.escape(name + signature)}</pre><pre>{html.escape(doc)}</pre>"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    main()
