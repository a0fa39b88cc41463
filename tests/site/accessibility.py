"""Accessibility checks with axe: on phone and desktop, in light and dark."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.site.browser import resize

PHONE: Any = {"width": 390, "height": 844}
DESKTOP: Any = {"width": 1280, "height": 900}
WIDTHS = (PHONE["width"], DESKTOP["width"])
SCHEMES: Any = ("light", "dark")

_AXE = Path(__file__).parent.joinpath("axe", "axe.min.js")
_RULES: Any = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RULES_OF_COLOURS: Any = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
_RULES_BY_SCHEME = {"light": _RULES, "dark": _RULES_OF_COLOURS}  # the others do not depend on the scheme
# The whole result has a hundred rules that passed or do not apply: passing it to Python takes as long as the checks.
_RUN = """async (rules) => {
    const result = await axe.run({runOnly: rules, resultTypes: ["violations"]});
    return {violations: result.violations, passed: result.passes.length};
}"""


def find_axe_violations(page: Page, name: str) -> Iterator[tuple[object, ...]]:
    """Yield axe's violations with the page's name, colour scheme and width. The page is not reloaded."""
    page.evaluate(_AXE.read_text("utf-8"))
    for width, scheme in product(WIDTHS, SCHEMES):
        resize(page, width)
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function("scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches", arg=scheme)
        result = page.evaluate(_RUN, _RULES_BY_SCHEME[scheme])
        assert result["passed"]
        for one in result["violations"]:
            yield name, scheme, width, one["id"], one["nodes"][0]["html"], one["help"]
