"""What a visitor looks for, between the address of a page and the market's query."""

import re
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from listings.domain import tokenizer
from listings.domain.model import MarketQuery
from listings.site.presentation import GROUPS

Sort: TypeAlias = Literal["", "price", "-price"]
SORTS: dict[Sort, str] = {"": "Newest first", "price": "Lowest price", "-price": "Highest price"}

_LONGEST = 200
_MOST_WORDS = 20
_MOST_CENTS = 99_999_999_999
_PRICE = re.compile(r"\$?([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,12})(?:\.([0-9]{1,2}))?")
_SPACE = re.compile(r"\s")
_PLACE = re.compile(r"([0-9]{1,11})-([0-9]{1,18})")


class Search(NamedTuple):
    """What stands in the form, as it was sent, and the place where the page begins."""

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
        """Whether anything is asked for in particular."""
        return self._replace(sort="", after=None) != Search()

    @property
    def is_filtered(self) -> bool:
        """Whether it is by more than words."""
        return self._replace(q="", sort="", after=None) != Search()

    @property
    def heading(self) -> str:
        """What is looked for, in words."""
        if self.q:
            return f"Results for “{self.q}”"
        if not self.is_narrow:
            return "All listings" if self.sort else "Latest listings"
        what = self.category or GROUPS.get(self.type, "All listings")
        return f"{what} in {self.region}" if self.region else what

    def address(self, after: tuple[int, int] | None = None) -> str:
        """The page that finds this, from its beginning or behind a place."""
        given = {name: value for name, value in self._replace(after=None)._asdict().items() if value}
        if after is not None:
            given["after"] = f"{after[0]}-{after[1]}"
        return f"/?{urlencode(given)}" if given else "/"

    def query(self) -> tuple[MarketQuery, dict[str, str]]:
        """What to ask the market for, and what of the form could not be understood, by the field's name."""
        faults: dict[str, str] = {}
        sought = tuple(dict.fromkeys(tokenizer.tokenize(self.q)))[:_MOST_WORDS]
        if self.q.strip() and not sought:
            faults["q"] = "Look for words of letters or digits"
        least = _cents(self.price_min, "price_min", "lowest", faults)
        most = _cents(self.price_max, "price_max", "highest", faults)
        if least is not None and most is not None and least > most:
            faults["price_max"] = "The highest price is below the lowest"
        return MarketQuery(
            words=sought,
            type=self.type or None,
            category=self.category or None,
            region=self.region or None,
            price_min=least,
            price_max=most,
            sort=self.sort or "newest",
            after=self.after,
        ), faults


def read(parameters: QueryParams) -> Search:
    """What was asked for; choices that there are not are as not made."""
    kind, sort = parameters.get("type", ""), parameters.get("sort", "")
    place = _PLACE.fullmatch(parameters.get("after", ""))
    return Search(
        q=parameters.get("q", "")[:_LONGEST].strip(),
        type=kind if kind in GROUPS else "",
        category=parameters.get("category", "")[:_LONGEST],
        region=parameters.get("region", "")[:_LONGEST],
        price_min=parameters.get("price_min", "")[:_LONGEST].strip(),
        price_max=parameters.get("price_max", "")[:_LONGEST].strip(),
        sort=sort if sort in SORTS else "",
        after=(int(place[1]), int(place[2])) if place is not None else None,
    )


def _cents(text: str, field: str, which: str, faults: dict[str, str]) -> int | None:
    """A price as people write it: "1,200", "$35.50"."""
    if not text:
        return None
    match = _PRICE.fullmatch(_SPACE.sub("", text))
    cents = _MOST_CENTS + 1
    if match is not None:
        cents = int(match[1].replace(",", "")) * 100 + int((match[2] or "").ljust(2, "0"))
    if cents > _MOST_CENTS:
        faults[field] = f"Write the {which} price as a number of dollars, like 250"
        return None
    return cents
