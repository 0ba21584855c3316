"""A real Chromium, fresh for each module, that records every console message and every network request."""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.reports import save_report
from assay.results import Run, load_run

FIXTURES = Path(__file__).parents[1] / "unit" / "reports" / "fixture"
ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "screenshots"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """A page in Chromium and what happened in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str, *, width: int = 1280, dark: bool = False, javascript: bool = True) -> None:
        """Load ``address`` at a width and in a colour scheme, with the logs emptied first."""
        self.console(), self.requests()
        send = self.driver.execute_cdp_cmd
        send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        send("Emulation.setEmulatedMedia", {"media": "screen", "features": [scheme]})
        send("Emulation.setScriptExecutionDisabled", {"value": not javascript})
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver.get(address)
        WebDriverWait(self.driver, 60).until(lambda _: self.loaded(), "the page did not load")

    def loaded(self) -> bool:
        """Whether the whole document has been read; without scripts the driver does not wait for it."""
        state = self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": "document.readyState"})
        return bool(state["result"].get("value") == "complete")

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds: a page answers when its machine has time for it."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60, poll_frequency=0.05).until(lambda _: condition(), "waited for the page in vain")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, element: Any) -> None:
        """Bring ``element`` to the middle of the window, clear of the header, and click it."""
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def unfold(self) -> None:
        """Open everything that can be folded."""
        self.run("document.querySelectorAll('details').forEach(d => d.open = true)")

    def console(self) -> list[str]:
        """Messages of the console since the last look."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the last look."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def picture(self, name: str, *, height: int | None = None) -> None:
        """Keep a screenshot of the page under artefacts/screenshots."""
        width, full = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(full, height or 16000), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        self.keep(f"{name}.png", base64.b64decode(shot["data"]))

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file under artefacts/screenshots, for people to look at."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        (ARTEFACTS / name).write_bytes(content)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'assay-ml[test]'")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed: apt install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            started.set_script_timeout(120)
            started.get("about:blank")  # leaves the new-tab page, whose own requests would be counted
            yield Browser(started)
        finally:
            started.quit()


@pytest.fixture(scope="session")
def builders() -> ModuleType:
    """The module that builds the large and the hostile run."""
    spec = importlib.util.spec_from_file_location("assay_browser_builders", FIXTURES / "builders.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def rich() -> Run:
    return load_run(FIXTURES / "rich")


@pytest.fixture(scope="session")
def rich_page(rich: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the rich run's page on disk."""
    return save_report(rich, tmp_path_factory.mktemp("rich") / "index.html").as_uri()
