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


class Camera:
    """A browser that photographs files; ``apt install chromium chromium-driver``."""

    def __init__(self, *, width: int = 1000, scale: float = 1.5) -> None:
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
        self.driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        box = self.driver.execute_script(
            "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}", selector)
        clip = {**box, "height": min(box["height"], most), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        image.parent.mkdir(parents=True, exist_ok=True)
        save_small(base64.b64decode(shot["data"]), image)


def save_small(png: bytes, image: Path) -> None:
    """Write a picture with few colours: reports have few, and the file is a quarter of the size."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(image, optimize=True)
