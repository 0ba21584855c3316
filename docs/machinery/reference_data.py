"""Settings, the schema of run.json and the words of a report as pages, read from the objects that define them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import griffe

from assay.config import Settings
from assay.reports.terms import TERMS
from assay.results import json_schema

SETTINGS = """# Configuration

Settings come from `assay.toml`, or from `[tool.assay]` in `pyproject.toml`, in the folder where a command runs; then
from the environment; then from the command line. The later wins. An unknown key is an error with a suggestion.

```toml
# assay.toml
budget = "standard"
workers = 2
plugins = ["my_lab"]
```
"""
SCHEMA = """# run.json

Every verification, audit and benchmark leaves one `run.json`; pages, tables and comparisons are renderings of it. The
[JSON Schema](run.schema.json) is made from the classes that read and write it. Files of older versions stay readable;
files of newer ones are refused with a line that says so.
In Python: [`assay.load_run`](python/load_run.md) reads one, and
[`assay.results`](python/results/index.md) has the classes.
"""
ARCHITECTURE = Path(__file__).parents[1] / "explanations" / "architecture.md"


def settings_page() -> str:
    """The settings a command understands, from the dataclass that holds them."""
    documented = griffe.load("assay.config", search_paths=["src"])["Settings"].members
    lines = [SETTINGS, "| setting | environment | type | default | meaning |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(Settings):
        about = documented[field.name].docstring
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        text = " ".join(about.value.split()).replace("``", "`") if about else ""
        kind = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `ASSAY_{field.name.upper()}` | `{kind}` | {default} | {text} |")
    return "\n".join([*lines, "", "`ASSAY_KEY` is the text that signs stored cells; see [Whose results]"
                      "(../guides/scale.md#whose-results).", ""])


def schema_page() -> str:
    """One table per class of run.json, the run itself first."""
    schema = json_schema()
    lines = [SCHEMA, "## Run", "", *_fields(schema)]
    for name, part in schema["$defs"].items():
        lines += ["", f"## {name}", "", *_fields(part)]
    return "\n".join([*lines, ""])


def _fields(part: dict[str, Any]) -> list[str]:
    about = part.get("description", "").split(">>>")[0].strip().replace("``", "`")
    if "enum" in part:
        return [about, "", "One of " + ", ".join(f"`{value}`" for value in part["enum"]) + "."]
    lines = [about, "", "| field | type | default |", "|---|---|---|"]
    for name, field in part.get("properties", {}).items():
        default = "required" if name in part.get("required", ()) else f"`{field.get('default')!r}`"
        lines.append(f"| `{name}` | {_kind(field)} | {default} |")
    return lines


def _kind(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(_kind(each) for each in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}" if field.get("items") else "list"
    return str(field.get("type", "any")).replace("null", "none")


def glossary_page() -> str:
    """The words of the reports and those of the architecture page, in one list."""
    words = {term.name: term.meaning for term in TERMS.values()}
    table = ARCHITECTURE.read_text(encoding="utf-8").split("## Glossary")[1].split("## ")[0]
    for word, meaning in re.findall(r"^\| (?!word |---)(.+?) \| (.+?) \|$", table, flags=re.M):
        words.setdefault(word.capitalize(), meaning[:1].upper() + meaning[1:].rstrip(".") + ".")
    lines = ["# Glossary", "", "The words of reports and of these pages.", ""]
    for word in sorted(words, key=str.lower):
        lines += [f"`{word}`" if word.isupper() else f"**{word}**", f":   {words[word]}", ""]
    return "\n".join(lines)
