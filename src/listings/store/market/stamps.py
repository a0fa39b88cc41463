"""Number changed listings in small transactions, so that each machine's index can follow them.

Each transaction locks the row of `market_indexer`, so the order of the sequences is the order of the commits. A number
from the transaction that writes a listing would not be: that of a slow one becomes visible after higher ones.
Listings are read without a lock. If one is changed in the meantime, its version differs from the stamped one.
"""

from collections.abc import Sequence
from typing import TypeAlias

from listings.domain.market import IndexResult
from listings.domain.model import bucket_of
from listings.domain.timestamps import DAY_SECONDS, format_timestamp
from listings.store.query import Command, Query
from listings.store.scripts.script import Transaction
from listings.store.sql import build_arrays

HIDDEN, SHOWN, WITHHELD, REMOVED = 0, 1, 2, 3
"""States of a listing. A withheld one is active, but its account is disabled. The row of a removed one is deleted."""

_LEASE_SECONDS = 3
_MAX_LEASE_SECONDS = 6  # a lease that ends later than this was stored with a wrong clock
_TURN = 100  # listings of an account, until it is the turn of the next one
_TOMBSTONE_SECONDS = 7 * DAY_SECONDS
_MAX_PURGED = 1_000
_PARTLY_MARKETED = 2  # `marketed` of an account: 0 if its listings are hidden, 1 if shown, 2 if some of each

_LeaseRow: TypeAlias = tuple[int, int, str, int]
_DirtyRow: TypeAlias = tuple[int, int, bool, str]

IS_LEASED_BY_OTHER = Query[tuple[bool]](f"""
SELECT NOT (holder = $1 OR until <= $2 OR until > $2 + {_MAX_LEASE_SECONDS}) FROM market_indexer WHERE id = 1
""")
_ACQUIRE_LEASE = Query[_LeaseRow](f"""
UPDATE market_indexer SET holder = $1, until = $2 + {_LEASE_SECONDS}
WHERE id = 1 AND (holder = $1 OR until <= $2 OR until > $2 + {_MAX_LEASE_SECONDS})
RETURNING sequence, serial, listed_at, turn
""")
_RELEASE = Command("UPDATE market_indexer SET sequence = $1, serial = $2, listed_at = $3, turn = $4 WHERE id = 1")
LOCK_SEQUENCE = Query[tuple[int]]("UPDATE market_indexer SET sequence = sequence + $1 WHERE id = 1 RETURNING sequence")
NEXT_DIRTY = Query[tuple[int, int]]("""
SELECT account_id, id FROM listings /*INDEXED BY listings_unmarketed*/
WHERE market_version <> version AND account_id > $1 ORDER BY account_id, id LIMIT 1
""")
DIRTY_LISTINGS = Query[_DirtyRow]("""
SELECT id, version, is_active AND deleted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM takedowns WHERE takedowns.listing_id = listings.id), created_at
FROM listings /*INDEXED BY listings_unmarketed*/
WHERE market_version <> version AND account_id = $1 ORDER BY account_id, id LIMIT $2
""")
GET_STATE = Query[tuple[int | None, int | None]]("SELECT disabled_at, test_of FROM accounts WHERE id = $1")
LISTINGS_OF_ACCOUNT = Query[tuple[int]]("""
SELECT serial FROM market_listings /*INDEXED BY market_listings_account*/ WHERE account_id = $1 AND state = $2
ORDER BY listing_id LIMIT $3
""")
_MARK_ACCOUNT = Command("UPDATE accounts SET marketed = $2 WHERE id = $1")
_MARK_PARTLY = Command(f"UPDATE accounts SET marketed = {_PARTLY_MARKETED} WHERE id = $1 AND marketed = 1")
_FIND_SERIAL = Query[tuple[int, int]](
    "SELECT listing_id, serial FROM market_listings WHERE account_id = $1 AND listing_id = $2"
)
_FIND_SERIALS = Query[tuple[int, int]](
    "SELECT listing_id, serial FROM market_listings WHERE account_id = $1 AND listing_id = ANY($2)"
)
_ADD = Command("""
INSERT INTO market_listings (account_id, listing_id, serial, sequence, state, stamped_at, listed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
""")
_ADD_ALL = Command(f"""
INSERT INTO market_listings (account_id, listing_id, serial, sequence, state, stamped_at, listed_at)
SELECT $1, added.* FROM {build_arrays(["bigint", "bigint", "bigint", "smallint", "bigint", "text"])} AS added
""")
_SET_STATE = Command("""
UPDATE market_listings SET sequence = $3, state = $4, stamped_at = $5 WHERE account_id = $1 AND serial = $2
""")
_SET_STATES = Command(f"""
UPDATE market_listings SET sequence = new.sequence, state = new.state, stamped_at = new.moment
FROM {build_arrays(["bigint", "bigint", "smallint", "bigint"])} AS new (serial, sequence, state, moment)
WHERE account_id = $1 AND market_listings.serial = new.serial
""")
MARK = Command("UPDATE listings SET market_version = $3 WHERE bucket = $1 AND id = $2")
_MARK_ALL = Command(f"""
UPDATE listings SET market_version = marked.version FROM {build_arrays(["bigint", "bigint"])} AS marked (id, version)
WHERE bucket = $1 AND listings.id = marked.id
""")
_REMOVE = Command(f"UPDATE market_listings SET state = {REMOVED}, sequence = $2, stamped_at = $3 WHERE listing_id = $1")
_IS_STAMPED = Query[tuple[int]]("SELECT listing_id FROM market_listings WHERE listing_id = $1")
LIST_TOMBSTONES = Query[tuple[int, int]](f"""
SELECT serial, sequence FROM market_listings WHERE state = {REMOVED} AND stamped_at < $1
ORDER BY stamped_at LIMIT {_MAX_PURGED}
""")
_DELETE = Command("DELETE FROM market_listings WHERE serial = $1")
_SET_PURGED = Command("UPDATE market_indexer SET purged = $1 WHERE id = 1 AND purged < $1")


