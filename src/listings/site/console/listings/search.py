"""The search form of a seller's own listings: from the URL of a page to the service's query. Pure functions."""

import base64
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import FormData, QueryParams

from listings.domain import tokenizer
from listings.domain.faults import FieldError
from listings.domain.fields import FIELDS
from listings.domain.model import MAX_ID, SORTED_BY, ListingQuery
from listings.domain.timestamps import DAY_SECONDS, format_timestamp
from listings.site.console.guards import LISTINGS_PATH

StatusFilter: TypeAlias = Literal["", "active", "inactive", "deleted"]
STATUSES: dict[StatusFilter, str] = {"": "All", "active": "On the market", "inactive": "Paused", "deleted": "Deleted"}
SORTS: Mapping[str, str] = {
    "": "Newest first",
    "-views": "Most viewed",
    "-updated_at": "Recently updated",
    "title": "Title",
    "-price": "Highest price",
    "price": "Lowest price",
}
SHOWN: Mapping[str, tuple[str, StatusFilter]] = {
    "no-picture": ("Without a picture", "active"),
    "no-price": ("Without a price", "active"),
    "no-views": ("Not viewed for 30 days", "active"),
    "drafts": ("Drafts that nobody has seen", "inactive"),
}
"""Listings that a seller may want to improve: the label of the list, and their status."""
PAGE_SIZE = 50
_UNVIEWED_DAYS = 30
_MAX_LENGTH = 255
_MAX_TERMS = 10
_decode_cursor = msgspec.json.Decoder(tuple[str | int, int]).decode


class Search(NamedTuple):
    """The form as submitted, and the cursor of a later page."""

    q: str = ""
    status: StatusFilter = ""
    type: str = ""
    sort: str = ""
    show: str = ""  # one of `SHOWN`
    after: tuple[str | int, int] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether there are search terms or filters."""
        return bool(self.q or self.status or self.type or self.show)

    def url(self, after: tuple[str | int, int] | None = None) -> str:
        """Return the URL of this search: its first page, or the page after a cursor."""
        parameters = {name: value for name, value in self._replace(after=None)._asdict().items() if value}
        if after is not None:
            parameters["after"] = _format_cursor(after)
        return f"{LISTINGS_PATH}?{urlencode(parameters)}" if parameters else LISTINGS_PATH

    @property
    def cursor(self) -> str:
        """The cursor as in a URL, or "" for the first page."""
        return _format_cursor(self.after) if self.after is not None else ""

    def query(self, now: float) -> tuple[ListingQuery, dict[str, str]]:
        """Return the query, and an error message for each invalid field."""
        terms = tuple(dict.fromkeys(tokenizer.tokenize(self.q)))[:_MAX_TERMS]
        errors = {"q": "Enter a search term with letters or digits"} if self.q and not terms else {}
        key = self.sort.removeprefix("-")
        query = ListingQuery(
            status=self.status or "all",
            type=self.type or None,
            images="[]" if self.show == "no-picture" else None,
            price_max=0 if self.show == "no-price" else None,
            view_count=0 if self.show == "drafts" else None,
            unviewed_since=format_timestamp(now - _UNVIEWED_DAYS * DAY_SECONDS) if self.show == "no-views" else None,
            words=terms,
            sort="folded_title" if key == "title" else next((it for it in SORTED_BY if it == key), "id"),
            descending=not self.sort or self.sort.startswith("-"),
            limit=PAGE_SIZE,
            after=self.after,
        )
        return query, errors


def find_exact_query(search: Search, now: float) -> ListingQuery | None:
    """Return the query for listings whose external id is the searched text, or None if it can't be one."""
    if not search.q or search.after is not None:
        return None
    try:
        FIELDS["external_id"].rule(search.q)
    except FieldError:
        return None
    return msgspec.structs.replace(search.query(now)[0], words=(), external_ids=(search.q,))


def read(parameters: QueryParams | FormData) -> Search:
    """Parse the parameters of a URL or a form. Unknown options are ignored."""
    status, listing_type, sort = (str(parameters.get(name, "")) for name in ("status", "type", "sort"))
    sort, show = sort if sort in SORTS else "", str(parameters.get("show", ""))
    return Search(
        q=str(parameters.get("q", ""))[:_MAX_LENGTH].strip(),
        status=SHOWN[show][1] if show in SHOWN else status if status in STATUSES else "",
        type=listing_type if listing_type in FIELDS["type"].options else "",
        sort=sort,
        show=show if show in SHOWN else "",
        after=_parse_cursor(str(parameters.get("after", "")), sort.removeprefix("-")),
    )


def _format_cursor(cursor: tuple[str | int, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def _parse_cursor(text: str, sort: str) -> tuple[str | int, int] | None:
    try:
        value, number = _decode_cursor(base64.b64decode(text, altchars=b"-_", validate=True))
    except (ValueError, msgspec.DecodeError):
        return None
    is_text = sort in {"title", "updated_at"}
    is_valid = "\0" not in value if isinstance(value, str) else abs(value) <= MAX_ID
    return (value, number) if is_valid and isinstance(value, str) is is_text and 0 < number <= MAX_ID else None
