"""Listings for the conformance tests, and shorthands for the store's methods."""

from typing import Any

from listings.contract.store import Store
from listings.domain.model import Account, Listing, ListingChange, NewListing, bucket_of
from tests.conformance.conftest import Run

CREATED = "2026-11-21 10:00:00"
FULL = NewListing(
    title="A title",
    content="Content\nof two lines, with 'quotes', \\ and 🙂",
    type="rental",
    category="Category",
    images='["https://a.example/1.jpg","b.jpg"]',
    price_cents=99_999_999_999,
    price_type="per_night",
    location="Location",
    region="Region",
    district="District",
    latitude=-41.25,
    longitude=174.5,
    is_active=True,
)
MINIMAL = NewListing(title="t", content="c")


def add(run: Run, store: Store, account: Account, new: NewListing = MINIMAL) -> int:
    """Create a listing and return its id."""
    return int(run(store.add_listing(bucket_of(account.id), account.id, new, CREATED)).listing_id)


def list_ids(run: Run, store: Store, account: Account) -> list[int]:
    """Return the ids of the account's active listings."""
    return [listing.id for listing in run(store.list_listings(bucket_of(account.id), account.id))]


def page_ids(run: Run, store: Store, account: Account, after_id: int = 0, count: int = 100) -> list[int]:
    """Return the ids on a page of all the account's listings."""
    return [listing.id for listing in run(store.page_listings(bucket_of(account.id), account.id, after_id, count))]


def set_values(**values: Any) -> Any:
    """Return a `decide` that changes these columns."""

    def decide(_: Listing | None) -> ListingChange:
        return values

    return decide