async def run_step(
    tx: Transaction, next_account: Query[tuple[int, bool]], count: int, holder: bytes, now: float
) -> IndexResult:
    """Number about `count` changes, unless another process has the lease.

    Accounts that were disabled or enabled come first, then changed listings, whose accounts take turns. `next_account`
    is the statement that finds the first such account, and whether it is enabled.
    """
    lease = await tx.fetch(_ACQUIRE_LEASE, (holder, int(now)))
    if not lease:
        return IndexResult(0)
    stamps = _Stamps(tx, lease[0], now)
    while stamps.done < count:
        accounts = await tx.fetch(next_account, (), locks=True)  # so that it is not disabled before it is marked
        if not accounts:
            break
        ((account_id, is_enabled),) = accounts
        await stamps.show_account(account_id, is_enabled, count - stamps.done)
    while stamps.done < count and await stamps.stamp_next(min(_TURN, count - stamps.done)):
        pass
    await stamps.release()
    return IndexResult(stamps.done, has_more=stamps.done >= count)


async def remove(tx: Transaction, ids: Sequence[int], now: float) -> None:
    """Turn the entries of listings whose rows are removed into tombstones. The lease's row must be locked."""
    stamped = sorted(it for (it,) in await tx.fetch_many(_IS_STAMPED, [(it,) for it in ids]))
    if stamped:
        first = await tx.get(int, LOCK_SEQUENCE, (len(stamped),)) - len(stamped) + 1
        await tx.fetch_many(_REMOVE, [(it, first + number, int(now)) for number, it in enumerate(stamped)])


async def purge(tx: Transaction, now: float) -> int:
    """Delete and count tombstones that are older than a week. Indexes that have not followed them are rebuilt."""
    await tx.fetch(LOCK_SEQUENCE, (0,))
    rows = await tx.fetch(LIST_TOMBSTONES, (int(now) - _TOMBSTONE_SECONDS,))
    if rows:
        await tx.fetch_many(_DELETE, [(serial,) for serial, _ in rows])
        await tx.fetch(_SET_PURGED, (max(sequence for _, sequence in rows),))
    return len(rows)


class _Stamps:
    def __init__(self, tx: Transaction, lease: _LeaseRow, now: float) -> None:
        self.done = 0
        self._tx = tx
        self._sequence, self._serial, self._listed_at, self._turn = lease
        self._now = int(now)

    async def release(self) -> None:
        await self._tx.fetch(_RELEASE, (self._sequence, self._serial, self._listed_at, self._turn))

    async def show_account(self, account_id: int, is_enabled: int, count: int) -> None:
        before, after = (WITHHELD, SHOWN) if is_enabled else (SHOWN, WITHHELD)
        rows = await self._tx.fetch(LISTINGS_OF_ACCOUNT, (account_id, before, count))
        await self._set_states(account_id, [(serial, after) for (serial,) in rows])
        self.done += len(rows)
        await self._tx.fetch(_MARK_ACCOUNT, (account_id, int(is_enabled) if len(rows) < count else _PARTLY_MARKETED))

    async def stamp_next(self, count: int) -> bool:
        found = await self._tx.fetch(NEXT_DIRTY, (self._turn,)) or await self._tx.fetch(NEXT_DIRTY, (-1,))
        if found:
            ((self._turn, _),) = found
            await self._stamp(self._turn, await self._tx.fetch(DIRTY_LISTINGS, (self._turn, count)))
        return bool(found)

    async def _stamp(self, account_id: int, rows: Sequence[_DirtyRow]) -> None:
        ((disabled_at, test_of),) = await self._tx.fetch(GET_STATE, (account_id,))
        visible = HIDDEN if test_of is not None else SHOWN if disabled_at is None else WITHHELD
        keys = [(account_id, it) for it, *_ in rows]
        serials = dict(await self._tx.fetch_many(_FIND_SERIAL, keys, _FIND_SERIALS))
        states = [(it, visible if is_active else HIDDEN, created_at) for it, _, is_active, created_at in rows]
        await self._set_states(account_id, [(serials[it], state) for it, state, _ in states if it in serials])
        new = [(it, state, at) for it, state, at in states if it not in serials and state != HIDDEN]
        await self._add(account_id, new)
        if visible == WITHHELD:
            await self._tx.fetch(_MARK_PARTLY, (account_id,))
        marks = [(bucket_of(account_id), it, version) for it, version, *_ in rows]
        await self._tx.fetch_many(MARK, marks, _MARK_ALL)
        self.done += len(rows)

    async def _set_states(self, account_id: int, states: Sequence[tuple[int, int]]) -> None:
        values = []
        for serial, state in states:
            self._sequence += 1
            values.append((account_id, serial, self._sequence, state, self._now))
        await self._tx.fetch_many(_SET_STATE, values, _SET_STATES)

    async def _add(self, account_id: int, listings: Sequence[tuple[int, int, str]]) -> None:
        values = []
        for listing_id, state, created_at in listings:
            self._sequence += 1
            self._serial += 1
            self._listed_at = max(self._listed_at, min(created_at, format_timestamp(self._now)))
            entry = (self._serial, self._sequence, state, self._now, self._listed_at)
            values.append((account_id, listing_id, *entry))
        await self._tx.fetch_many(_ADD, values, _ADD_ALL)
