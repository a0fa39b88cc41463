"""Helpers for tests of pages: create listings, request pages and parse them."""

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

from listings.domain import fields
from tests.harness import Harness, Person, Reply

BROWSER_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
    "Host": "market.example",
    "User-Agent": "Mozilla/5.0",
}
VOID = {"br", "img", "input", "link", "meta"}


class Element(NamedTuple):
    name: str
    attributes: dict[str, str | None]


class ParsedPage(HTMLParser):
    """Elements and texts of a page. Every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.texts: list[str] = []
        self.titles: list[str] = []  # of cards
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attributes}) == len(attributes)
        self.elements.append(Element(name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)
        if self._open[-2:] == ["h3", "a"]:
            self.titles.append("")

    def handle_endtag(self, name: str) -> None:
        assert self._open.pop() == name

    def handle_data(self, text: str) -> None:
        self.texts.append(text)
        if "h3" in self._open and "a" in self._open:
            self.titles[-1] += text

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def all(self, name: str, /, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.elements
            if one.name == name
            and all(one.attributes.get(_attribute_name(key)) == value for key, value in attributes.items())
        ]

    def values(self, name: str, attribute: str, /, **attributes: str) -> list[str | None]:
        """Return the values of an attribute of the matching elements that have it."""
        return [one.attributes[attribute] for one in self.all(name, **attributes) if attribute in one.attributes]


def _attribute_name(name: str) -> str:
    """Return the attribute for a keyword, such as "aria-invalid" for "aria_invalid"."""
    return name.rstrip("_").replace("_", "-")


def create(harness: Harness, person: Person, **fields_: Any) -> int:
    """Create a listing, wait until it is on the market, and return its ID."""
    listing_id = harness.run(_create(harness, person, fields_))
    harness.index_market()
    return listing_id


async def _create(harness: Harness, person: Person, fields_: dict[str, Any]) -> int:
    caller = await harness.services.keys.find(person.key)
    assert caller is not None
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **fields_}, strict=False)
    return (await harness.services.listings.create(caller, new)).listing_id


def get(harness: Harness, path: str, method: str = "GET", **headers: str) -> Reply:
    """Request a path with the headers of a browser. Underscores in header names become hyphens."""
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return harness.fetch(method, path, headers=BROWSER_HEADERS | extra)


def get_page(harness: Harness, path: str, status: int = 200) -> ParsedPage:
    reply = get(harness, path)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    return ParsedPage(reply.body.decode())
