"""Every number on the page is the number in run.json, and no text of a run can act."""

from __future__ import annotations

import html as entities
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from assay.reports import words
from assay.reports.html import html, pretty_numbers
from assay.reports.next_steps import next_steps
from assay.reports.plain import plain
from assay.reports.terms import TERMS
from assay.results import Finding, Run, Verdict


class Element:
    """A parsed element: enough of a tree to walk numbers."""

    def __init__(self, name: str, attributes: dict[str, str | None], parent: Element | None) -> None:
        self.name, self.attributes, self.parent = name, attributes, parent
        self.children: list[Element | str] = []

    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def find(self, name: str) -> list[Element]:
        found = []
        for child in self.children:
            if isinstance(child, Element):
                found += ([child] if child.name == name else []) + child.find(name)
        return found


class Tree(HTMLParser):
    VOID = ("meta", "input", "br", "img", "link", "hr")

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {}, None)
        self.here = self.root
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self.here)
        self.here.children.append(element)
        if tag not in self.VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Element(tag, dict(attrs), self.here))

    def handle_endtag(self, tag: str) -> None:
        assert self.here.name == tag, f"</{tag}> closes <{self.here.name}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


def lookup(raw: Any, path: str, run: Run) -> Any:
    if path.startswith("counts."):
        return run.counts[Verdict(path.removeprefix("counts."))]
    for part in path.split("."):
        if part == "length":
            return len(raw)
        raw = raw[int(part)] if isinstance(raw, list) else raw[part]
    return raw


def same(shown: str, value: Any) -> bool:
    """Whether ``shown`` is ``value`` to four digits, as every renderer writes it."""
    value = float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    if isinstance(value, bool) or value is None:
        return shown == {True: "yes", False: "no", None: "—"}[value]
    return shown == (value if isinstance(value, str) else words.number(value).replace("-", "\u2212"))


def rounds_to(shown: str, value: float) -> bool:
    """Whether ``shown`` is ``value`` rounded to the digits that ``shown`` has, at least two of them significant."""
    plain = shown.replace("\u2212", "-")
    if "e" in plain or not math.isfinite(value):
        return False
    decimals = len(plain.partition(".")[2])
    return len(plain.lstrip("-0.")) >= 2 and float(plain) == round(value, decimals)


def path_of(element: Element) -> str:
    """The full path of a number: the ``data-in`` of everything around it, then its own ``data-at``."""
    parts, here = [element.attributes["data-at"] or ""], element.parent
    while here is not None:
        if "data-in" in here.attributes:
            parts.insert(0, here.attributes["data-in"] or "")
        here = here.parent
    return ".".join(parts)


def cells(row: Element) -> list[str]:
    return [cell.text().strip() for cell in row.find("td")]


def test_every_marked_number_equals_run_json(rich: Run) -> None:
    raw, tree = json.loads(rich.to_json()), Tree(html(rich))
    marked = [e for e in tree.root.find("data") if "data-at" in e.attributes]
    for element in marked:
        path, shown = path_of(element), element.text()
        value = lookup(raw, path, rich)
        assert float(element.attributes["value"] or "nan") == value, path
        if path.endswith("seconds"):
            assert shown == words.duration(value), path
        elif path.endswith("confidence"):
            assert shown == f"{words.number(100 * value)} %", path
        else:
            assert same(shown, value) or rounds_to(shown, value), (path, shown, value)
    expected = {
        f"findings.{i}.measurements.{k}.value" for i, f in enumerate(rich.findings) for k in range(len(f.measurements))
    }
    assert expected <= {path_of(element) for element in marked}


def test_every_table_and_table_twin_equals_run_json(rich: Run) -> None:
    raw, tree = json.loads(rich.to_json()), Tree(html(rich))
    seen = 0
    for table in (t for t in tree.root.find("table") if "data-at" in t.attributes):
        rows = lookup(raw, path_of(table), rich)
        shown = [cells(row) for body in table.find("tbody") for row in body.find("tr")]
        assert len(shown) == len(rows)
        for row, values in zip(shown, rows, strict=True):
            assert len(row) == len(values) and all(same(a, b) for a, b in zip(row, values, strict=True)), (row, values)
            seen += len(row)
    for row in (r for r in tree.root.find("tr") if "data-at" in r.attributes):
        values = lookup(raw, path_of(row), rich)
        assert all(same(a, b) for a, b in zip(cells(row), values, strict=True))
        seen += len(values)
    for body in (b for b in tree.root.find("tbody") if "data-at" in b.attributes):
        series = lookup(raw, path_of(body), rich)
        points = [cells(row) for row in body.find("tr")[1:]]
        assert len(points) == len(series["y"]) and body.attributes["data-step"] == "1"
        for k, point in enumerate(points):
            assert same(point[1], series["y"][k])
            seen += 1
    assert seen > 400


