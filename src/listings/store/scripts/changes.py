"""Write change sets in the transactions that they describe (decision G45)."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec
from msgspec.structs import astuple

from listings.contract.history import Actor, EventKind
from listings.contract.imports import ImportKey
from listings.domain.model import BUCKETS, Listing, ListingChange
from listings.store import change_sql, member_sql, sql
from listings.store.mapping import Partition, Row
from listings.store.reverts import sql as revert_sql
from listings.store.scripts.audit import choose_kind
from listings.store.scripts.script import Query, QueryMany, Script

encode = msgspec.json.Encoder().encode

MARKER_INTERVAL = 256
"""Every change set whose `edit_revision` is a multiple of this has a row, so that a reader knows where to start."""

_MAX_PENDING_CHARACTERS = 1024 * 1024  # of the changes of one transaction that are in memory


def list_names(changes: ListingChange) -> list[str]:
    """Return the names of the attributes that an edit changes, without the time that every edit sets."""
    return sorted(changes.keys() - {"updated_at"})


def encode_values(before: Listing, changes: ListingChange) -> tuple[str, str]:
    """Return the changed columns, separated by commas, and the old and the new value of each, as JSON."""
    names = list_names(changes)
    values = [(getattr(before, name), changes[name]) for name in names]
    return ",".join(names), encode(values).decode()


def build_marker(partition: Partition, edit_revision: int, actor: Actor, listing_id: int) -> Row:
    """Return the values of ADD_CHANGE for a single create that gets a row."""
    serial = listing_id // BUCKETS
    detail = encode_serials([serial])
    return (*partition, edit_revision, 0, 0, actor.moment, actor.key_id, "created", None, "", detail, serial)


def encode_serials(serials: Iterable[int]) -> str:
    """Return the serials of created listings as JSON: pairs of a first serial and a count."""
    runs: list[list[int]] = []
    for serial in serials:
        if runs and serial == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([serial, 1])
    return encode(runs).decode()


def decode_ids(detail: str, bucket: int) -> Iterator[int]:
    """Yield the ids of the created listings."""
    for first, count in msgspec.json.decode(detail, type=list[tuple[int, int]]):
        yield from (serial * BUCKETS + bucket for serial in range(first, first + count))


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
        self._kind = _choose_set_kind(import_key, revert_id)
        self._serials: list[int] = []
        self._pending: list[tuple[int, str, str]] = []
        self._pending_characters = 0
        self._number = 0
        self.edit_revision: int | None = None
        self.ids_by_kind: dict[str, list[int]] = {"created": []}  # of the edited listings, for the audit event

    @property
    def step(self) -> int:
        """1 if the next edit raises the account's edit revision, which each transaction raises once, otherwise 0."""
        return int(self._actor is not None and self.edit_revision is None)

    def begin(self, edit_revision: int | None) -> int | None:
        """Set the edit revision, and return it if the change set is stored."""
        if self._actor is not None:
            self.edit_revision = edit_revision
        return self.edit_revision

    @property
    def is_empty(self) -> bool:
        """Whether nothing was changed yet."""
        return not (self._serials or self._pending or self._number)

    def add_created(self, listing_id: int) -> None:
        """Add a new listing."""
        self._serials.append(listing_id // BUCKETS)
        self.ids_by_kind["created"].append(listing_id)

    def add_changed(self, before: Listing, changes: ListingChange) -> Script[None]:
        """Add a change of a listing, after the edit revision is known."""
        self.ids_by_kind.setdefault(choose_kind(changes), []).append(before.id)
        if self._actor is None:
            return
        names, detail = encode_values(before, changes)
        self._pending.append((before.id, names, detail))
        self._pending_characters += len(detail)
        if self._pending_characters >= _MAX_PENDING_CHARACTERS:
            yield from self._write_pending(self._actor)

    def write(self, *, may_be_empty: bool = False) -> Script[None]:
        """Store the change set, unless nothing was changed and it may not be empty."""
        if self._actor is None or self.edit_revision is None or (self.is_empty and not may_be_empty):
            return
        yield from self._write_pending(self._actor)
        rows = yield Query(sql.GET_LAST_SERIAL, self._partition[:1])
        row = self._build_row(self._actor, 0, 0, "", encode_serials(self._serials), int(rows[0][0]) if rows else 0)
        yield Query(change_sql.ADD_CHANGE, row)

    def _write_pending(self, actor: Actor) -> Script[None]:
        if self._import_key is not None and self._group_id is None:
            self._group_id = yield from self._find_import_id(self._import_key)
        pending, self._pending, self._pending_characters = self._pending, [], 0
        if pending:
            first, self._number = self._number + 1, self._number + len(pending)
            rows = [self._build_row(actor, number, *one) for number, one in enumerate(pending, first)]
            yield QueryMany(change_sql.ADD_CHANGE, rows)

    def _find_import_id(self, key: ImportKey) -> Script[int]:
        """Return the id of the import: the edit revision of its first change set."""
        import_id = (yield Query(member_sql.GET_IMPORT_REVISION, astuple(key)))[0][1]
        if import_id is None:
            import_id = self.edit_revision
            yield Query(change_sql.SET_IMPORT_EDIT_REVISION, (*astuple(key), import_id))
        return int(import_id)

    def _build_row(  # noqa: PLR0913, PLR0917 - the columns
        self, actor: Actor, number: int, listing_id: int, fields: str, detail: str, last_serial: int = 0
    ) -> Row:
        if self.edit_revision is None:
            raise AssertionError("A change was added before the edit revision was known")
        who = (actor.moment, actor.key_id, self._kind, self._group_id)
        return (*self._partition, self.edit_revision, number, listing_id, *who, fields, detail, last_serial)


def _choose_set_kind(import_key: ImportKey | None, revert_id: int | None) -> EventKind:
    if import_key is not None:
        return "import"
    return "batch" if revert_id is None else "reverted"


def purge(partition: Partition, oldest: int, max_sets: int) -> Script[int]:
    """Delete the account's change sets from before `oldest`, at most `max_sets`, and return how many.

    Finished reverts of that time are deleted with them.
    """
    rows = yield Query(change_sql.LIST_OLDEST_SETS, (*partition, max_sets))
    old = list(takewhile(lambda row: row[1] < oldest, rows))
    if old:
        edit_revision, _, last_serial = old[-1]
        yield Query(change_sql.DELETE_CHANGES, (*partition, edit_revision))
        yield Query(change_sql.SET_PURGED, (*partition, edit_revision, last_serial))
        for statement in (revert_sql.PURGE_REVERTS, revert_sql.PURGE_CONFLICTS):
            yield Query(statement, (*partition, edit_revision))
    else:
        yield from _delete_remains(partition, oldest)
    return len(old)


def _delete_remains(partition: Partition, oldest: int) -> Script[None]:
    """Delete the rest of a change set from before `oldest` whose first rows an interrupted erasure has deleted."""
    rows = yield Query(change_sql.GET_FIRST_CHANGE, partition)
    if rows and rows[0][1] < oldest:
        yield Query(change_sql.DELETE_CHANGES, (*partition, rows[0][0]))
