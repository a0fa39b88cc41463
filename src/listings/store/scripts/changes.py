"""Write change sets in the transactions that they describe (decision G45)."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import astuple

from listings.domain.account_limits import CHANGE_BYTES, count_bytes
from listings.domain.history import Actor, EventKind, choose_kind
from listings.domain.imports import ImportKey
from listings.domain.model import BUCKETS, Listing, ListingChange, Value
from listings.store import change_groups, change_sql, member_sql, sql
from listings.store.mapping import Partition
from listings.store.query import Row
from listings.store.scripts.script import Transaction

encode = msgspec.json.Encoder().encode

MARKER_INTERVAL = 256
"""Every change set whose `edit_revision` is a multiple of this has a row, so that a reader knows where to start."""

_MAX_PENDING_CHARACTERS = 1024 * 1024  # that the changes of one transaction may have in memory
_PAIR = 2
_MIN_CUT_CHARACTERS = 32  # that a new value must share with the old one, to be stored as a difference
MAX_AHEAD_SECONDS = 60
"""A stored time that is further ahead comes from a wrong clock."""


def list_names(changes: ListingChange) -> list[str]:
    """Return the names of the attributes that an edit changes, without the time that every edit sets."""
    return sorted(changes.keys() - {"updated_at"})


def encode_values(before: Listing, changes: ListingChange) -> tuple[str, str]:
    """Return the changed columns, separated by commas, and the old and the new value of each, as JSON.

    The new value of a long text is stored as what differs: see `join_value`.
    """
    names = list_names(changes)
    values = [_cut_value(getattr(before, name), changes[name]) for name in names]
    return ",".join(names), encode(values).decode()


def _cut_value(old: Value, new: Value) -> tuple[Value, ...]:
    # Texts with a long common start and end become what `join_value` takes.
    if not isinstance(old, str) or not isinstance(new, str) or len(new) < _MIN_CUT_CHARACTERS:
        return old, new
    start = _count_common(old, new)
    end = _count_common(old[start:][::-1], new[start:][::-1])
    if start + end < _MIN_CUT_CHARACTERS:
        return old, new
    return old, start, end, new[start : len(new) - end]


def _count_common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def join_value(old: Value, *new: Any) -> tuple[Value, Value]:  # noqa: ANN401 - the value, or three of these types
    """Return the old and the new value, which is given as it is, or as what differs.

    That is the numbers of characters at the start and the end of the old text that it has, too, and those in between.
    """
    if len(new) == 1 or not isinstance(old, str):
        return old, new[0]
    start, end, middle = new
    return old, f"{old[:start]}{middle}{old[len(old) - end :]}"


async def settle_moment(tx: Transaction, partition: Partition, now: int, last: int) -> int:
    """Return the time of a change set that is written now. It is not before the account's last one.

    If that is more than a minute ahead, a wrong clock has written it: first, times that are ahead are set to now.
    `last` is the account's `edited_at`.
    """
    if last <= now + MAX_AHEAD_SECONDS:
        return max(now, last)
    await tx.fetch(change_sql.SET_BACK_CHANGES, (*partition, now))
    await tx.fetch(change_sql.SET_EDITED_AT, (*partition, now))
    return now


async def add_marker(
    tx: Transaction, partition: Partition, edit_revision: int, actor: Actor, listing_id: int, edited_at: int
) -> None:
    """Store a row for a single create. `edited_at`: that of the account."""
    serial, moment = listing_id // BUCKETS, max(actor.moment, edited_at)
    detail = encode_created({serial: None})
    row = (*partition, edit_revision, 0, 0, moment, actor.key_id, "created", None, "", detail, serial, None)
    await tx.fetch(change_sql.ADD_CHANGE, row)
    await tx.fetch(change_sql.SET_EDITED_AT, (*partition, moment))


def encode_created(created: Mapping[int, str | None]) -> str:
    """Return created listings as JSON: pairs of a first serial and a count.

    `created` has their serials, each with the time of its last update if that is not the time of its creation. This
    time is the third element of a run of one.
    """
    runs: list[list[Any]] = []
    for serial, updated_at in created.items():
        if updated_at is not None:
            runs.append([serial, 1, updated_at])
        elif runs and len(runs[-1]) == _PAIR and serial == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([serial, 1])
    return encode(runs).decode()


def decode_ids(detail: str, bucket: int) -> Iterator[int]:
    """Yield the ids of the created listings."""
    for first, count, *_ in msgspec.json.decode(detail):
        yield from (serial * BUCKETS + bucket for serial in range(first, first + count))


def find_updated_at(detail: str, listing_id: int) -> str | None:
    """Return the time of the last update that a created listing had, if that is not the time of its creation."""
    return {run[0]: run[2] for run in msgspec.json.decode(detail) if len(run) > _PAIR}.get(listing_id // BUCKETS)


class ChangeSet:
    """Collects the changes of a transaction that may change several listings. Without an actor it stores none."""

    def __init__(
        self,
        partition: Partition,
        actor: Actor | None,
        import_key: ImportKey | None = None,
        revert_id: int | None = None,
    ) -> None:
        """`import_key`, `revert_id`: of the import or the revert that the transaction belongs to."""
        self._partition = partition
        self._actor = actor
        self._import_key = import_key
        self._group_id = revert_id
        self._kind: EventKind = "import" if import_key else "reverted" if revert_id is not None else "batch"
        self._created: dict[int, str | None] = {}  # as in `encode_created`
        self._pending: list[tuple[tuple[int, str, str], int | None]] = []
        self._pending_characters = 0
        self._number = 0
        self._bytes = 0
        self._last_moment = 0
        self._settled: int | None = None  # the time of the change set
        self.edit_revision: int | None = None
        self.ids_by_kind: dict[str, list[int]] = {"created": []}  # of the edited listings, for the audit event

    @property
    def step(self) -> int:
        """1 if the next edit raises the account's edit revision, which each transaction raises once, otherwise 0."""
        return int(self._actor is not None and self.edit_revision is None)

    def begin(self, edit_revision: int, edited_at: int) -> None:
        """Set the edit revision, if the change set is stored. `edited_at`: that of the account."""
        if self._actor is not None:
            self.edit_revision, self._last_moment = edit_revision, edited_at

    @property
    def is_empty(self) -> bool:
        """Whether nothing was changed yet."""
        return not (self._created or self._pending or self._number)

    def add_created(self, listing_id: int, updated_at: str | None = None) -> None:
        """Add a new listing. `updated_at`: the time of its last update, if that is not the time of its creation."""
        self._created[listing_id // BUCKETS] = updated_at
        self.ids_by_kind["created"].append(listing_id)

    async def add_changed(
        self, tx: Transaction, before: Listing, changes: ListingChange, base_version: int | None = None
    ) -> None:
        """Add a change of a listing, after the edit revision is known. `base_version`: that of an import's row."""
        self.ids_by_kind.setdefault(choose_kind(changes), []).append(before.id)
        if self._actor is None:
            return
        names, detail = encode_values(before, changes)
        self._pending.append(((before.id, names, detail), base_version))
        self._pending_characters += len(detail)
        if self._pending_characters >= _MAX_PENDING_CHARACTERS:
            await self._write_pending(tx, self._actor)

    async def write(self, tx: Transaction) -> None:
        """Store the change set, unless nothing was changed."""
        if self._actor is None or self.edit_revision is None or self.is_empty:
            return
        moment = await self._write_pending(tx, self._actor)
        last_serial = await tx.find(int, sql.GET_LAST_SERIAL, self._partition[:1]) or 0
        row = self._build_row(self._actor, 0, 0, "", encode_created(self._created), last_serial)
        await tx.fetch(change_sql.ADD_CHANGE, (*row, None))
        await tx.fetch(change_sql.FINISH_CHANGE_SET, (*self._partition, self._bytes, moment))
        if self._group_id is not None:
            actor, changes = self._actor._replace(moment=moment), self._number + len(self._created)
            await change_groups.add(tx, self._partition, self._group_id, self._kind, actor, self.edit_revision, changes)

    async def _write_pending(self, tx: Transaction, actor: Actor) -> int:
        # Returns the time of the change set.
        if self._settled is None:
            self._settled = await settle_moment(tx, self._partition, actor.moment, self._last_moment)
        if self._group_id is None and self.edit_revision is not None:
            if self._import_key is not None:
                self._group_id = await _find_import_id(tx, self._import_key, self.edit_revision)
            elif actor.group is not None:
                self._group_id = await change_groups.find_id(tx, self._partition, actor.group, self.edit_revision)
        pending, self._pending, self._pending_characters = self._pending, [], 0
        if pending:
            first, self._number = self._number + 1, self._number + len(pending)
            rows = [
                (*self._build_row(actor, number, *change), base_version)
                for number, (change, base_version) in enumerate(pending, first)
            ]
            await tx.fetch_many(change_sql.ADD_CHANGE, rows)
        return self._settled

    def _build_row(
        self, actor: Actor, number: int, listing_id: int, fields: str, detail: str, last_serial: int = 0
    ) -> Row:
        if self.edit_revision is None:
            raise AssertionError("A change was added before the edit revision was known")
        self._bytes += measure_change(detail)
        who = (self._settled, actor.key_id, self._kind, self._group_id)
        return (*self._partition, self.edit_revision, number, listing_id, *who, fields, detail, last_serial)


async def _find_import_id(tx: Transaction, key: ImportKey, edit_revision: int) -> int:
    # Which is that of its first change set.
    ((_, import_id),) = await tx.fetch(member_sql.GET_IMPORT_REVISION, astuple(key))
    if import_id is None:
        await tx.fetch(change_sql.SET_IMPORT_EDIT_REVISION, (*astuple(key), edit_revision))
    return edit_revision if import_id is None else import_id


def measure_change(detail: str) -> int:
    """Return the bytes that are counted for a change."""
    return CHANGE_BYTES + count_bytes(detail)
