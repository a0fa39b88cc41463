"""Links to the previous and the next page of a list whose pages begin after a cursor."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

_TRAIL = "trail"
_MAX_TRAIL, _MAX_LENGTH = 50, 2_000  # pages, and characters of their cursors


class Turns(NamedTuple):
    """The URLs of the previous and the next page, or ""."""

    previous: str
    next: str


def turn_pages(request: Request, parameter: str, next_cursor: str, base: str = "") -> Turns:
    """Return the links of a page, given the parameter with its cursor, and the cursor of the next page or "".

    The parameter `trail` has the cursors of the pages before this one, except for the first page, which has none.
    `base` is the URL of the first page, by default that of the request.
    """
    given, (path, _, query) = request.query_params, base.partition("?")
    pairs = parse_qsl(query) if base else [it for it in given.multi_items() if it[0] not in {parameter, _TRAIL}]
    path = path or request.scope["path"]
    current = given.get(parameter, "")
    trail = [it for it in given.get(_TRAIL, "").split("~") if it] if current else []

    def build(cursor: str, earlier: Sequence[str]) -> str:
        more = [(parameter, cursor), (_TRAIL, "~".join(earlier))]
        text = urlencode([*pairs, *((name, value) for name, value in more if value)])
        return f"{path}?{text}" if text else path

    longer = [*trail, current] if current else []
    while len(longer) > _MAX_TRAIL or sum(map(len, longer)) > _MAX_LENGTH:
        del longer[0]  # from the oldest of the rest, the link to the previous page leads to the first page
    return Turns(
        build(trail[-1] if trail else "", trail[:-1]) if current else "",
        build(next_cursor, longer) if next_cursor else "",
    )
