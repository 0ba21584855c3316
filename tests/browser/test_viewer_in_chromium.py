"""The viewer in a real browser: list, filter, compare, trends and live progress."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.reports.viewer.library import Library
from assay.reports.viewer.server import Viewer
from assay.results import Run, Verdict

pytestmark = pytest.mark.browser
TRACK = {"number": 1, "name": "<b>one</b>", "running": 1, "failed": 0, "total": 10, "verdict": None}


@pytest.fixture(scope="module")
def folder(rich: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    worse = tuple(f.model_copy(update={"verdict": Verdict.FAIL}) if f.number == 2 else f for f in rich.findings)
    for name, findings, day in (
        ("first", rich.findings, 1),
        ("<i>second</i>", worse, 2),
        ("third", rich.findings[:2], 3),
    ):
        (root / name.replace("/", "")).mkdir()
        run = rich.model_copy(update={"id": name, "findings": findings, "created": f"2026-01-0{day}T00:00:00+00:00"})
        (root / name.replace("/", "") / "run.json").write_text(run.to_json())
    return root


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    server = Viewer(Library(folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.address
    server.shutdown()
    server.server_close()


def wait(condition: Any, seconds: float = 60.0) -> None:
    """Until ``condition`` holds; between two pages there is nothing to ask, and a browser shares its machine."""
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(WebDriverException):
            if condition():
                return
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def test_the_list_filters_and_stays_silent(browser: Any, address: str) -> None:
    browser.open(address)
    assert len(browser.all(".list tbody tr")) == 3 and not browser.one("#compare").is_enabled()
    browser.one("#search").send_keys("third")
    assert [row.is_displayed() for row in browser.all(".list tbody tr")] == [True, False, False]
    assert browser.one("#shown").text == "1 of 3 runs"
    assert browser.console() == [] and all(url.startswith(address) for url in browser.requests())
    browser.picture("viewer-list")


def test_chosen_runs_are_compared_and_the_regression_is_first(browser: Any, address: str) -> None:
    browser.open(address)
    for box in browser.all("input[name=run]")[1:]:
        box.click()
    assert browser.one("#compare").text == "Compare 2 runs"
    browser.one("#compare").click()
    wait(lambda: "1 regression" in browser.one("h1").text)
    first = browser.one(".verdicts tbody tr").text
    assert "EqProp against backprop" in first and "PASS" in first and "FAIL" in first and "worse" in first
    assert browser.console() == []
    browser.picture("viewer-compare")


def test_a_run_opens_from_the_list_and_leads_back(browser: Any, address: str) -> None:
    browser.open(address)
    browser.one(".list tbody a").click()
    wait(lambda: browser.all(".finding"))
    assert browser.run("return window.hacked") is None
    browser.one(".top nav a").click()
    wait(lambda: browser.all(".list"))


def test_trends_are_a_matrix_with_a_picture_on_demand(browser: Any, address: str) -> None:
    browser.open(address + "trends")
    row = browser.one(".matrix tbody tr")
    assert row.find_element("css selector", "th").text.startswith("EqProp against backprop")
    cells = row.find_elements("css selector", "td .unseen")
    assert [cell.get_attribute("textContent") for cell in cells] == ["PASS", "FAIL", "PASS"]
    assert not browser.one(".trends .chart").is_displayed(), "pictures wait until they are asked for"
    row.find_element("css selector", "td:last-child a").click()
    wait(lambda: browser.one(".trends .chart").is_displayed())
    top = browser.run("return document.querySelector('.picture[open] figure').getBoundingClientRect().top")
    assert -1 <= top <= 100 or browser.run("return scrollY + innerHeight >= document.body.scrollHeight - 2")
    assert browser.console() == []
    browser.picture("viewer-trends", height=2400)


@pytest.mark.parametrize("page", ["", "trends", "compare?run=first&run=third"])
def test_no_page_of_the_viewer_is_wider_than_a_phone(browser: Any, address: str, page: str) -> None:
    browser.open(address + page, width=390)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    browser.picture(f"viewer-phone-{page.partition('?')[0] or 'list'}", height=2400)


def test_a_comparison_on_a_phone_shows_from_and_to_at_once(browser: Any, address: str) -> None:
    browser.open(address + "compare?run=first&run=third", width=390)
    right = browser.run(
        "return Math.max(...[...document.querySelectorAll('.verdicts td')].map(d => d.getBoundingClientRect().right))"
    )
    assert right <= 390


def test_a_running_verification_is_followed_until_it_ends(browser: Any, address: str, folder: Path, rich: Run) -> None:
    live = folder / "live"
    live.mkdir()

    def write(done: int) -> None:
        state = {"started": 1.0, "updated": 2.0, "seconds_left": 60.0, "tracks": [{**TRACK, "done": done}]}
        (live / "next.tmp").write_text(json.dumps(state))
        (live / "next.tmp").replace(live / "progress.json")

    write(2)
    browser.open(address)
    assert "2 of 10 cells" in browser.one(".live .count").text and "<b>one</b>" in browser.one(".tracks").text
    write(7)
    wait(lambda: "7 of 10 cells" in browser.one(".live .count").text)
    browser.picture("viewer-live")
    (live / "run.json").write_text(rich.to_json())
    wait(lambda: not browser.all(".live") and len(browser.all(".list tbody tr")) == 4)


def test_the_viewer_pages_have_no_axe_violation(browser: Any, address: str) -> None:
    axe = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed: cd web && npm ci")
    for page in ("", "trends", "compare?run=first&run=third"):
        for dark in (False, True):
            browser.open(address + page, dark=dark)
            browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe.read_text(encoding="utf-8")})
            found = browser.driver.execute_async_script(
                "axe.run().then(r => arguments[0](r.violations.map(v => v.id + ': ' + v.nodes[0].html.slice(0, 200))))"
            )
            assert found == [], page
