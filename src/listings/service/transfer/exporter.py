"""Read all listings of an account for an export."""

import asyncio
from collections.abc import AsyncIterator

from listings.contract.listings import ListingStore
from listings.domain.model import Account, Listing, bucket_of

_MAX_PAGE_SIZE = 500
_MIN_PAGE_SIZE = 50
_LARGE_PAGE_CHARACTERS = 2 * 1024 * 1024


async def read_pages(listings: ListingStore, account: Account, after_id: int = 0) -> AsyncIterator[list[Listing]]:
    """Yield all listings of an account after an id, by ascending id.

    Each page is a separate read, so that no database snapshot stays open.
    """
    count = _MIN_PAGE_SIZE
    while found := await listings.page_listings(bucket_of(account.id), account.id, after_id, count):
        yield found
        after_id = found[-1].id
        is_large = sum(len(listing.content) for listing in found) > _LARGE_PAGE_CHARACTERS
        count = _MIN_PAGE_SIZE if is_large else min(2 * count, _MAX_PAGE_SIZE)
        await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop, which processes signals
