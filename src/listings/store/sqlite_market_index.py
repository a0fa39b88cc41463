"""How the market in the SQLite file comes to show what was written: in steps, each one operation of the writer."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from apsw import Connection

from listings.contract import IndexStep
from listings.model import Listing, bucket_of
from listings.store import market, sql
from listings.store.market import HIDDEN, SHOWN, WITHHELD
from listings.store.rows import Read, Row, listing_of, write
from listings.store.sqlite_market import price_rowid

_LEASE = 3  # seconds
_GET_INDEXER = "SELECT holder, until FROM market_indexer"
_BE_INDEXER = """
INSERT INTO market_indexer (id, holder, until) VALUES (1, $1, $2)
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
"""
HAS_WORK = """
SELECT EXISTS (SELECT 1 FROM listings INDEXED BY listings_unmarketed WHERE market_version <> version)
    OR EXISTS (SELECT 1 FROM accounts INDEXED BY accounts_unmarketed WHERE marketed <> (disabled_at IS NULL))
"""
NEXT_ACCOUNT = """
SELECT id, disabled_at IS NULL FROM accounts INDEXED BY accounts_unmarketed
WHERE marketed <> (disabled_at IS NULL) ORDER BY id LIMIT 1
"""
_LISTINGS_OF_ACCOUNT = "SELECT listing_id FROM market WHERE account_id = $1 AND state = $2 ORDER BY listing_id LIMIT $3"
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_SOME = 2
NEXT_LISTINGS = """
SELECT id FROM listings INDEXED BY listings_unmarketed WHERE market_version <> version ORDER BY id LIMIT $1
"""
_MARK_LISTING = "UPDATE listings SET market_version = version WHERE bucket = $1 AND id = $2"
_GET = "SELECT disabled_at FROM accounts WHERE id = $1"
_GET_ENTRY = "SELECT serial, state, price_cents, category, region FROM market WHERE listing_id = $1"
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


class _Entry(NamedTuple):
    """What the market has of a listing."""

    serial: int
    state: int
    price_cents: int
    category: str
    region: str


def has_work(read: Read, indexer: bytes, now: float) -> bool:
    """Whether a step of this indexer would find something to do."""
    return _may_index(read(_GET_INDEXER, ()), indexer, now) and bool(read(HAS_WORK, ())[0][0])


def step(connection: Connection, count: int, indexer: bytes, now: float) -> IndexStep:
    """Accounts first: what they have is hidden or shown before anything else of theirs comes in."""
    if not _may_index(write(connection, _GET_INDEXER, ()), indexer, now):
        return IndexStep(0)
    write(connection, _BE_INDEXER, (indexer, int(now) + _LEASE))
    changes = _Changes(connection, count)
    while not changes.is_full:
        accounts = write(connection, NEXT_ACCOUNT, ())
        if not accounts:
            break
        _take_account(changes, *accounts[0])
    changes.take_all(listing_id for (listing_id,) in write(connection, NEXT_LISTINGS, (changes.room,)))
    changes.write()
    return IndexStep(changes.done, left=changes.is_full)


def _may_index(rows: list[Row], indexer: bytes, now: float) -> bool:
    return not rows or rows[0][0] == indexer or not now < rows[0][1] <= now + 2 * _LEASE


def _take_account(changes: "_Changes", account_id: int, is_open: int) -> None:
    """Show all listings of an account that was enabled, or hide those of one that was disabled, as far as they fit."""
    state = WITHHELD if is_open else SHOWN
    rows = write(changes.connection, _LISTINGS_OF_ACCOUNT, (account_id, state, changes.room))
    changes.take_all(listing_id for (listing_id,) in rows)
    write(changes.connection, _MARK_ACCOUNT, (account_id, _SOME if changes.is_full else is_open))


class _Changes:
    """What a step changes: kept back until its end, for an index of words takes its rows in ascending order best."""

    def __init__(self, connection: Connection, count: int) -> None:
        self.connection = connection
        self.done = 0
        self._count = count
        self._characters = 0
        self._last_serial = int(write(connection, _LAST_SERIAL, ())[0][0])
        self._disabled: dict[int, int | None] = {}
        self._removed: list[tuple[int, int]] = []
        self._added: list[tuple[int, int, str]] = []
        self._places: Counter[tuple[str, str]] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.done >= self._count or self._characters >= market.LONGEST_STEP

    @property
    def room(self) -> int:
        """How many more listings there may be."""
        return self._count - self.done

    def take_all(self, ids: Iterable[int]) -> None:
        """Take listings as long as there is room."""
        for listing_id in ids:
            if self.is_full:
                return
            self.take(listing_id)

    def take(self, listing_id: int) -> None:
        """Let the market show a listing as it is now."""
        place = (bucket_of(listing_id), listing_id)
        listing = listing_of(write(self.connection, sql.GET_LISTING, place)[0])
        rows = write(self.connection, _GET_ENTRY, (listing_id,))
        before = _Entry(*rows[0]) if rows else None
        state = market.state_of(listing, self._disabled_at(listing.account_id))
        if before is not None and before.state == SHOWN:
            self._remove(before)
        if before is not None or state != HIDDEN:
            self._set(listing, state, before)
        write(self.connection, _MARK_LISTING, place)
        self.done += 1
        self._characters += len(listing.title) + len(listing.content)

    def write(self) -> None:
        """Bring the indexes of words up to date."""
        for table, by_price in (("market_words", False), ("market_prices", True)):
            for rowid in sorted(price_rowid(*old) if by_price else old[1] for old in self._removed):
                write(self.connection, f"DELETE FROM {table} WHERE rowid = $1", (rowid,))
            added = ((price_rowid(price, serial) if by_price else serial, text) for price, serial, text in self._added)
            for values in sorted(added):
                write(self.connection, f"INSERT INTO {table} (rowid, words) VALUES ($1, $2)", values)
        for place, more in self._places.items():
            if more:
                write(self.connection, _COUNT_PLACE, (*place, more))
            if more < 0:
                write(self.connection, _FORGET_PLACE, place)

    def _disabled_at(self, account_id: int) -> int | None:
        if account_id not in self._disabled:
            self._disabled[account_id] = write(self.connection, _GET, (account_id,))[0][0]
        return self._disabled[account_id]

    def _remove(self, entry: _Entry) -> None:
        self._removed.append((entry.price_cents, entry.serial))
        self._places.subtract(market.places_of(entry.category, entry.region))

    def _set(self, listing: Listing, state: int, before: _Entry | None) -> None:
        if before is None:
            self._last_serial += 1
        serial = self._last_serial if before is None else before.serial
        write(self.connection, _SET_ENTRY, (serial, *market.entry_values(listing, state)))
        if state == SHOWN:
            self._added.append((listing.price_cents, serial, " ".join(market.words_of(listing))))
            self._places.update(market.places_of(listing.category, listing.region))
