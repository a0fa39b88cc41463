"""How the market in PostgreSQL comes to show what was written: in steps, each one transaction.

Whoever makes a step holds the row of `market_indexer`, so that serials become visible in their order. Listings are read
without a lock: one that is written meanwhile has a version that is not the one which was taken in, and comes again.
"""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from listings.contract.listings import IndexStep
from listings.domain.model import Listing, bucket_of
from listings.store import market_entries
from listings.store.mapping import Row
from listings.store.market_entries import HIDDEN, SHOWN, WITHHELD
from listings.store.postgres.pool import Rows, Session
from listings.store.sql import LISTING_COLUMNS

_LEASE = 3  # seconds
_MAY_INDEX = "holder = $1 OR until <= $2 OR until > $2 + 6"
_IS_OTHERS = f"SELECT NOT ({_MAY_INDEX}) FROM market_indexer WHERE id = 1"
_BE_INDEXER = f"""
INSERT INTO market_indexer AS mine (id, holder, until) VALUES (1, $1, $2 + {_LEASE})
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE mine.holder = $1 OR mine.until <= $2 OR mine.until > $2 + 6
RETURNING id
"""
_UNDONE = "marketed <> CAST(disabled_at IS NULL AS integer)"
HAS_WORK = f"""
SELECT EXISTS (SELECT FROM listings WHERE market_version <> version)
    OR EXISTS (SELECT FROM accounts WHERE {_UNDONE})
"""
NEXT_ACCOUNT = f"SELECT id, disabled_at IS NULL FROM accounts WHERE {_UNDONE} ORDER BY id LIMIT 1"
_LISTINGS_OF_ACCOUNT = """
SELECT listing_id FROM market WHERE account_id = $1 AND state = $2 ORDER BY listing_id LIMIT $3
"""
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_UNMARK_ACCOUNT = "UPDATE accounts SET marketed = 2 WHERE id = $1 AND marketed = 1"
_SOME = 2
_AS_FAR_AS_THEY_FIT = f"""
SELECT {LISTING_COLUMNS} FROM (
    SELECT {LISTING_COLUMNS}, sum(octet_length(title) + octet_length(content)) OVER (
        ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS octets_before
    FROM ({{}}) AS next
) AS measured
WHERE COALESCE(octets_before, 0) < $1
ORDER BY id
"""
NEXT_LISTINGS = _AS_FAR_AS_THEY_FIT.format(
    f"SELECT {LISTING_COLUMNS} FROM listings WHERE market_version <> version ORDER BY id LIMIT $2"
)
GET_LISTINGS = _AS_FAR_AS_THEY_FIT.format(
    f"SELECT {LISTING_COLUMNS} FROM listings WHERE bucket = $2 AND id = ANY($3) ORDER BY bucket, id"
)
_MARK_LISTING = "UPDATE listings SET market_version = $3 WHERE bucket = $1 AND id = $2"
_GET_DISABLED = "SELECT id FROM accounts WHERE id = ANY($1) AND disabled_at IS NOT NULL"
GET_ENTRIES = "SELECT listing_id, serial, state, category, region FROM market WHERE listing_id = ANY($1)"
_LAST_SERIAL = "SELECT COALESCE(max(serial), 0) FROM market"
_SET_ENTRY = """
INSERT INTO market (
    serial, bucket, listing_id, account_id, state, title, type, category, image, price_cents, price_type, location,
    region, created_at, updated_at, words)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (serial) DO UPDATE SET
    state = excluded.state, title = excluded.title, type = excluded.type, category = excluded.category,
    image = excluded.image, price_cents = excluded.price_cents, price_type = excluded.price_type,
    location = excluded.location, region = excluded.region, updated_at = excluded.updated_at, words = excluded.words
"""
_COUNT_PLACE = """
INSERT INTO market_places AS it (kind, name, listings) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET listings = it.listings + excluded.listings
"""
_FORGET_PLACE = "DELETE FROM market_places WHERE kind = $1 AND name = $2 AND listings <= 0"


class _Entry(NamedTuple):
    """What the market has of a listing."""

    serial: int
    state: int
    category: str
    region: str


async def has_work(session: Session, indexer: bytes, now: float) -> Rows:
    """A row with True where a step of this indexer would find something to do."""
    others = await session.fetch(_IS_OTHERS, indexer, int(now))
    return [] if others and others[0][0] else await session.fetch(HAS_WORK)


