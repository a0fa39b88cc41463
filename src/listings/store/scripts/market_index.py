"""The transaction that indexes listings for the market, a small step at a time.

Each step locks the row of `market_indexer`, so that serials become visible in their order. Listings are read without a
lock. If one is changed in the meantime, its version differs from the indexed one, and the next step indexes it again.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from listings.contract.market import IndexResult
from listings.domain import timestamps
from listings.domain.account_limits import count_text_bytes
from listings.domain.market import words as market_words
from listings.domain.market.regions import fold_region
from listings.domain.model import Listing, bucket_of
from listings.store.mapping import build_listing
from listings.store.market.entries import (
    FIRST_WITH_SPELLINGS,
    HIDDEN,
    INDEX_VERSION,
    MAX_STEP_BYTES,
    SHOWN,
    WITHHELD,
    choose_state,
    list_facets,
)
from listings.store.scripts.script import Query, QueryMany, Script
from listings.store.sql import GET_LISTING

_LEASE_SECONDS = 3
_MAX_LEASE_SECONDS = 6  # a lease that ends later than this was stored with a wrong clock
_IS_FREE = f"holder = $1 OR until <= $2 OR until > $2 + {_MAX_LEASE_SECONDS}"
IS_LEASED_BY_OTHER = f"SELECT NOT ({_IS_FREE}) FROM market_indexer WHERE id = 1"
_ACQUIRE_LEASE = f"""
INSERT INTO market_indexer AS mine (id, holder, until, version) VALUES (1, $1, $2 + {_LEASE_SECONDS}, {INDEX_VERSION})
ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE mine.holder = $1 OR mine.until <= $2 OR mine.until > $2 + {_MAX_LEASE_SECONDS}
RETURNING version, reindexed
"""
LISTINGS_OF_ACCOUNT = """
SELECT listing_id FROM market /*INDEXED BY market_account*/ WHERE account_id = $1 AND state = $2
ORDER BY listing_id LIMIT $3
"""
_MARK_ACCOUNT = "UPDATE accounts SET marketed = $2 WHERE id = $1"
_PARTLY_MARKETED = 2  # `marketed` of an account: 0 if its listings are hidden, 1 if shown, 2 if some of each
_MARK_PARTLY = f"UPDATE accounts SET marketed = {_PARTLY_MARKETED} WHERE id = $1 AND marketed = 1"
MARK_LISTING = "UPDATE listings SET market_version = $3 WHERE bucket = $1 AND id = $2"
_GET_DISABLED = "SELECT id, disabled_at FROM accounts WHERE id = $1 AND disabled_at IS NOT NULL"
GET_ENTRY = """
SELECT listing_id, serial, state, price_cents, title, category, location, region, created_at, version FROM market
WHERE listing_id = $1
"""
LAST_ENTRY = "SELECT serial, created_at FROM market ORDER BY serial DESC LIMIT 1"
NEXT_ENTRIES = "SELECT listing_id, serial FROM market WHERE serial > $1 ORDER BY serial LIMIT $2"
_SET_REINDEXED = "UPDATE market_indexer SET version = $1, reindexed = $2 WHERE id = 1"
_COUNT_FACET = """
INSERT INTO market_places AS it (kind, name, listings) VALUES ($1, $2, $3)
ON CONFLICT (kind, name) DO UPDATE SET listings = it.listings + excluded.listings
"""
_ENTRY_COLUMNS = (
    *("serial", "bucket", "listing_id", "account_id", "state", "title", "type", "category", "image", "price_cents"),
    *("price_type", "location", "region", "created_at", "updated_at", "version"),
)
_FIXED_COLUMNS = {"serial", "bucket", "listing_id", "account_id", "created_at"}
_DELETE_FACET = "DELETE FROM market_places WHERE kind = $1 AND name = $2 AND listings <= 0"
_COUNT_SPELLING = """
INSERT INTO market_spellings AS it (word, skeleton, listings) VALUES ($1, $2, $3)
ON CONFLICT (word) DO UPDATE SET listings = it.listings + excluded.listings
"""
_DELETE_SPELLING = "DELETE FROM market_spellings WHERE word = $1 AND listings <= 0"


class Entry(NamedTuple):
    """The current market entry of a listing."""

    serial: int
    state: int
    price_cents: int
    title: str
    category: str
    location: str
    region: str
    listed_at: str
    version: int


class _Place(NamedTuple):
    """The place of an entry in the order of the market."""

    serial: int
    listed_at: str


class EntryChange(NamedTuple):
    """The new market entry of a listing, and the current one if there is any."""

    serial: int
    listing: Listing
    state: int
    listed_at: str
    before: Entry | None


class MarketEngine(Protocol):
    """Reads the listings of one step, and writes their entries and words, each in the engine's own way."""

    next_account: str
    """Statement that finds the first account whose listings must be shown or hidden, and whether it is enabled."""

    def read_outdated(self, count: int, max_bytes: int) -> Script[list[Listing]]:
        """Return the next listings whose current version is not in the market, limited like `read_listings`."""

    def read_listings(self, ids: Sequence[int], max_bytes: int) -> Script[list[Listing]]:
        """Return listings of one account until their texts reach `max_bytes`. The last one may exceed the limit."""

    def write_entries(self, changes: Sequence[EntryChange], version: int) -> Script[None]:
        """Write entries and the terms of those that are shown. `version` is the version of the index."""

    def finish(self) -> Script[None]:
        """Write the collected rows at the end of the step."""


