"""Index listings for the market in small steps, each of which is one operation of the writer.

The listings are read and tokenized on the event loop beforehand, one per iteration of the loop, so that neither writes
nor reads wait for it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

from apsw import Connection

from listings.contract.listings import IndexStep
from listings.domain.model import Listing
from listings.store import market_entries, sql
from listings.store.mapping import Row, build_listing
from listings.store.market_entries import HIDDEN, SHOWN, WITHHELD
from listings.store.sqlite.market import build_price_rowid
from listings.store.sqlite.rows import Read, execute, execute_many

_LEASE_SECONDS = 4
_MIN_LEASE_SECONDS = 3  # renew the lease in a step if less than this is left
_GET_LEASE = "SELECT holder, until FROM market_indexer"
_TAKE_LEASE = """
INSERT INTO market_indexer (id, holder, until) VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
"""
NEXT_ACCOUNT = """
SELECT id, disabled_at IS NULL FROM accounts INDEXED BY accounts_unmarketed
WHERE marketed <> (disabled_at IS NULL) ORDER BY id LIMIT 1
"""
_COLUMNS = ", ".join(f"listings.{name}" for name in sql.LISTING_COLUMNS.split(", "))
_ENTRY_COLUMNS = "accounts.disabled_at, market.serial, market.state, market.price_cents, market.category, market.region"
LISTINGS_OF_ACCOUNT = f"""
SELECT {_ENTRY_COLUMNS}, {_COLUMNS}
FROM market INDEXED BY market_account CROSS JOIN listings ON listings.id = market.listing_id
CROSS JOIN accounts ON accounts.id = market.account_id
WHERE market.account_id = $1 AND market.state = $2 ORDER BY market.listing_id LIMIT $3
"""
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_PARTLY = 2  # value of accounts.marketed: the account is not finished
NEXT_LISTING = f"""
SELECT {sql.LISTING_COLUMNS} FROM listings INDEXED BY listings_unmarketed
WHERE market_version <> version AND id > $1 ORDER BY id LIMIT 1
"""
GET_CURRENT_ENTRY = f"""
SELECT listings.id, {_ENTRY_COLUMNS} FROM listings CROSS JOIN accounts ON accounts.id = listings.account_id
LEFT JOIN market ON market.listing_id = listings.id
WHERE listings.id = $1 AND version = $2 AND market_version <> version
"""
_MARK_LISTING = "UPDATE listings SET market_version = version WHERE id = $1"
_GET_LAST_SERIAL = "SELECT coalesce(max(serial), 0) FROM market"
_SET_ENTRY = """
INSERT INTO market (
    serial, bucket, listing_id, account_id, state, title, type, category, image, price_cents, price_type, location,
    region, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (serial) DO UPDATE SET
    state = excluded.state, title = excluded.title, type = excluded.type, category = excluded.category,
    image = excluded.image, price_cents = excluded.price_cents, price_type = excluded.price_type,
    location = excluded.location, region = excluded.region, updated_at = excluded.updated_at
"""
_COUNT_FACET = """
INSERT INTO market_places (kind, name, listings) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET listings = listings + excluded.listings
"""
_DELETE_FACET = "DELETE FROM market_places WHERE kind = $1 AND name = $2 AND listings <= 0"


class PreparedListing(NamedTuple):
    """A listing as it was read, and its search terms."""

    listing: Listing
    words: str

    @property
    def characters(self) -> int:
        """Number of characters in the title and content."""
        return len(self.listing.title) + len(self.listing.content)


class PreparedBatch(NamedTuple):
    """The next listings to index, whether more remain, and the seconds it took to prepare them."""

    listings: list[PreparedListing]
    left: bool
    seconds: float


class _CurrentEntry(NamedTuple):
    """When a listing's account was disabled, and the listing's market entry, if it has one."""

    disabled_at: int | None
    serial: int | None
    state: int | None
    price_cents: int
    category: str
    region: str


def is_lease_free(read: Read, indexer: bytes, now: float) -> bool:
    """Return whether no other indexer holds the lease."""
    return _is_free(read(_GET_LEASE, ()), indexer, now)


async def prepare_next(read: Read, count: int) -> PreparedBatch:
    """Prepare at most `count` listings whose current version is not in the market."""
    prepared: list[PreparedListing] = []
    seconds, last_id, characters = 0.0, -1, 0
    while len(prepared) < count and characters < market_entries.MAX_STEP_CHARACTERS:
        began = perf_counter()
        rows = read(NEXT_LISTING, (last_id,))
        if not rows:
            return PreparedBatch(prepared, left=False, seconds=seconds)
        prepared.append(_prepare(rows[0]))
        last_id = prepared[-1].listing.id
        characters += prepared[-1].characters
        seconds += perf_counter() - began
        await asyncio.sleep(0)
    return PreparedBatch(prepared, left=True, seconds=seconds)


def run_step(connection: Connection, batch: PreparedBatch, count: int, indexer: bytes, now: float) -> IndexStep:
    """Index at most `count` listings.

    Disabled and enabled accounts come first: their listings are hidden or shown before any of them is updated.
    """
    rows = execute(connection, _GET_LEASE, ())
    if not _is_free(rows, indexer, now):
        return IndexStep(0)
    if not rows or rows[0][0] != indexer or rows[0][1] < int(now) + _MIN_LEASE_SECONDS:
        execute(connection, _TAKE_LEASE, (indexer, int(now) + _LEASE_SECONDS))
    changes = _Changes(connection, count)
    while not changes.is_full:
        accounts = execute(connection, NEXT_ACCOUNT, ())
        if not accounts:
            break
        _update_account(changes, *accounts[0])
    room = 0 if changes.is_full else count - changes.done
    left = changes.is_full or batch.left or len(batch.listings) > room
    changes.update_prepared(batch.listings[:room])
    changes.write()
    return IndexStep(changes.done, left=left)


def _prepare(row: Row) -> PreparedListing:
    listing = build_listing(row)
    is_shown = market_entries.choose_state(listing, None) == SHOWN
    return PreparedListing(listing, " ".join(market_entries.build_terms(listing)) if is_shown else "")


def _is_free(rows: list[Row], indexer: bytes, now: float) -> bool:
    return not rows or rows[0][0] == indexer or not now < rows[0][1] <= now + 2 * _LEASE_SECONDS


def _update_account(changes: "_Changes", account_id: int, is_enabled: int) -> None:
    """Show the listings of an enabled account, or hide those of a disabled one, as many as fit into the step."""
    changes.update_account(account_id, WITHHELD if is_enabled else SHOWN)
    execute(changes.connection, _MARK_ACCOUNT, (account_id, _PARTLY if changes.is_full else is_enabled))


class _Changes:
    """The changes of one step.

    Changes to the full-text indexes are collected until the end of the step: inserts in ascending order are faster.
    """

    def __init__(self, connection: Connection, count: int) -> None:
        self.connection = connection
        self.done = 0
        self._count = count
        self._characters = 0
        self._last_serial = int(execute(connection, _GET_LAST_SERIAL, ())[0][0])
        self._removed: list[tuple[int, int]] = []
        self._added: list[tuple[int, int, str]] = []
        self._facet_counts: Counter[tuple[str, str]] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether the step has reached its size."""
        return self.done >= self._count or self._characters >= market_entries.MAX_STEP_CHARACTERS

    def update_prepared(self, prepared: Iterable[PreparedListing]) -> None:
        """Update the entries of prepared listings. Skip those that were edited since; a later step prepares them."""
        versions = [(it.listing.id, it.listing.version) for it in prepared]
        rows = execute_many(self.connection, GET_CURRENT_ENTRY, versions)
        current = {row[0]: _CurrentEntry._make(row[1:]) for row in rows}
        self._update([(it, current[it.listing.id]) for it in prepared if it.listing.id in current])

    def update_account(self, account_id: int, state: int) -> None:
        """Update the account's entries that are in the given state, as many as fit into the step."""
        values = (account_id, state, self._count - self.done)
        cursor = self.connection.execute(sql.to_sqlite(LISTINGS_OF_ACCOUNT), values)
        found: list[tuple[PreparedListing, _CurrentEntry]] = []
        for row in cursor:
            prepared = _prepare(row[len(_CurrentEntry._fields) :])
            found.append((prepared, _CurrentEntry(*row[: len(_CurrentEntry._fields)])))
            self._characters += prepared.characters
            if self._characters >= market_entries.MAX_STEP_CHARACTERS:
                break
        cursor.close()  # before its tables are written to
        self._update(found)

    def write(self) -> None:
        """Write the collected changes to the full-text indexes and the counts of categories and regions."""
        for table, by_price in (("market_words", False), ("market_prices", True)):
            removed = sorted(build_price_rowid(*old) if by_price else old[1] for old in self._removed)
            execute_many(self.connection, f"DELETE FROM {table} WHERE rowid = $1", ((rowid,) for rowid in removed))
            added = (
                (build_price_rowid(price, serial) if by_price else serial, words)
                for price, serial, words in self._added
            )
            execute_many(self.connection, f"INSERT INTO {table} (rowid, words) VALUES ($1, $2)", sorted(added))
        for facet, difference in self._facet_counts.items():
            if difference:
                execute(self.connection, _COUNT_FACET, (*facet, difference))
            if difference < 0:
                execute(self.connection, _DELETE_FACET, facet)

    def _update(self, found: list[tuple[PreparedListing, _CurrentEntry]]) -> None:
        entries = [entry for it, current in found if (entry := self._build_entry(it, current)) is not None]
        execute_many(self.connection, _SET_ENTRY, entries)
        execute_many(self.connection, _MARK_LISTING, ((it.listing.id,) for it, _ in found))
        self.done += len(found)

    def _build_entry(self, prepared: PreparedListing, before: _CurrentEntry) -> Row | None:
        """Return the listing's new entry, or None if it has none and needs none. Collects the index changes."""
        listing, serial = prepared.listing, before.serial
        state = market_entries.choose_state(listing, before.disabled_at)
        if before.state == SHOWN and serial is not None:
            self._removed.append((before.price_cents, serial))
            self._facet_counts.subtract(market_entries.list_facets(before.category, before.region))
        if serial is None and state == HIDDEN:
            return None
        if serial is None:
            serial = self._last_serial = self._last_serial + 1
        if state == SHOWN:
            self._added.append((listing.price_cents, serial, prepared.words))
            self._facet_counts.update(market_entries.list_facets(listing.category, listing.region))
        return (serial, *market_entries.build_entry_values(listing, state))
