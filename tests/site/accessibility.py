"""What axe objects to on a page: on a phone and a desktop, in light and dark."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

PHONE: Any = {"width": 390, "height": 844}
DESKTOP: Any = {"width": 1280, "height": 900}
SIZES = (PHONE, DESKTOP)
SCHEMES: Any = ("light", "dark")

_AXE = Path(__file__).parent.joinpath("axe", "axe.min.js")
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = "rules => axe.run({runOnly: rules, resultTypes: ['violations']})"


def objections(page: Page, where: str) -> Iterator[tuple[object, ...]]:
    """Each with what the page is called and how it was looked at; the page is not loaded again."""
    page.evaluate(_AXE.read_text("utf-8"))
    for size, scheme in product(SIZES, SCHEMES):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches && innerWidth") == size["width"]
        result = page.evaluate(_RUN, _RULES)
        assert result["passes"]
        for one in result["violations"]:
            yield where, scheme, size["width"], one["id"], one["nodes"][0]["html"], one["help"]
