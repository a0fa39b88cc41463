"""What a seller looks for among the own listings, between a page's address and the service's query. Pure."""

import base64
from collections.abc import Mapping
from typing import NamedTuple, get_args
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import FormData, QueryParams

from listings.domain import tokenizer
from listings.domain.model import ListingQuery, SortKey, Status
from listings.site.presentation import TYPES

STATUSES: Mapping[str, str] = {"": "All", "active": "On the market", "inactive": "Paused", "deleted": "Closed"}
SORTS: Mapping[str, str] = {
    "": "Newest first",
    "-updated_at": "Latest change first",
    "title": "Title",
    "-price": "Highest price",
    "price": "Lowest price",
}
ACTIONS: Mapping[str, str] = {"pause": "paused", "resume": "resumed", "close": "closed", "restore": "restored"}
"""What can be done to listings, and what they are then."""

_ON_A_PAGE = 50
_LONGEST = 200
_MOST_WORDS = 10
_LARGEST = 2**63 - 1
_place = msgspec.json.Decoder(tuple[str | int, int]).decode


class Search(NamedTuple):
    """What stands in the form, and the place where the page begins."""

    q: str = ""
    status: str = ""
    type: str = ""
    sort: str = ""
    after: tuple[str | int, int] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether anything is asked for in particular."""
        return bool(self.q or self.status or self.type)

    def address(self, after: tuple[str | int, int] | None = None) -> str:
        """The page that finds this, from its beginning or behind a place."""
        given = {name: value for name, value in self._replace(after=None)._asdict().items() if value}
        if after is not None:
            given["after"] = _place_text(after)
        return f"/console/listings?{urlencode(given)}" if given else "/console/listings"

    @property
    def place(self) -> str:
        """Where the page begins, as an address tells it; "" for the first one."""
        return _place_text(self.after) if self.after is not None else ""

    def query(self) -> tuple[ListingQuery, dict[str, str]]:
        """What to ask for, and what could not be understood, by the field's name."""
        sought = tuple(dict.fromkeys(tokenizer.tokenize(self.q)))[:_MOST_WORDS]
        faults = {"q": "Look for words of letters or digits"} if self.q and not sought else {}
        query = ListingQuery(
            status=_status(self.status),
            type=self.type or None,
            words=sought,
            sort=_sort_key(self.sort.removeprefix("-")),
            descending=not self.sort or self.sort.startswith("-"),
            limit=_ON_A_PAGE,
            after=self.after,
        )
        return query, faults


def read(parameters: QueryParams | FormData) -> Search:
    """What was asked for; choices that there are not are as not made."""
    status, kind, sort = (str(parameters.get(name, "")) for name in ("status", "type", "sort"))
    sort = sort if sort in SORTS else ""
    return Search(
        q=str(parameters.get("q", ""))[:_LONGEST].strip(),
        status=status if status in STATUSES else "",
        type=kind if kind in TYPES else "",
        sort=sort,
        after=_read_place(str(parameters.get("after", "")), sort.removeprefix("-")),
    )


def many_done(action: str, count: int) -> str:
    """What is told of so many listings that an action was for."""
    return f"{count} {'listing is' if count == 1 else 'listings are'} {ACTIONS[action]}."


def _place_text(place: tuple[str | int, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_place(text: str, sort: str) -> tuple[str | int, int] | None:
    """The place that an address names; None for what is none of ours."""
    try:
        value, number = _place(base64.b64decode(text, altchars=b"-_", validate=True))
    except (ValueError, msgspec.DecodeError):
        return None
    is_text = sort in {"title", "updated_at"}
    is_fit = "\0" not in value if isinstance(value, str) else abs(value) <= _LARGEST
    return (value, number) if is_fit and isinstance(value, str) is is_text and 0 < number <= _LARGEST else None


def _status(text: str) -> Status:
    known: Mapping[str, Status] = {"active": "active", "inactive": "inactive", "deleted": "deleted"}
    return known.get(text, "all")


def _sort_key(text: str) -> SortKey:
    return next((key for key in get_args(SortKey) if key == text), "id")
