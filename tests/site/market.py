"""A market in this process, and what a page says."""

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

from listings.domain import fields
from tests.harness import Harness, Person, Reply

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Host": "market.example", "User-Agent": "Mozilla/5.0"}
VOID = {"br", "img", "input", "link", "meta"}


class Element(NamedTuple):
    """A start tag of a page."""

    name: str
    attributes: dict[str, str | None]


class Reading(HTMLParser):
    """What an HTML parser finds in a page; every element has to be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attributes}) == len(attributes)
        self.elements.append(Element(name, dict(attributes)))
        if name not in VOID:
            self._open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self._open.pop() == name

    def handle_data(self, text: str) -> None:
        self.texts.append(text)

    @property
    def text(self) -> str:
        """All that is written, in one line."""
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def all(self, name: str, /, **attributes: str) -> list[Element]:
        """The elements of a name with these attributes."""
        return [
            one
            for one in self.elements
            if one.name == name and all(one.attributes.get(_key(key)) == value for key, value in attributes.items())
        ]

    def values(self, name: str, attribute: str, /, **attributes: str) -> list[str | None]:
        """An attribute of each of these elements that have it."""
        return [one.attributes[attribute] for one in self.all(name, **attributes) if attribute in one.attributes]


def _key(name: str) -> str:
    """The attribute that a keyword stands for."""
    return name.rstrip("_").replace("_", "-")


def create(harness: Harness, person: Person, **given: Any) -> int:
    """A listing that the market shows at once; returns its id."""
    listing_id = harness.run(_create(harness, person, given))
    harness.run(harness.service.index_market())
    return listing_id


async def _create(harness: Harness, person: Person, given: dict[str, Any]) -> int:
    caller = await harness.service.find_key(person.key)
    assert caller is not None
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **given}, strict=False)
    return (await harness.service.create_listing(caller, new)).listing_id


def get(harness: Harness, path: str, method: str = "GET", **headers: str) -> Reply:
    """What a browser gets; underscores in names are hyphens."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return harness.fetch(method, path, headers=PAGE | more)


def read(harness: Harness, path: str, status: int = 200) -> Reading:
    """A page, taken apart."""
    reply = get(harness, path)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    return Reading(reply.body.decode())
