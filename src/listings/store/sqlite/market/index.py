"""Index listings for the market in small steps, each of which is one operation of the writer.

Before each step, its listings are read and tokenized on the event loop, one per iteration, so that neither writes nor
reads wait for them.
"""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from listings.domain.account_limits import count_text_bytes
from listings.domain.model import Listing
from listings.store import sql
from listings.store.mapping import build_listing
from listings.store.market import entries
from listings.store.market.entries import SHOWN
from listings.store.scripts.market_index import EntryChange, build_set_entry, read_in_order
from listings.store.scripts.script import QueryMany, Script
from listings.store.sqlite.market.search import build_price_rowid
from listings.store.sqlite.script_runner import Read

NEXT_ACCOUNT = """
SELECT id, disabled_at IS NULL FROM accounts INDEXED BY accounts_unmarketed
WHERE marketed <> (disabled_at IS NULL) ORDER BY id LIMIT 1
"""
NEXT_LISTING = f"""
SELECT {sql.LISTING_COLUMNS} FROM listings INDEXED BY listings_unmarketed
WHERE market_version <> version AND id > $1 ORDER BY id LIMIT 1
"""
IS_OUTDATED = "SELECT id FROM listings WHERE id = $1 AND version = $2 AND market_version <> version"
_SET_ENTRY = build_set_entry()


class PreparedBatch(NamedTuple):
    """The next listings to index, and the seconds it took to prepare them. `has_more`: whether more may remain.

    `words` are by id and version, because a listing may change before the step that indexes it.
    """

    listings: list[Listing]
    words: dict[tuple[int, int], str]
    has_more: bool
    seconds: float


async def prepare_next(read: Read, count: int, index_version: int) -> PreparedBatch:
    """Prepare at most `count` listings whose current version is not in the market."""
    listings: list[Listing] = []
    words: dict[tuple[int, int], str] = {}
    seconds, size, has_more = 0.0, 0, True
    while has_more and len(listings) < count and size < entries.MAX_STEP_BYTES:
        began = perf_counter()
        rows = read(NEXT_LISTING, (listings[-1].id if listings else -1,))
        for listing in map(build_listing, rows):
            listings.append(listing)
            words[listing.id, listing.version] = _build_words(listing, index_version)
            size += count_text_bytes(listing)
        has_more = bool(rows)
        seconds += perf_counter() - began
        await asyncio.sleep(0)
    return PreparedBatch(listings, words, has_more, seconds)


def _build_words(listing: Listing, index_version: int) -> str:
    is_shown = entries.choose_state(listing, None) == SHOWN
    return " ".join(entries.build_terms(listing, index_version)) if is_shown else ""


class SqliteMarketEngine:
    """Implements `listings.store.scripts.market_index.MarketEngine` for one step, whose listings were prepared.

    Changes to the full-text indexes are collected until the end of the step: inserts in ascending order are faster.
    """

    next_account = NEXT_ACCOUNT

    def __init__(self, batch: PreparedBatch) -> None:
        self._batch = batch
        self._removed: list[tuple[int, int]] = []
        self._added: list[tuple[int, int, str]] = []

    def read_outdated(self, count: int, max_bytes: int) -> Script[list[Listing]]:
        """Skip listings that were edited since they were prepared; a later step prepares them."""
        prepared = self._batch.listings[:count]
        rows = yield QueryMany(IS_OUTDATED, [(listing.id, listing.version) for listing in prepared])
        ids = {row[0] for row in rows}
        found: list[Listing] = []
        for listing in prepared:
            if max_bytes <= 0:
                break
            if listing.id in ids:
                found.append(listing)
                max_bytes -= count_text_bytes(listing)
        return found

    def read_listings(self, ids: Sequence[int], max_bytes: int) -> Script[list[Listing]]:
        return (yield from read_in_order(ids, max_bytes))

    def write_entries(self, changes: Sequence[EntryChange], version: int) -> Script[None]:
        for serial, listing, state, _, before in changes:
            if before is not None and before.state == SHOWN:
                self._removed.append((before.price_cents, serial))
            if state == SHOWN:
                words = self._batch.words.get((listing.id, listing.version)) or _build_words(listing, version)
                self._added.append((listing.price_cents, serial, words))
        rows = [
            (serial, *entries.build_entry_values(listing, state, listed_at))
            for serial, listing, state, listed_at, _ in changes
        ]
        yield QueryMany(_SET_ENTRY, rows)

    def finish(self) -> Script[None]:
        """Write the collected changes to the full-text indexes."""
        for table, by_price in (("market_words", False), ("market_prices", True)):
            removed = sorted(build_price_rowid(*old) if by_price else old[1] for old in self._removed)
            yield QueryMany(f"DELETE FROM {table} WHERE rowid = $1", [(rowid,) for rowid in removed])
            added = (
                (build_price_rowid(price, serial) if by_price else serial, words)
                for price, serial, words in self._added
            )
            yield QueryMany(f"INSERT INTO {table} (rowid, words) VALUES ($1, $2)", sorted(added))