def run_step(engine: MarketEngine, count: int, indexer: bytes, now: float) -> Script[IndexResult]:
    """Index at most `count` listings.

    Accounts that were disabled or enabled come first, so that their listings are hidden or shown before new ones.
    Entries with terms of an earlier version come last.
    """
    lease = yield Query(_ACQUIRE_LEASE, (indexer, int(now)))
    if not lease:
        return IndexResult(0)
    version, reindexed = lease[0]
    last = yield Query(LAST_ENTRY, ())
    changes = _Changes(engine, count, version, _Place(*last[0]) if last else _Place(0, ""), now)
    while not changes.is_full:
        accounts = yield Query(engine.next_account, (), locks=True)  # so that it is not disabled before it is marked
        if not accounts:
            break
        yield from changes.index_account(*accounts[0])
    room, found = changes.remaining_listings, []
    if not changes.is_full:
        found = yield from engine.read_outdated(room, changes.remaining_bytes)
    yield from changes.index(found)
    has_more = changes.is_full or len(found) == room
    if version < INDEX_VERSION:
        has_more = (yield from changes.reindex(reindexed)) or has_more
    yield from changes.write()
    return IndexResult(changes.done, has_more=has_more)


def build_set_entry(*more_columns: str) -> str:
    """Return the statement that writes an entry with its serial, `build_entry_values` and more columns."""
    columns = (*_ENTRY_COLUMNS, *more_columns)
    numbers = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    updates = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in _FIXED_COLUMNS)
    return f"INSERT INTO market ({', '.join(columns)}) VALUES ({numbers}) ON CONFLICT (serial) DO UPDATE SET {updates}"


def read_in_order(ids: Sequence[int], max_bytes: int) -> Script[list[Listing]]:
    """Return listings in this order until their texts reach `max_bytes`. The last one may exceed the limit."""
    found: list[Listing] = []
    for listing_id in ids:
        if max_bytes <= 0:
            break
        rows = yield Query(GET_LISTING, (bucket_of(listing_id), listing_id))
        found.append(build_listing(rows[0]))
        max_bytes -= count_text_bytes(found[-1])
    return found