def test_no_other_number_is_on_the_page(rich: Run) -> None:
    """What is left after removing marked numbers, tables, axes and the run's own texts holds no digit."""
    page = html(rich)
    page = re.sub(r"<(style|script|svg|title|head)\b.*?</\1>", " ", page, flags=re.S)
    page = re.sub(r"<data .*?</data>", " ", page)
    page = re.sub(r"<summary>Configuration</summary><pre.*?</pre>", " ", page, flags=re.S)
    page = re.sub(r"<table class=\"data.*?</table>", " ", page, flags=re.S)
    body = entities.unescape(re.sub(r"<[^>]*>", "\n", page))
    body = body[: body.index("How to cite")]
    own = sorted({s for s in strings(json.loads(rich.to_json())) if re.search(r"\d", s)}, key=len, reverse=True)
    for text in (s for s in own if len(s) > 3):
        for form in (text, text[:1].upper() + text[1:]):
            body = body.replace(form, " ")
    left = [line.strip() for line in body.splitlines() if re.search(r"\d", line)]
    sentences = {pretty_numbers(plain(finding)) for finding in rich.findings}
    steps = {s.why + (f" About {words.duration(s.seconds)}." if s.seconds else "") for s in next_steps(rich)}
    names = {f"{f.number}\xa0 {words.heading(f)}" for f in rich.findings} | {words.title(f) for f in rich.findings}
    commands = {step.command for step in next_steps(rich)}
    meanings = {term.meaning for term in TERMS.values()}
    known = sentences | steps | names | commands | meanings
    assert set(left) - known == {words.summary(rich), "/ 100", "16 November 2026, 00:21 UTC"}


def strings(raw: Any) -> list[str]:
    if isinstance(raw, str):
        return [raw]
    if isinstance(raw, dict):
        return [s for key, value in raw.items() for s in [*strings(key), *strings(value)]]
    return [s for value in raw for s in strings(value)] if isinstance(raw, list) else []


def test_hostile_text_adds_no_element_and_no_attribute(hostile: Run) -> None:
    page = html(hostile)
    tree = Tree(page)
    assert len(tree.root.find("script")) == 1 and len(tree.root.find("style")) == 1
    assert not tree.root.find("img") and not tree.root.find("iframe") and not tree.root.find("textarea")

    def walk(element: Element) -> None:
        for name, value in element.attributes.items():
            assert not name.startswith("on") and name not in ("style", "srcdoc"), (element.name, name)
            if name in ("href", "src"):
                assert (value or "").startswith("#"), value
        for child in element.children:
            if isinstance(child, Element):
                walk(child)

    walk(tree.root)
    assert "{{ 7*7 }}" in tree.root.text()
    assert "daemon:" not in page


def test_the_page_names_no_other_place_and_carries_a_strict_policy(rich: Run) -> None:
    page = html(rich)
    assert not re.search(r"(?:href|src|url\()\s*=?\s*[\"']?(?:https?:)?//", page)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in entities.unescape(policy[1])
    assert "unsafe" not in policy[1]


def test_the_parts_of_the_page_come_in_the_promised_order(rich: Run) -> None:
    page = html(rich)
    parts = ("claims", "overview", "environment", "words", "cite")
    marks = ["verdict-bar", 'class="next"', *(f'id="{part}"' for part in parts)]
    places = [page.index(f'class="{m}"' if "=" not in m else m) for m in marks]
    assert places == sorted(places)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308, 5e-324, 0.0])
def test_extreme_numbers_still_make_a_page(value: float) -> None:
    finding = Finding.model_validate(
        {
            "subject": "s",
            "claim": "c",
            "verdict": "FAIL",
            "reason": "r",
            "headline": "m",
            "score": 0.0,
            "measurements": [
                {
                    "name": "m",
                    "value": value,
                    "n": 3,
                    "values": [value, 1.0, -1.0],
                    "seeds": [1, 2, 3],
                    "region": {"high": 1.0},
                    "interval": {"low": -1.0, "high": value, "confidence": 0.9, "method": "t"},
                }
            ],
            "figures": [
                {
                    "key": "k",
                    "question": "q",
                    "y_scale": scale,
                    "series": [{"name": "a", "x": [1, 2, 3], "y": [value, 1.0, 2.0]}],
                }
                for scale in ("linear", "log")
            ]
            + [
                {
                    "key": "h",
                    "question": "q",
                    "kind": "heatmap",
                    "grid": [[value, 1.0]],
                    "categories": ["a", "b"],
                    "row_names": ["r"],
                }
            ],
        }
    )
    page = html(Run(id="r", created="c", findings=(finding,)))
    assert not re.search(r'(?:x|y|cx|x1|x2|width|height|d)="[^"]*(?:nan|inf)', page)


def test_an_empty_run_says_that_nothing_was_shown() -> None:
    assert "nothing was shown" in html(Run(id="r", created="2026-01-01"))


def test_what_to_mend_stands_before_the_numbers(rich: Run) -> None:
    page = html(rich)
    for index, finding in enumerate(rich.findings):
        part = page.partition(f'<details class="finding" id="f{index}"')[2]
        part = part.partition('<details class="finding"')[0].partition('id="environment"')[0]
        if (finding.issues or finding.failures) and finding.measurements:
            assert part.index('<section class="issue') < part.index('<table class="measured">')
    assert any(finding.issues and finding.measurements for finding in rich.findings)
