"""How the market in the SQLite file comes to show what was written: in steps, each one operation of the writer.

Its listings are read and taken apart beforehand, on the event loop and one in each of its turns, so that neither
writes nor reads wait for that.
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
from listings.store.sqlite.market import price_rowid
from listings.store.sqlite.rows import Read, write, write_many

_LEASE, _LEAST_LEASE = 4, 3  # seconds: as which it is taken, and what must be left of it at each step
_GET_INDEXER = "SELECT holder, until FROM market_indexer"
_BE_INDEXER = """
INSERT INTO market_indexer (id, holder, until) VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
"""
NEXT_ACCOUNT = """
SELECT id, disabled_at IS NULL FROM accounts INDEXED BY accounts_unmarketed
WHERE marketed <> (disabled_at IS NULL) ORDER BY id LIMIT 1
"""
_COLUMNS = ", ".join(f"listings.{name}" for name in sql.LISTING_COLUMNS.split(", "))
_KNOWN = "accounts.disabled_at, market.serial, market.state, market.price_cents, market.category, market.region"
LISTINGS_OF_ACCOUNT = f"""
SELECT {_KNOWN}, {_COLUMNS}
FROM market INDEXED BY market_account CROSS JOIN listings ON listings.id = market.listing_id
CROSS JOIN accounts ON accounts.id = market.account_id
WHERE market.account_id = $1 AND market.state = $2 ORDER BY market.listing_id LIMIT $3
"""
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_SOME = 2
NEXT_LISTING = f"""
SELECT {sql.LISTING_COLUMNS} FROM listings INDEXED BY listings_unmarketed
WHERE market_version <> version AND id > $1 ORDER BY id LIMIT 1
"""
GET_KNOWN = f"""
SELECT listings.id, {_KNOWN} FROM listings CROSS JOIN accounts ON accounts.id = listings.account_id
LEFT JOIN market ON market.listing_id = listings.id
WHERE listings.id = $1 AND version = $2 AND market_version <> version
"""
_MARK_LISTING = "UPDATE listings SET market_version = version WHERE id = $1"
_LAST_SERIAL = "SELECT coalesce(max(serial), 0) FROM market"
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
_COUNT_PLACE = """
INSERT INTO market_places (kind, name, listings) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET listings = listings + excluded.listings
"""
_FORGET_PLACE = "DELETE FROM market_places WHERE kind = $1 AND name = $2 AND listings <= 0"


class Prepared(NamedTuple):
    """A listing as it was read, and the words that it is found by."""

    listing: Listing
    words: str

    @property
    def characters(self) -> int:
        """Of its texts."""
        return len(self.listing.title) + len(self.listing.content)


class Next(NamedTuple):
    """What comes next, whether there is more behind it, and how many seconds it took to prepare."""

    prepared: list[Prepared]
    left: bool
    seconds: float


class _Known(NamedTuple):
    """What is to be known of a listing beside itself: of its account, and what the market has of it, if anything."""

    disabled_at: int | None
    serial: int | None
    state: int | None
    price_cents: int
    category: str
    region: str


def may_index(read: Read, indexer: bytes, now: float) -> bool:
    """Whether no other indexer is at work."""
    return _is_free(read(_GET_INDEXER, ()), indexer, now)


async def read_next(read: Read, count: int) -> Next:
    """At most `count` listings that the market has not taken in as they are."""
    prepared: list[Prepared] = []
    seconds, last, characters = 0.0, -1, 0
    while len(prepared) < count and characters < market_entries.MAX_STEP_CHARACTERS:
        began = perf_counter()
        rows = read(NEXT_LISTING, (last,))
        if not rows:
            return Next(prepared, left=False, seconds=seconds)
        prepared.append(_prepare(rows[0]))
        last = prepared[-1].listing.id
        characters += prepared[-1].characters
        seconds += perf_counter() - began
        await asyncio.sleep(0)
    return Next(prepared, left=True, seconds=seconds)


def step(connection: Connection, coming: Next, count: int, indexer: bytes, now: float) -> IndexStep:
    """Accounts first: what they have is hidden or shown before anything else of theirs comes in."""
    rows = write(connection, _GET_INDEXER, ())
    if not _is_free(rows, indexer, now):
        return IndexStep(0)
    if not rows or rows[0][0] != indexer or rows[0][1] < int(now) + _LEAST_LEASE:
        write(connection, _BE_INDEXER, (indexer, int(now) + _LEASE))
    changes = _Changes(connection, count)
    while not changes.is_full:
        accounts = write(connection, NEXT_ACCOUNT, ())
        if not accounts:
            break
        _take_account(changes, *accounts[0])
    room = 0 if changes.is_full else count - changes.done
    left = changes.is_full or coming.left or len(coming.prepared) > room
    changes.take_prepared(coming.prepared[:room])
    changes.write()
    return IndexStep(changes.done, left=left)


def _prepare(row: Row) -> Prepared:
    listing = build_listing(row)
    is_shown = market_entries.choose_state(listing, None) == SHOWN
    return Prepared(listing, " ".join(market_entries.build_terms(listing)) if is_shown else "")


def _is_free(rows: list[Row], indexer: bytes, now: float) -> bool:
    return not rows or rows[0][0] == indexer or not now < rows[0][1] <= now + 2 * _LEASE


def _take_account(changes: "_Changes", account_id: int, is_open: int) -> None:
    """Show all listings of an account that was enabled, or hide those of one that was disabled, as far as they fit."""
    changes.take_account(account_id, WITHHELD if is_open else SHOWN)
    write(changes.connection, _MARK_ACCOUNT, (account_id, _SOME if changes.is_full else is_open))


class _Changes:
    """What a step changes of the words is kept back until its end: their indexes take rows in ascending order best."""

    def __init__(self, connection: Connection, count: int) -> None:
        self.connection = connection
        self.done = 0
        self._count = count
        self._characters = 0
        self._last_serial = int(write(connection, _LAST_SERIAL, ())[0][0])
        self._removed: list[tuple[int, int]] = []
        self._added: list[tuple[int, int, str]] = []
        self._places: Counter[tuple[str, str]] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.done >= self._count or self._characters >= market_entries.MAX_STEP_CHARACTERS

    def take_prepared(self, prepared: Iterable[Prepared]) -> None:
        """Let the market show listings as they were prepared, but those that were edited since: they come again."""
        asked = [(it.listing.id, it.listing.version) for it in prepared]
        known = {row[0]: _Known._make(row[1:]) for row in write_many(self.connection, GET_KNOWN, asked)}
        self._take([(it, known[it.listing.id]) for it in prepared if it.listing.id in known])

    def take_account(self, account_id: int, state: int) -> None:
        """Let the market show an account's listings that it has in this state as they are now, as far as they fit."""
        values = (account_id, state, self._count - self.done)
        cursor = self.connection.execute(sql.to_sqlite(LISTINGS_OF_ACCOUNT), values)
        found: list[tuple[Prepared, _Known]] = []
        for row in cursor:
            prepared = _prepare(row[len(_Known._fields) :])
            found.append((prepared, _Known(*row[: len(_Known._fields)])))
            self._characters += prepared.characters
            if self._characters >= market_entries.MAX_STEP_CHARACTERS:
                break
        cursor.close()  # before its tables are written to
        self._take(found)

    def write(self) -> None:
        """Bring the indexes of words up to date."""
        for table, by_price in (("market_words", False), ("market_prices", True)):
            removed = sorted(price_rowid(*old) if by_price else old[1] for old in self._removed)
            write_many(self.connection, f"DELETE FROM {table} WHERE rowid = $1", ((rowid,) for rowid in removed))
            added = ((price_rowid(price, serial) if by_price else serial, text) for price, serial, text in self._added)
            write_many(self.connection, f"INSERT INTO {table} (rowid, words) VALUES ($1, $2)", sorted(added))
        for place, more in self._places.items():
            if more:
                write(self.connection, _COUNT_PLACE, (*place, more))
            if more < 0:
                write(self.connection, _FORGET_PLACE, place)

    def _take(self, found: list[tuple[Prepared, _Known]]) -> None:
        entries = [entry for it, known in found if (entry := self._entry_of(it, known)) is not None]
        write_many(self.connection, _SET_ENTRY, entries)
        write_many(self.connection, _MARK_LISTING, ((it.listing.id,) for it, _ in found))
        self.done += len(found)

    def _entry_of(self, prepared: Prepared, before: _Known) -> Row | None:
        """What the market is to have of a listing from now on; None where it has nothing of it, and needs nothing."""
        listing, serial = prepared.listing, before.serial
        state = market_entries.choose_state(listing, before.disabled_at)
        if before.state == SHOWN and serial is not None:
            self._removed.append((before.price_cents, serial))
            self._places.subtract(market_entries.list_facets(before.category, before.region))
        if serial is None and state == HIDDEN:
            return None
        if serial is None:
            serial = self._last_serial = self._last_serial + 1
        if state == SHOWN:
            self._added.append((listing.price_cents, serial, prepared.words))
            self._places.update(market_entries.list_facets(listing.category, listing.region))
        return (serial, *market_entries.build_entry_values(listing, state))
