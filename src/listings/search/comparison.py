"""Compare a sample of listings with the index of this machine, and see whether the index follows the database."""

import asyncio
import random
import time
from pathlib import Path
from typing import NamedTuple

from tantivy import Index, Query

from listings.search import folders
from listings.search.analysis import list_title_terms
from listings.search.folders import Folder
from listings.search.queries import all_of, term
from listings.search.schema import SCHEMA, Position, price_key, read_position
from listings.store.market.store import ScriptedMarketStore

_PARTS, _LISTINGS_PER_PART = 20, 50
_WAIT_SECONDS, _POLL_SECONDS = 5.0, 0.1


class Comparison(NamedTuple):
    """How many listings were compared, and how many of them the index has otherwise or not at all.

    `is_stuck`: the process that writes the index has not followed the next changes for some seconds.
    """

    compared: int
    different: int
    is_stuck: bool


async def compare(store: ScriptedMarketStore, root: Path) -> Comparison | None:
    """Compare about 1,000 listings, or return None if the index has not been built. Raises ValueError for damage."""
    folder = folders.choose_folder(root)
    if folder is None or not folder.is_complete or not folder.is_current:
        return None
    damaged = folder.find_damaged_file()
    if damaged is not None:
        raise ValueError(f"the bytes of {damaged} have changed")
    searcher = Index.open(str(folder.path)).searcher()
    position = read_position(searcher)
    state = await store.get_market_state()
    is_late = position is not None and position.sequence < state.sequence
    is_built = any(it.is_usable and not it.is_complete for it in folders.list_folders(root))  # which takes longer steps
    is_stuck = is_late and not is_built and folders.has_writer(root) and not await _advances(folder, position)
    last = state.serial
    found: dict[int, bool] = {}
    for _ in range(_PARTS):
        before = random.randint(1, last + 1) if last > _PARTS * _LISTINGS_PER_PART else last + 1  # noqa: S311 - a sample
        for listing in await store.list_unread_listings(before, _LISTINGS_PER_PART):
            if listing.is_shown and position is not None and listing.sequence <= position.sequence:
                # The index finds a listing by each term of its title, and sorts it by its price.
                terms = [term("title", it) for it in " ".join(list_title_terms(listing.title)).split()]
                conditions = [Query.term_query(SCHEMA, "id", listing.id), *terms]
                hits = searcher.search(all_of(conditions), 2, order_by_field="price").hits
                found[listing.id] = [hit[0] for hit in hits] == [price_key(listing.price_cents, listing.serial)]
    return Comparison(len(found), sum(not it for it in found.values()), is_stuck)


async def _advances(folder: Folder, position: Position | None) -> bool:
    end = time.monotonic() + _WAIT_SECONDS
    while folder.is_usable and read_position(Index.open(str(folder.path)).searcher()) == position:
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
