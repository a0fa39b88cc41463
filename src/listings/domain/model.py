"""The nouns: listings, accounts, keys, callers. Values only; the rules of a listing's fields are in `fields`.

Times of a listing are text (`dates.text_of`), because they are stored and shown as text; all other times are
seconds since 1970.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

BUCKETS = 1024

Value: TypeAlias = str | int | float | bool | None
"""What a field of a listing can hold, as it is stored."""

ListingChange: TypeAlias = Mapping[str, Value]
"""New values by the name of the `Listing` attribute, only of what changes."""


def bucket_of(number: int) -> int:
    """The bucket of a listing's id, and of an account's: where its rows live (decision G7a)."""
    return number & (BUCKETS - 1)


class Listing(msgspec.Struct, frozen=True, gc=False):
    """A listing as it is stored, deleted ones included."""

    id: int
    account_id: int
    version: int  # raised by every edit, not by views
    title: str
    content: str
    type: str
    category: str
    images: str  # the JSON array of addresses; only pages look inside
    price_cents: int
    price_type: str
    location: str
    region: str
    district: str
    latitude: float | None
    longitude: float | None
    is_active: bool
    view_count: int
    created_at: str
    updated_at: str
    deleted_at: int | None


class NewListing(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A checked listing to be created; the defaults are what a field holds when it was not given (decision G5)."""

    title: str
    content: str
    type: str = "product"
    category: str = ""
    images: str = "[]"
    price_cents: int = 0
    price_type: str = "fixed"
    location: str = ""
    region: str = ""
    district: str = ""
    latitude: float | None = None
    longitude: float | None = None
    is_active: bool = True


class ImportedListing(msgspec.Struct, frozen=True, gc=False):
    """A checked listing to be made with a past of its own: a deleted one is inactive."""

    new: NewListing
    view_count: int
    created_at: str
    updated_at: str
    deleted_at: int | None


Status: TypeAlias = Literal["active", "inactive", "deleted", "all"]
SortKey: TypeAlias = Literal["id", "created_at", "updated_at", "price", "title"]


class ListingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which of an account's listings are asked for, and in which order (decision G17). None: whatever it is."""

    status: Status = "active"
    type: str | None = None
    category: str | None = None
    region: str | None = None
    words: tuple[str, ...] = ()  # that title or content must have, as `words.tokenize` gives them
    price_min: int | None = None  # cents, included
    price_max: int | None = None  # cents, included
    updated_since: str | None = None  # included
    sort: SortKey = "id"
    descending: bool = True
    limit: int | None = None
    after: tuple[str | int, int] | None = None  # the sorted value and the id of the last listing before

    def place_of(self, listing: "Listing") -> tuple[str | int, int]:
        """What to go on behind: the value that this query sorts by, and the id that tells equal ones apart."""
        value: str | int = getattr(listing, SORTED_BY[self.sort])
        return value, listing.id


SORTED_BY: Mapping[SortKey, str] = {
    "id": "id",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "price": "price_cents",
    "title": "title",
}
"""The attribute of a listing that each order goes by."""


class MarketQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which of everybody's listings are asked for, and in which order. None: whatever it is."""

    words: tuple[str, ...] = ()  # that the listing must have, as `words.tokenize` gives them
    type: str | None = None
    category: str | None = None
    region: str | None = None
    price_min: int | None = None  # cents, included
    price_max: int | None = None  # cents, included
    sort: Literal["newest", "price", "-price"] = "newest"
    after: tuple[int, int] | None = None  # price and serial of the last entry before, as `Entry.place` has them
    limit: int = 24


class MarketEntry(msgspec.Struct, frozen=True, gc=False):
    """What the market shows of a listing among others."""

    serial: int  # its place in the order in which listings appeared
    id: int
    title: str
    type: str
    category: str
    image: str  # the first picture's address, or ""
    price_cents: int
    price_type: str
    location: str
    region: str
    created_at: str

    @property
    def place(self) -> tuple[int, int]:
        """What to go on behind, whatever the order."""
        return self.price_cents, self.serial


class MarketFacets(NamedTuple):
    """The regions and the categories of what the market shows, those with the most listings first."""

    regions: list[str]
    categories: list[str]


class SitemapEntry(NamedTuple):
    """A page for search engines to know of."""

    serial: int
    listing_id: int
    updated_at: str


class Account(msgspec.Struct, frozen=True):
    """Somebody who owns listings. `plan_expires_at` None: never had a plan; `disabled_at` None: not disabled."""

    id: int
    name: str
    email: str
    plan_expires_at: int | None
    created_at: int
    disabled_at: int | None


class ApiKey(msgspec.Struct, frozen=True):
    """A key without its secret; `hint` is its first four and last four characters (decision G24).

    `last_used_at` may be a minute behind.
    """

    id: int
    account_id: int
    name: str
    hint: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    revoked_at: int | None


class ListingCounts(msgspec.Struct, frozen=True):
    """How many listings an account has of each state."""

    active: int
    inactive: int
    deleted: int


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who sends a request: a key and what of its account decides over it."""

    key_id: int
    account_id: int
    bucket: int
    plan_expires_at: int | None
    account_disabled_at: int | None
    key_expires_at: int | None
    key_revoked_at: int | None


def is_current(plan_expires_at: int | None, now: float) -> bool:
    """Whether a Business plan holds; it does until just before its end. No plan is as an expired one."""
    return plan_expires_at is not None and now < plan_expires_at
