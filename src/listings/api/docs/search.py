"""Search the reference and the guides: a plain filter that needs no script."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from jinja2 import Template

from listings.api.docs.page import build_environment, list_titles, read_guide
from listings.api.docs.texts import read_texts
from listings.service import ServiceInfo

MAX_LENGTH = 100
_HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)


class Hit(NamedTuple):
    """A page or a part of it. `address` is relative to /docs."""

    address: str
    title: str
    text: str


def render_results(query: str, base_url: str, about: ServiceInfo) -> bytes:
    """Return the page with all operations and parts of guides that contain every word of the query."""
    words = query[:MAX_LENGTH].casefold().split()
    hits = [hit for hit in _list_parts() if all(word in f"{hit.title} {hit.text}".casefold() for word in words)]
    template = _build_template(base_url, about)
    shown = [hit._replace(text=_cut(hit.text, words)) for hit in hits]
    return template.render(query=query[:MAX_LENGTH], hits=shown).encode()


@cache
def _build_template(base_url: str, about: ServiceInfo) -> Template:
    return build_environment(base_url, about).get_template("search.html")


@cache
def _list_parts() -> Sequence[Hit]:
    operations = read_texts().operations.items()
    hits = [Hit(f"#{name}", texts.summary, f"{name}: {texts.description}") for name, texts in operations]
    for name, title in list_titles().items():
        first, *parts = _HEADING.split(read_guide(name))
        hits.append(Hit(f"/{name}", title, first))
        for heading, text in zip(parts[::2], parts[1::2], strict=True):
            anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            hits.append(Hit(f"/{name}#{anchor}", f"{title}: {heading}", text))
    return hits


def _cut(text: str, words: list[str]) -> str:
    line = " ".join(text.split())
    place = max(0, min((line.casefold().find(word) for word in words if word in line.casefold()), default=0) - 60)
    return f"{'… ' if place else ''}{line[place : place + 160]} …"
