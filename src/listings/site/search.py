"""The market's search form: from the URL of a page to the query of the market, and back."""

import re
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from listings.domain import tokenizer
from listings.domain.fields import MAX_PRICE_CENTS
from listings.domain.model import MarketQuery
from listings.site.presentation import GROUPS

Sort: TypeAlias = Literal["", "price", "-price"]
SORTS: dict[Sort, str] = {"": "Newest first", "price": "Lowest price", "-price": "Highest price"}

_MAX_LENGTH = 200
_MAX_TERMS = 20
_PRICE = re.compile(r"\$?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,12})(?:\.([0-9]{1,2}))?")
_SPACE = re.compile(r"\s")
_CURSOR = re.compile(r"([0-9]{1,11})-([0-9]{1,18})")


class Search(NamedTuple):
    """The form as submitted, and the cursor of a later page."""

    q: str = ""
    type: str = ""
    category: str = ""
    region: str = ""
    price_min: str = ""
    price_max: str = ""
    sort: Sort = ""
    after: tuple[int, int] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether there are search terms or filters."""
        return self._replace(sort="", after=None) != Search()

    @property
    def is_filtered(self) -> bool:
        """Whether there are filters, regardless of search terms."""
        return self._replace(q="", sort="", after=None) != Search()

    @property
    def heading(self) -> str:
        """The heading of the results."""
        if self.q:
            return f"Results for “{self.q}”"
        if not self.is_narrow:
            return "All listings" if self.sort else "Latest listings"
        subject = self.category or GROUPS.get(self.type, "All listings")
        return f"{subject} in {self.region}" if self.region else subject

    def url(self, after: tuple[int, int] | None = None) -> str:
        """Return the URL of this search: its first page, or the page after a cursor."""
        parameters = {name: value for name, value in self._replace(after=None)._asdict().items() if value}
        if after is not None:
            parameters["after"] = f"{after[0]}-{after[1]}"
        return f"/?{urlencode(parameters or {'sort': 'newest'})}"

    def query(self) -> tuple[MarketQuery, dict[str, str]]:
        """Return the query, and an error message for each invalid field."""
        errors: dict[str, str] = {}
        terms = tuple(dict.fromkeys(tokenizer.tokenize(self.q)))[:_MAX_TERMS]
        if self.q.strip() and not terms:
            errors["q"] = "Enter a search term with letters or digits"
        price_min = _parse_price(self.price_min, "price_min", "lowest", errors)
        price_max = _parse_price(self.price_max, "price_max", "highest", errors)
        if price_min is not None and price_max is not None and price_min > price_max:
            errors["price_max"] = "The highest price must not be below the lowest"
        return MarketQuery(
            words=terms,
            type=self.type or None,
            category=self.category or None,
            region=self.region or None,
            price_min=price_min,
            price_max=price_max,
            sort=self.sort or "newest",
            after=self.after,
        ), errors


def read(parameters: QueryParams) -> Search:
    """Parse the parameters of a URL. Unknown options are ignored."""
    listing_type, sort = parameters.get("type", ""), parameters.get("sort", "")
    cursor = _CURSOR.fullmatch(parameters.get("after", ""))
    return Search(
        q=parameters.get("q", "")[:_MAX_LENGTH].strip(),
        type=listing_type if listing_type in GROUPS else "",
        category=parameters.get("category", "")[:_MAX_LENGTH],
        region=parameters.get("region", "")[:_MAX_LENGTH],
        price_min=parameters.get("price_min", "")[:_MAX_LENGTH].strip(),
        price_max=parameters.get("price_max", "")[:_MAX_LENGTH].strip(),
        sort=sort if sort in SORTS else "",
        after=(int(cursor[1]), int(cursor[2])) if cursor is not None else None,
    )


def _parse_price(text: str, field: str, label: str, errors: dict[str, str]) -> int | None:
    """Return the cents of a price such as "1,200" or "$35.50". If it is invalid, add an error message."""
    if not text:
        return None
    match = _PRICE.fullmatch(_SPACE.sub("", text))
    cents = MAX_PRICE_CENTS + 1
    if match is not None:
        cents = int(match[1].replace(",", "")) * 100 + int((match[2] or "").ljust(2, "0"))
    if cents > MAX_PRICE_CENTS:
        errors[field] = f"Enter the {label} price as a number, for example 250"
        return None
    return cents