async def step(session: Session, count: int, indexer: bytes, now: float) -> IndexStep:
    """Accounts first: what they have is hidden or shown before anything else of theirs comes in."""
    if not await session.fetch(_BE_INDEXER, indexer, int(now)):
        return IndexStep(0)
    changes = _Changes(session, count)
    while not changes.is_full:
        accounts = await session.fetch(NEXT_ACCOUNT)
        if not accounts:
            break
        await _take_account(changes, *accounts[0])
    if not changes.is_full:
        await changes.take(await session.fetch(NEXT_LISTINGS, changes.octets_left, changes.room))
    await changes.write()
    return IndexStep(changes.done, left=changes.is_full)


async def _take_account(changes: "_Changes", account_id: int, is_open: bool) -> None:  # noqa: FBT001 - as the row has it
    """Show all listings of an account that was enabled, or hide those of one that was disabled, as far as they fit."""
    state = WITHHELD if is_open else SHOWN
    rows = await changes.session.fetch(_LISTINGS_OF_ACCOUNT, account_id, state, changes.room)
    ids = [row[0] for row in rows]
    await changes.take(
        await changes.session.fetch(GET_LISTINGS, changes.octets_left, bucket_of(account_id), ids) if ids else []
    )
    await changes.session.fetch(_MARK_ACCOUNT, account_id, _SOME if changes.is_full else int(is_open))


class _Changes:
    """What a step changes; the marks on the listings come last, in the order in which everybody locks them."""

    def __init__(self, session: Session, count: int) -> None:
        self.session = session
        self.done = 0
        self._count = count
        self._octets = 0
        self._marks: list[tuple[int, int, int]] = []
        self._withheld: set[int] = set()
        self._places: Counter[tuple[str, str]] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.done >= self._count or self._octets >= market_entries.LONGEST_STEP

    @property
    def room(self) -> int:
        """How many more listings there may be."""
        return self._count - self.done

    @property
    def octets_left(self) -> int:
        """How long their texts may be, but for the last one's."""
        return market_entries.LONGEST_STEP - self._octets

    async def take(self, rows: Rows) -> None:
        """Let the market show listings as they are now."""
        listings = [Listing(*row) for row in rows]
        if not listings:
            return
        known = await self.session.fetch(GET_ENTRIES, [listing.id for listing in listings])
        before = {row[0]: _Entry(*row[1:]) for row in known}
        owners = list({listing.account_id for listing in listings})
        disabled = {row[0] for row in await self.session.fetch(_GET_DISABLED, owners)}
        serial = (await self.session.fetch_one(_LAST_SERIAL))[0]
        values: list[Row] = []
        for listing in listings:
            state = market_entries.state_of(listing, 0 if listing.account_id in disabled else None)
            entry = before.get(listing.id)
            if entry is None and state != HIDDEN:
                serial += 1
                entry = _Entry(serial, HIDDEN, "", "")
            self._note(listing, state, entry)
            if entry is not None:
                values.append((entry.serial, listing, state))
        await self.session.run_many(_SET_ENTRY, await asyncio.to_thread(_entries, values))

    async def write(self) -> None:
        """What is left to be written at the end."""
        for account_id in sorted(self._withheld):
            await self.session.fetch(_UNMARK_ACCOUNT, account_id)
        for place, more in sorted(self._places.items()):
            if more:
                await self.session.fetch(_COUNT_PLACE, *place, more)
            if more < 0:
                await self.session.fetch(_FORGET_PLACE, *place)
        await self.session.run_many(_MARK_LISTING, sorted(self._marks))

    def _note(self, listing: Listing, state: int, entry: _Entry | None) -> None:
        self.done += 1
        self._octets += len(listing.title.encode()) + len(listing.content.encode())
        self._marks.append((bucket_of(listing.id), listing.id, listing.version))
        if state == WITHHELD:
            self._withheld.add(listing.account_id)
        if entry is not None and entry.state == SHOWN:
            self._places.subtract(market_entries.places_of(entry.category, entry.region))
        if state == SHOWN:
            self._places.update(market_entries.places_of(listing.category, listing.region))


def _entries(values: list[Any]) -> list[Row]:
    """The rows of the market: taking texts apart takes time, in which the event loop has others to serve."""
    return [
        (
            serial,
            *market_entries.entry_values(listing, state),
            market_entries.tokenize(listing) if state == SHOWN else [],
        )
        for serial, listing, state in values
    ]