class _Changes:
    """The changes of a step. Listings are marked last, in the order in which all transactions lock them."""

    def __init__(self, engine: MarketEngine, count: int, version: int, last: _Place, now: float) -> None:
        self.done = 0
        self._engine = engine
        self._count = count
        self._bytes = 0
        self._version = version
        self._last, self._now = last, timestamps.format_timestamp(now)
        self._versions: dict[int, int] = {}  # of the indexed listings by id
        self._withheld: set[int] = set()
        self._facets: Counter[tuple[str, str]] = Counter()
        self._spellings: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether the step can't index any more listings."""
        return self.done >= self._count or self._bytes >= MAX_STEP_BYTES

    @property
    def remaining_listings(self) -> int:
        return self._count - self.done

    @property
    def remaining_bytes(self) -> int:
        """Bytes of text after which the step is full. The last listing may exceed the limit."""
        return MAX_STEP_BYTES - self._bytes

    def index_account(self, account_id: int, is_enabled: int) -> Script[None]:
        """Show the listings of an enabled account, or hide those of a disabled one, until the step is full."""
        state = WITHHELD if is_enabled else SHOWN
        rows = yield Query(LISTINGS_OF_ACCOUNT, (account_id, state, self.remaining_listings))
        if rows:
            ids = [row[0] for row in rows]
            yield from self.index((yield from self._engine.read_listings(ids, self.remaining_bytes)))
        yield Query(_MARK_ACCOUNT, (account_id, _PARTLY_MARKETED if self.is_full else int(is_enabled)))

    def index(self, listings: Sequence[Listing]) -> Script[None]:
        """Write the market entries of listings as they are now."""
        # A changed listing is found twice if its account changed, too.
        listings = [it for it in listings if it.id not in self._versions]
        rows = yield QueryMany(GET_ENTRY, [(listing.id,) for listing in listings])
        before = {row[0]: Entry(*row[1:]) for row in rows}
        owners = sorted({listing.account_id for listing in listings})
        disabled = dict((yield QueryMany(_GET_DISABLED, [(owner,) for owner in owners])))
        changes = [self._record(it, before.get(it.id), disabled.get(it.account_id)) for it in listings]
        yield from self._engine.write_entries([change for change in changes if change is not None], self._version)

    def reindex(self, serial: int) -> Script[bool]:
        """Write the terms of the entries after a serial again, until the step is full. Return whether more may remain.

        When no entry is left, the version of the index is set to the current one.
        """
        if self.is_full:
            return True
        rows = yield Query(NEXT_ENTRIES, (serial, self.remaining_listings))
        if not rows:
            yield Query(_SET_REINDEXED, (INDEX_VERSION, 0))
            return False
        serials = dict(rows)
        found = yield from read_in_order(list(serials), self.remaining_bytes)
        yield Query(_SET_REINDEXED, (self._version, serials[found[-1].id]))
        yield from self.index(found)
        return True

    def write(self) -> Script[None]:
        """Write the counts and the marks at the end of the step."""
        for account_id in sorted(self._withheld):
            yield Query(_MARK_PARTLY, (account_id,))
        for facet, difference in sorted(self._facets.items()):
            if difference:
                yield Query(_COUNT_FACET, (*facet, difference))
            if difference < 0:
                yield Query(_DELETE_FACET, facet)
        words = sorted((word, difference) for word, difference in self._spellings.items() if difference)
        counts = [(word, market_words.build_skeleton(word), difference) for word, difference in words]
        yield QueryMany(_COUNT_SPELLING, counts)
        yield QueryMany(_DELETE_SPELLING, [(word,) for word, difference in words if difference < 0])
        yield from self._engine.finish()
        marks = [(bucket_of(listing_id), listing_id, version) for listing_id, version in self._versions.items()]
        yield QueryMany(MARK_LISTING, sorted(marks))

    def _record(self, listing: Listing, before: Entry | None, disabled_at: int | None) -> EntryChange | None:
        """Return the listing's new entry, or None if it has none and needs none."""
        self.done += 1
        self._bytes += count_text_bytes(listing)
        self._versions[listing.id] = listing.version
        state = choose_state(listing, disabled_at)
        if state == WITHHELD:
            self._withheld.add(listing.account_id)
        self._count_words(listing, state, before)
        if before is not None:
            return EntryChange(before.serial, listing, state, before.listed_at, before)
        if state == HIDDEN:
            return None
        listed_at = max(self._last.listed_at, min(listing.created_at, self._now))
        self._last = _Place(self._last.serial + 1, listed_at)
        return EntryChange(self._last.serial, listing, state, listed_at, None)

    def _count_words(self, listing: Listing, state: int, before: Entry | None) -> None:
        """Count the facets and the spellings of a listing instead of those of its current entry."""
        if before is not None and before.state == SHOWN:
            self._facets.subtract(list_facets(before.category, before.region))
            if before.version >= FIRST_WITH_SPELLINGS:
                texts = (before.title, before.category, before.location, before.region)
                self._spellings.subtract(market_words.list_spellings(texts))
        if state == SHOWN:
            region = fold_region(listing.region)
            self._facets.update(list_facets(listing.category, region))
            texts = (listing.title, listing.category, listing.location, region)
            self._spellings.update(market_words.list_spellings(texts))
