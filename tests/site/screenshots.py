"""Draw the README's pictures from a demo: `python -m tests.site.screenshots FOLDER`."""

import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize

from tests.cli.commands import Program
from tests.site.browser import chromium

MAX_BYTES = 150_000
FULL = 24  # listings on the home page
SIZE: ViewportSize = {"width": 1280, "height": 800}


def draw(folder: Path) -> list[Path]:
    """Write market.png and console.png to the folder. Raises ValueError if one is larger than MAX_BYTES."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data,
        Program(Path(data)).serve("--demo") as demo,
        chromium() as browser,
    ):
        page = browser.new_page(base_url=demo.base_url, viewport=SIZE, color_scheme="light")
        _wait_for_listings(page)
        pictures = [_save(page, folder / "market.png")]
        _sign_in(page, Path(data))
        page.goto("/console/listings")
        pictures.append(_save(page, folder / "console.png"))
    return pictures


def _wait_for_listings(page: Page) -> None:
    """Open the market once the demo's listings are indexed."""
    for _ in range(100):
        page.goto("/")
        if page.locator("a[href^='/listings/']").count() >= FULL:
            return
        page.wait_for_timeout(100)
    raise ValueError("The market stayed empty")


def _sign_in(page: Page, folder: Path) -> None:
    variables = (folder / "data" / "demo.env").read_text("utf-8").splitlines()
    password = next(line.partition("=")[2] for line in variables if "CONSOLE_PASSWORD" in line)
    page.goto("/sign-in")
    page.fill("[name=email]", "alice@demo.example")
    page.fill("[name=password]", password)
    page.press("[name=password]", "Enter")
    page.wait_for_url("**/console")


def _save(page: Page, file: Path) -> Path:
    """Save the page with 256 colours, which halves the file."""
    page.wait_for_load_state("networkidle")
    with Image.open(BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{file} has {size} bytes, more than {MAX_BYTES}")
    return file


if __name__ == "__main__":
    for drawn in draw(Path(sys.argv[1])):
        print(drawn)  # noqa: T201 - the command's output
