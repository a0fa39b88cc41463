"""Data types: listings, accounts, API keys and callers. `fields` has the validation rules of a listing.

`created_at` and `updated_at` of a listing are strings (`timestamps.format_timestamp`), the form in which they are
stored and shown. Other timestamps are in seconds since 1970 unless a field says otherwise.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

BUCKETS = 1024
MAX_ID = 2**63 - 1  # the largest integer of both databases

Value: TypeAlias = str | int | float | bool | None
"""A stored value of a listing's field."""

ListingChange: TypeAlias = Mapping[str, Value]
"""New values by the name of the `Listing` attribute. Unchanged attributes are absent."""


def bucket_of(number: int) -> int:
    """Return the bucket of a listing id or an account id, which decides where its rows are stored (decision G7a)."""
    return number & (BUCKETS - 1)


class Listing(msgspec.Struct, frozen=True, gc=False):
    """A stored listing. It may be deleted."""

    id: int
    account_id: int
    version: int  # increases with every edit, but not with views
    title: str
    content: str
    type: str
    category: str
    images: str  # a JSON array of URLs, which the API sends without decoding it
    price_cents: int
    price_type: str
    location: str
    region: str
    district: str
    latitude: float | None
    longitude: float | None
    is_active: bool
    external_id: str | None
    view_count: int
    created_at: str
    updated_at: str
    deleted_at: int | None

    def format_etag(self, restore_id: str) -> str:
        """Return the entity tag of its record (decision G35): the id of the last restore, version and views."""
        return f'"{restore_id}v{self.version}.{self.view_count}"'


class NewListing(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A validated listing to be created. The defaults are the values of fields that are not given (decision G5)."""

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
    external_id: str | None = None


class ImportedListing(msgspec.Struct, frozen=True, gc=False):
    """A validated listing to be created with its own timestamps and views. A deleted one is inactive."""

    new: NewListing
    view_count: int
    created_at: str
    updated_at: str
    deleted_at: int | None


Status: TypeAlias = Literal["active", "inactive", "deleted", "all"]
SortKey: TypeAlias = Literal["id", "created_at", "updated_at", "price", "title"]
UnindexedSort: TypeAlias = Literal["views", "folded_title"]
"""Orders for pages: by views, and by titles without regard to case and accents. All matches are sorted."""

UNINDEXED_SORTS: Collection[str] = get_args(UnindexedSort)


class ListingQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters, order and page of a list of an account's listings (decision G17).

    None means no filter, and so does () for `words` and `ids`.
    """

    status: Status = "active"
    type: str | None = None
    category: str | None = None
    region: str | None = None
    words: tuple[str, ...] = ()  # from `tokenizer.tokenize`; title or content must contain each of them
    price_min: int | None = None  # cents, inclusive
    price_max: int | None = None  # cents, inclusive
    updated_since: str | None = None  # inclusive
    external_ids: tuple[str, ...] | None = None
    images: str | None = None
    view_count: int | None = None
    unviewed_since: str | None = None  # created before this time, and not viewed since
    sort: SortKey | UnindexedSort = "id"
    descending: bool = True
    limit: int | None = None
    after: tuple[str | int, int] | None = None  # the cursor of the last listing on the previous page
    ids: tuple[int, ...] = ()  # distinct
    count: bool = False  # whether to count the listings that match the filters

    @property
    def is_counted_exactly(self) -> bool:
        """Whether the only filter is the status, so that counting follows one index."""
        filters = (self.type, self.category, self.region, self.price_min, self.price_max, self.updated_since)
        more = (self.external_ids, self.images, self.view_count, self.unviewed_since)
        return not self.words and not self.ids and set(filters + more) == {None}

    def cursor_of(self, listing: Listing) -> tuple[str | int, int]:
        """Return the sort value and the id of a listing. The id breaks ties."""
        value: str | int = getattr(listing, SORTED_BY[self.sort])
        return value, listing.id


SORTED_BY: Mapping[SortKey | UnindexedSort, str] = {
    "id": "id",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "price": "price_cents",
    "title": "title",
    "views": "view_count",
    "folded_title": "title",
}
"""The `Listing` attribute of each sort key."""


MarketSort: TypeAlias = Literal["best", "newest", "oldest", "price", "-price"]


class MarketQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters, order and page of a search of the public market. None means no filter."""

    text: str = ""  # search words as typed
    account_id: int | None = None  # of the seller
    type: str | None = None
    category: str | None = None
    region: str | None = None
    price_min: int | None = None  # cents, inclusive
    price_max: int | None = None  # cents, inclusive
    sort: MarketSort = "newest"  # "best" is the same if there are no words
    after: tuple[int, int] | None = None  # the cursor of the last entry on the previous page
    limit: int = 24


class MarketEntry(msgspec.Struct, frozen=True, gc=False):
    """A listing in the search results of the market."""

    serial: int  # ascends in the order in which listings were added to the market
    id: int
    title: str
    type: str
    category: str
    image: str  # URL of the first image, or ""
    price_cents: int
    price_type: str
    location: str
    region: str
    listed_at: str  # when the listing was created, but not before the `listed_at` of any lower serial
    content: str = ""  # its beginning, if a search has words

    @property
    def cursor(self) -> tuple[int, int]:
        """The price and the serial, which continue a search in any order."""
        return self.price_cents, self.serial


class MarketFacets(NamedTuple):
    """The numbers of listings on the market in each region and category, largest first."""

    regions: dict[str, int]
    categories: dict[str, int]


class SitemapEntry(NamedTuple):
    """A listing in the sitemap."""

    serial: int
    listing_id: int
    updated_at: str


class Account(msgspec.Struct, frozen=True):
    """An owner of listings. `plan_expires_at` is None without a plan, `disabled_at` is None if it is enabled."""

    id: int
    name: str
    email: str
    plan_expires_at: int | None
    created_at: int
    disabled_at: int | None
    public_contact: str = ""  # an email address, a phone number or a URL, shown on the market
    messages_off_at: int | None = None  # None: buyers may send messages
    test_of: int | None = None  # the live account of a test account
    about: str = ""  # the seller's text about the shop, shown on the market


KeyAccess: TypeAlias = Literal["read", "write"]
"""The access of an API key: `read` is GET and HEAD only (decision G44)."""


class ApiKey(msgspec.Struct, frozen=True):
    """An API key without its secret. `hint` is the masked key (decision G24). `last_used_at` may lag by a minute."""

    id: int
    account_id: int
    name: str
    hint: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    revoked_at: int | None
    access: KeyAccess


class Revisions(NamedTuple):
    """The revision of an account, and its edit revision: the id of its last change set.

    Views of its listings raise only the former.
    """

    revision: int
    edit_revision: int


class ListingCounts(msgspec.Struct, frozen=True):
    """The number of an account's listings in each state, and the bytes of the text of those that are not deleted.

    `stored_bytes` includes deleted listings and changes.
    """

    active: int
    inactive: int
    deleted: int
    text_bytes: int
    stored_bytes: int


class Caller(msgspec.Struct, frozen=True, gc=False):
    """The sender of a request (`key_id` as in `domain.history.Actor`), and the state of its account."""

    key_id: int
    account_id: int
    bucket: int
    plan_expires_at: int | None
    account_disabled_at: int | None
    key_expires_at: int | None
    key_revoked_at: int | None
    key_access: KeyAccess
    test_of: int | None = None  # the live account, if this is a test account


def is_plan_active(plan_expires_at: int | None, now: float) -> bool:
    """Return whether a Business plan is active. It expires at `plan_expires_at`; None means no plan."""
    return plan_expires_at is not None and now < plan_expires_at
