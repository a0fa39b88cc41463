"""Read all listings of an account for an export."""

import asyncio
from collections.abc import AsyncIterator

from listings.domain.model import Account, Listing, bucket_of
from listings.service import Service

_PAGE = 500


_FIRST_PAGE = 50


_PAGE_CHARACTERS = 2 * 1024 * 1024


async def pages(service: Service, account: Account, after_id: int = 0) -> AsyncIterator[list[Listing]]:
    """All listings of an account behind an id, ids ascending, each page read by itself so that no snapshot is held."""
    count = _FIRST_PAGE
    while found := await service.store.page_listings(bucket_of(account.id), account.id, after_id, count):
        yield found
        after_id = found[-1].id
        is_long = sum(len(listing.content) for listing in found) > _PAGE_CHARACTERS
        count = _FIRST_PAGE if is_long else min(2 * count, _PAGE)
        await asyncio.sleep(0)  # a read never waits, and a signal is heard only where something does
