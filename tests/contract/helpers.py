"""Listings for the tests of the contract, and shorthands for the store's methods."""

from typing import Any

import msgspec

from listings.domain.fields import FIELDS, MAX_PRICE_CENTS, parse_new_listing
from listings.domain.listings import AddStep, ListResult
from listings.domain.mail import NewMail
from listings.domain.model import Account, Listing, ListingChange, ListingQuery, NewListing, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run

CREATED = "2026-11-21 10:00:00"
FULL = msgspec.structs.replace(
    parse_new_listing({name: field.example for name, field in FIELDS.items()})[0],
    title="A title",
    content="Content\nof two lines, with 'quotes', \\ and 🙂",
    type="rental",
    price_cents=MAX_PRICE_CENTS,
    price_type="per_night",
)
MINIMAL = NewListing(title="t", content="c")


def add(run: Run, store: Store, account: Account, new: NewListing = MINIMAL) -> int:
    return int(run(store.add_listing(bucket_of(account.id), account.id, AddStep(new, CREATED))).listing_id)


async def add_email_token(store: Store, account_id: int, digest: bytes, email: str) -> None:
    """Queue an email to an address, and store its token, which expires at 2,000."""
    mail = NewMail(digest.hex(), "confirm_email", email, account_id, "{}", 1_000)
    await store.add_mail(mail)
    assert await store.add_email_token(account_id, mail, digest, 1_000, 2_000)


async def erase(store: Store, account_id: int, email: str, now: int) -> None:
    await store.change_account(account_id, lambda _: {"disabled_at": now})
    assert await store.erase_account(account_id, "Erased", email, now, now)


async def search_all(store: Store, account_id: int, query: ListingQuery) -> ListResult:
    """Return the result of a search, however large."""
    async with store.read_listings(bucket_of(account_id), account_id, query) as found:
        return ListResult([listing async for piece in found.pieces for listing in piece][: query.limit], found.total)


async def find_all(store: Store, account_id: int, query: ListingQuery) -> list[Listing]:
    """Return the listings that match a query, however many."""
    return (await search_all(store, account_id, query)).listings


def list_ids(run: Run, store: Store, account: Account) -> list[int]:
    return [listing.id for listing in run(store.list_listings(bucket_of(account.id), account.id)).listings]


def page_ids(run: Run, store: Store, account: Account, after_id: int = 0, count: int = 100) -> list[int]:
    return [listing.id for listing in run(store.page_listings(bucket_of(account.id), account.id, after_id, count))]


def set_values(**values: Any) -> Any:
    """Return a `decide` that changes these columns."""

    def decide(_: Listing | None) -> ListingChange:
        return values

    return decide
