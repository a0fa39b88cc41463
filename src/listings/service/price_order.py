"""The order of pages by ascending price: listings that state no price (price 0) come last (decision G5)."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from listings.domain.model import ListingQuery, MarketQuery

Query = TypeVar("Query", ListingQuery, MarketQuery)
Found = TypeVar("Found")


async def search_unpriced_last(
    search: Callable[[Query], Awaitable[list[Found]]], query: Query, limit: int
) -> list[Found]:
    """Return at most `limit` results of a query by ascending price, those without a price after all others.

    A cursor with price 0 continues among those without a price.
    """
    is_unpriced = query.after is not None and query.after[0] == 0
    lowest = query.price_min or 0
    priced = []
    if not is_unpriced:
        priced = await search(msgspec.structs.replace(query, price_min=max(lowest, 1), limit=limit))
    if len(priced) == limit or lowest > 0:
        return priced
    after = query.after if is_unpriced else None
    rest = msgspec.structs.replace(query, price_max=0, after=after, limit=limit - len(priced))
    return priced + await search(rest)
