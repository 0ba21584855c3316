"""Pictures of reports for the pages: one part of an HTML file in a real Chromium, as a small PNG."""

from __future__ import annotations

import base64
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

COLOURS = 128
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip

MARGIN = 12
LOOK = """
document.querySelectorAll('figure details').forEach(d => d.remove());
const target = document.querySelector(arguments[0]), m = arguments[1];
for (let e = target; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
const r = target.getBoundingClientRect(), x = Math.max(r.x + scrollX - m, 0), y = Math.max(r.y + scrollY - m, 0);
return {x, y, width: Math.min(r.width + 2 * m, innerWidth - x), height: r.height + 2 * m};
"""
"""Where the wanted element is, once what folds it away is open; tables of numbers under a picture are left out."""


class Camera:
    """A browser that photographs files; ``apt install chromium chromium-driver``."""

    def __init__(self, *, width: int = 1200, scale: float = 1.25) -> None:
        self.width, self.scale = width, scale

    def __enter__(self) -> Self:
        from selenium import webdriver

        self.profile = tempfile.TemporaryDirectory()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"--user-data-dir={self.profile.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver: Any = webdriver.Chrome(options=options, service=service)
        metrics = {"width": self.width, "height": 900, "deviceScaleFactor": self.scale, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get("about:blank")  # leaves the new-tab page, whose own requests would be counted
        self.requests()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()
        self.profile.cleanup()

    def requests(self) -> list[str]:
        """Addresses asked for since the last look."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def until(self, script: str, *, seconds: float = 60) -> None:
        """Wait until the script says true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds).until(lambda driver: driver.execute_script(script))

    def take(self, page: Path, selector: str, image: Path, *, most: int = 1100) -> None:
        """Save the first element of ``page`` that the selector names; of a tall one the upper part."""
        self.driver.get(page.resolve().as_uri())
        box = self.driver.execute_script(LOOK, selector, MARGIN)
        clip = {**box, "height": min(box["height"], most), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        image.parent.mkdir(parents=True, exist_ok=True)
        save_small(base64.b64decode(shot["data"]), image)


def save_small(png: bytes, image: Path) -> None:
    """Write a picture with few colours: reports have few, and the file is a quarter of the size."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(image, optimize=True)
