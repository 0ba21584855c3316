"""The built site has no dead end: every link leads somewhere, nothing is fetched, every public object has a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from links import faults
from maths import typeset
from plots import Column, Mark, Plot, mark, with_plots
from reference_commands import commands

import assay


@pytest.mark.site
def test_every_link_of_the_built_site_leads_somewhere(site: Path) -> None:
    assert faults(site) == []
    assert len(list(site.rglob("*.html"))) > 200


@pytest.mark.parametrize(("body", "fault"), [
    ('<a href="gone.html">x</a>', "leads nowhere"),
    ('<a href="other.html#nowhere">x</a>', "no place"),
    ('<a href="#nowhere">x</a>', "no place"),
    ('<a href="../outside.html">x</a>', "leaves the site"),
    ('<img src="gone.png">', "leads nowhere"),
    ('<script src="https://cdn.example/x.js"></script>', "fetches"),
    ('<link rel="stylesheet" href="//fonts.example/x.css">', "fetches"),
])
def test_a_dead_link_and_a_fetched_file_are_named(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "index.html").write_text(body)
    (tmp_path / "other.html").write_text('<h2 id="here">x</h2>')
    assert [fault in each for each in faults(tmp_path)] == [True]


def test_healthy_links_are_accepted(tmp_path: Path) -> None:
    links = '<a href="other.html#here">x</a><a href="https://a.example">y</a><a href="#top" id="top">z</a>'
    (tmp_path / "index.html").write_text(links)
    (tmp_path / "other.html").write_text('<h2 id="here">x</h2><link rel="canonical" href="https://a.example/other.html">')
    assert faults(tmp_path) == []


@pytest.mark.site
def test_every_public_object_and_every_command_is_in_the_reference(site: Path) -> None:
    python = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    for name in assay.__all__:
        assert f"<code>{name}</code>" in python, name
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name, _ in commands():
        assert f'id="{name.replace(" ", "-")}"' in page, name


@pytest.mark.site
def test_formulas_are_drawn_without_a_script(site: Path) -> None:
    page = (site / "explanations" / "tost.html").read_text(encoding="utf-8")
    assert page.count("<math") >= 5 and "arithmatex" not in page
    assert "<msup>" in typeset('<span class="arithmatex">\\(x^2\\)</span>')


@pytest.mark.site
def test_every_page_of_results_has_a_picture_of_its_numbers(site: Path) -> None:
    pages = [page for folder in ("results", "benchmarks") for page in (site / folder).glob("*.html")]
    without = [page.stem for page in pages if not re.search(r"<article.*(<img|<figure class=.plot).*</article>",
                                                           page.read_text(encoding="utf-8"), flags=re.S)]
    assert len(pages) >= 15 and set(without) <= {"leaderboard"}, "the leaderboard is drawn once it has numbers"


TABLE = """## Speed

| model | batch | time | found |
|---|---|---|---|
| a | 4 | 58.9 (39.4 to 77.5) | 5/10 |
| b | 16 | not run | |
"""


def test_a_picture_holds_the_numbers_of_its_table_and_skips_what_is_none() -> None:
    plot = Plot("Speed", "How fast?", ("model", "batch"), (Column("time"), Column("found")), "ms", lines={1.0: "limit"})
    assert mark("58.9 (39.4 to 77.5)") == Mark(58.9, 39.4, 77.5) and mark("5/10") == Mark(50.0)
    assert mark("0.39", "[0.336, 0.444]") == Mark(0.39, 0.336, 0.444) and mark("not run") is None
    page = with_plots("x.md", TABLE, {"x.md": (plot,)})
    assert page.count("<circle") == 2 and page.count('class="bar"') == 1 and "a, batch 4" in page and ">b" not in page
    assert page.index("## Speed") < page.index("<figure") < page.index("| model |") and "\n\n" not in page[
        page.index("<figure") : page.index("</figure>")]
    assert with_plots("x.md", TABLE.replace("Speed", "Other"), {"x.md": (plot,)}).count("<figure") == 0


@pytest.mark.site
def test_docstrings_are_whole_and_their_examples_are_code(site: Path) -> None:
    page = (site / "reference" / "python" / "Verdict.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    assert "Not run, crashed and undecided are never a pass" in text
    assert "Verdict.worst([Verdict.PASS, Verdict.INCONCLUSIVE])" in text.replace("&gt;&gt;&gt; ", "")
    assert "<blockquote>" not in page


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_search_works_from_a_folder_and_asks_nobody(site: Path, camera, dark: bool) -> None:
    driver = camera.driver
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "media": "screen", "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    driver.get((site / "index.html").as_uri() + "?q=equivalence+margin")
    camera.until("return document.querySelectorAll('.md-search-result__item').length > 0")
    scheme = driver.execute_script("return document.body.getAttribute('data-md-color-scheme')")
    assert scheme == ("slate" if dark else "default")
    asked = [address for address in camera.requests() if not address.startswith(("file:", "data:", "blob:", "about:"))]
    assert asked == []


@pytest.fixture
def camera():  # a new reader each time: the theme remembers the colours of the last one
    import shutil

    pytest.importorskip("selenium")
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("chromium or chromedriver is not installed: apt install chromium chromium-driver")
    from pictures import Camera

    with Camera() as opened:
        yield opened
