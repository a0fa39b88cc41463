"""The market's search form: from the URL of a page to the query of the market, and back."""

import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote_plus

from starlette.datastructures import QueryParams

from listings.domain.faults import FieldError
from listings.domain.fields import MAX_PRICE_CENTS
from listings.domain.model import MarketQuery
from listings.domain.number_text import parse_price
from listings.domain.rules import Money
from listings.search.results import MAX_RANKED
from listings.search.words import split
from listings.site.presentation import GROUPS

Sort: TypeAlias = Literal["best", "newest", "oldest", "price", "-price"]
SORTS: dict[Sort, str] = {
    "best": "Best match",
    "newest": "Newest first",
    "oldest": "Oldest first",
    "price": "Lowest price",
    "-price": "Highest price",
}
Cursor: TypeAlias = tuple[int, int, str]
"""The cursor of the market's pages, and the id of the last restore."""

_MAX_LENGTH = 200
_DEFAULT_SORT = {"sort": "newest"}
_quote = lru_cache(1024)(quote_plus)  # a page of results repeats its values in about 50 URLs
_CURSOR = re.compile(r"([0-9]{1,11})-([0-9]{1,18})(?:-([0-9a-f]+))?")


class Search(NamedTuple):
    """The form as submitted, and the cursor of a later page: its results come after or before the cursor."""

    q: str = ""
    type: str = ""
    category: str = ""
    region: str = ""
    price_min: str = ""
    price_max: str = ""
    sort: Sort | Literal[""] = ""
    after: Cursor | None = None
    before: Cursor | None = None
    seller: int = 0  # whose listings are searched; 0: everybody's

    @property
    def path(self) -> str:
        """The path of the page: the market, or a seller."""
        return f"/sellers/{self.seller}" if self.seller else "/"

    @property
    def is_narrow(self) -> bool:
        """Whether there are search terms or filters."""
        return self.first_page()._replace(sort="", seller=0) != Search()

    @property
    def is_filtered(self) -> bool:
        """Whether there are filters, regardless of search terms."""
        return self._replace(q="").is_narrow

    @property
    def heading(self) -> str:
        """The heading of the results."""
        if self.q:
            return f"Results for “{self.q}”"
        subject = self.category or GROUPS.get(self.type, "All listings")
        return f"{subject} in {self.region}" if self.region else subject

    @property
    def default_sort(self) -> Sort:
        """The order if none is chosen: the best match if there are words."""
        return "best" if self.q else "newest"

    def clear(self) -> "Search":
        """Return the search without words and filters."""
        return Search(sort=self.sort, seller=self.seller)

    def first_page(self) -> "Search":
        """Return the search without its cursor."""
        return self._replace(after=None, before=None)

    def replace(self, **fields: str) -> "Search":
        """Return the first page of the search with other values of some fields."""
        values: Any = fields
        return self.first_page()._replace(**values)

    def url(self) -> str:
        """Return the URL of this page. The default sort order is omitted, unless it would be the only parameter."""
        parameters = {name: value for name, value in self.first_page()._replace(seller=0)._asdict().items() if value}
        for name, cursor in (("after", self.after), ("before", self.before)):
            if cursor is not None:
                parameters[name] = f"{cursor[0]}-{cursor[1]}{cursor[2] and '-'}{cursor[2]}"
        if self.sort == self.default_sort:
            parameters.pop("sort", None)
        if not self.seller:
            parameters = parameters or _DEFAULT_SORT
        query = "&".join(f"{name}={_quote(value)}" for name, value in parameters.items())
        return f"{self.path}?{query}" if query else self.path

    def query(self) -> tuple[MarketQuery, dict[str, str]]:
        """Return the query, and an error message for each invalid field. The query ignores these fields."""
        errors: dict[str, str] = {}
        if self.q and not split(self.q):
            errors["q"] = "Enter a search term with letters or digits"
        price_min, price_max = _parse_price(self.price_min), _parse_price(self.price_max)
        for name, label, text, cents in (
            ("price_min", "lowest", self.price_min, price_min),
            ("price_max", "highest", self.price_max, price_max),
        ):
            if text and cents is None:
                errors[name] = f"Enter the {label} price as a number, for example 250"
        after = self.after or self.before
        return MarketQuery(
            text=self.q,
            account_id=self.seller or None,
            type=self.type or None,
            category=self.category or None,
            region=self.region or None,
            price_min=price_min,
            price_max=price_max,
            sort=self.sort or self.default_sort,
            after=after[:2] if after is not None else None,
        ), errors


def read(parameters: QueryParams, restore_id: str, seller: int = 0) -> Search:
    """Parse the parameters of a URL. Unknown options are ignored, and two prices in the wrong order are swapped.

    A cursor from before the last restore leads to the first page, because other listings may have its serial.
    """
    listing_type, sort = parameters.get("type", ""), parameters.get("sort", "")
    price_min, price_max = (parameters.get(name, "")[:_MAX_LENGTH].strip() for name in ("price_min", "price_max"))
    lowest, highest = _parse_price(price_min), _parse_price(price_max)
    if lowest is not None and highest is not None and lowest > highest:
        price_min, price_max = price_max, price_min
    after, before = (_parse_cursor(parameters.get(name, ""), restore_id) for name in ("after", "before"))
    found = Search(
        q=parameters.get("q", "")[:_MAX_LENGTH].strip(),
        type=listing_type if listing_type in GROUPS else "",
        category=parameters.get("category", "")[:_MAX_LENGTH],
        region=parameters.get("region", "")[:_MAX_LENGTH],
        price_min=price_min,
        price_max=price_max,
        sort=sort if sort in SORTS else "",
        after=after,
        before=before if after is None else None,
        seller=seller,
    )
    if found.sort == "best" and not found.q:
        found = found._replace(sort="newest")
    cursor = found.after or found.before
    is_ranked = (found.sort or found.default_sort) == "best"
    if cursor is not None and is_ranked and (cursor[0] > MAX_RANKED or (cursor[1] and cursor[0] < MAX_RANKED)):
        return found.first_page()  # a cursor of another order
    return found


def _parse_cursor(text: str, restore_id: str) -> Cursor | None:
    match = _CURSOR.fullmatch(text)
    if match is None or (match[3] or "") != restore_id:
        return None
    return int(match[1]), int(match[2]), restore_id


def _parse_price(text: str) -> int | None:
    dollars = parse_price(text)  # such as "1,200" or "$35.50"
    try:
        return Money(MAX_PRICE_CENTS)(dollars) if dollars is not None else None
    except FieldError:
        return None
