"""Index listings for the public market in PostgreSQL, in small transactions.

Each transaction locks the row of `market_indexer`, so that serials become visible in their order. Listings are read
without a lock. If one is changed in the meantime, its version differs from the indexed one, and the next step indexes
it again.
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

_LEASE_SECONDS = 3
_MAY_INDEX = "holder = $1 OR until <= $2 OR until > $2 + 6"
_IS_LEASED_BY_OTHER = f"SELECT NOT ({_MAY_INDEX}) FROM market_indexer WHERE id = 1"
_ACQUIRE_LEASE = f"""
INSERT INTO market_indexer AS mine (id, holder, until) VALUES (1, $1, $2 + {_LEASE_SECONDS})
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE mine.holder = $1 OR mine.until <= $2 OR mine.until > $2 + 6
RETURNING id
"""
_PENDING = "marketed <> CAST(disabled_at IS NULL AS integer)"
HAS_WORK = f"""
SELECT EXISTS (SELECT FROM listings WHERE market_version <> version)
    OR EXISTS (SELECT FROM accounts WHERE {_PENDING})
"""
NEXT_ACCOUNT = f"SELECT id, disabled_at IS NULL FROM accounts WHERE {_PENDING} ORDER BY id LIMIT 1"
_LISTINGS_OF_ACCOUNT = """
SELECT listing_id FROM market WHERE account_id = $1 AND state = $2 ORDER BY listing_id LIMIT $3
"""
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_UNMARK_ACCOUNT = "UPDATE accounts SET marketed = 2 WHERE id = $1 AND marketed = 1"
_PARTLY_MARKETED = 2
_UP_TO_BYTES = f"""
SELECT {LISTING_COLUMNS} FROM (
    SELECT {LISTING_COLUMNS}, sum(octet_length(title) + octet_length(content)) OVER (
        ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS octets_before
    FROM ({{}}) AS next
) AS measured
WHERE COALESCE(octets_before, 0) < $1
ORDER BY id
"""
NEXT_LISTINGS = _UP_TO_BYTES.format(
    f"SELECT {LISTING_COLUMNS} FROM listings WHERE market_version <> version ORDER BY id LIMIT $2"
)
GET_LISTINGS = _UP_TO_BYTES.format(
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
_COUNT_FACET = """
INSERT INTO market_places AS it (kind, name, listings) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET listings = it.listings + excluded.listings
"""
_DELETE_FACET = "DELETE FROM market_places WHERE kind = $1 AND name = $2 AND listings <= 0"


class _Entry(NamedTuple):
    """The current market entry of a listing."""

    serial: int
    state: int
    category: str
    region: str


async def has_work(session: Session, indexer: bytes, now: float) -> Rows:
    """Return a row with True if this indexer has work to do. The row is missing if another one has the lease."""
    leased = await session.fetch(_IS_LEASED_BY_OTHER, indexer, int(now))
    return [] if leased and leased[0][0] else await session.fetch(HAS_WORK)


async def step(session: Session, count: int, indexer: bytes, now: float) -> IndexStep:
    """Index at most `count` listings.

    Accounts that were disabled or enabled come first, so that their listings are hidden or shown before new ones.
    """
    if not await session.fetch(_ACQUIRE_LEASE, indexer, int(now)):
        return IndexStep(0)
    changes = _Changes(session, count)
    while not changes.is_full:
        accounts = await session.fetch(NEXT_ACCOUNT)
        if not accounts:
            break
        await _index_account(changes, *accounts[0])
    if not changes.is_full:
        await changes.index(await session.fetch(NEXT_LISTINGS, changes.remaining_bytes, changes.remaining_listings))
    await changes.write()
    return IndexStep(changes.done, left=changes.is_full)


async def _index_account(changes: "_Changes", account_id: int, is_enabled: bool) -> None:  # noqa: FBT001 - from the row
    """Show the listings of an enabled account, or hide those of a disabled one, until the step is full."""
    state = WITHHELD if is_enabled else SHOWN
    rows = await changes.session.fetch(_LISTINGS_OF_ACCOUNT, account_id, state, changes.remaining_listings)
    ids = [row[0] for row in rows]
    await changes.index(
        await changes.session.fetch(GET_LISTINGS, changes.remaining_bytes, bucket_of(account_id), ids) if ids else []
    )
    await changes.session.fetch(_MARK_ACCOUNT, account_id, _PARTLY_MARKETED if changes.is_full else int(is_enabled))


class _Changes:
    """The changes of a step. Listings are marked last, in the order in which all transactions lock them."""

    def __init__(self, session: Session, count: int) -> None:
        self.session = session
        self.done = 0
        self._count = count
        self._bytes = 0
        self._marks: list[tuple[int, int, int]] = []
        self._withheld: set[int] = set()
        self._facets: Counter[tuple[str, str]] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether the step can't index any more listings."""
        return self.done >= self._count or self._bytes >= market_entries.MAX_STEP_CHARACTERS

    @property
    def remaining_listings(self) -> int:
        return self._count - self.done

    @property
    def remaining_bytes(self) -> int:
        """Bytes of text after which the step is full. The last listing may exceed them."""
        return market_entries.MAX_STEP_CHARACTERS - self._bytes

    async def index(self, rows: Rows) -> None:
        """Write the market entries of listings as they are now."""
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
            state = market_entries.choose_state(listing, 0 if listing.account_id in disabled else None)
            entry = before.get(listing.id)
            if entry is None and state != HIDDEN:
                serial += 1
                entry = _Entry(serial, HIDDEN, "", "")
            self._record(listing, state, entry)
            if entry is not None:
                values.append((entry.serial, listing, state))
        await self.session.execute_many(_SET_ENTRY, await asyncio.to_thread(_build_entries, values))

    async def write(self) -> None:
        """Write the counts and the marks at the end of the step."""
        for account_id in sorted(self._withheld):
            await self.session.fetch(_UNMARK_ACCOUNT, account_id)
        for facet, difference in sorted(self._facets.items()):
            if difference:
                await self.session.fetch(_COUNT_FACET, *facet, difference)
            if difference < 0:
                await self.session.fetch(_DELETE_FACET, *facet)
        await self.session.execute_many(_MARK_LISTING, sorted(self._marks))

    def _record(self, listing: Listing, state: int, entry: _Entry | None) -> None:
        self.done += 1
        self._bytes += len(listing.title.encode()) + len(listing.content.encode())
        self._marks.append((bucket_of(listing.id), listing.id, listing.version))
        if state == WITHHELD:
            self._withheld.add(listing.account_id)
        if entry is not None and entry.state == SHOWN:
            self._facets.subtract(market_entries.list_facets(entry.category, entry.region))
        if state == SHOWN:
            self._facets.update(market_entries.list_facets(listing.category, listing.region))


def _build_entries(values: list[Any]) -> list[Row]:
    """Return the market rows. Runs in a thread, because tokenizing long texts would block the event loop."""
    return [
        (
            serial,
            *market_entries.build_entry_values(listing, state),
            market_entries.build_terms(listing) if state == SHOWN else [],
        )
        for serial, listing, state in values
    ]
