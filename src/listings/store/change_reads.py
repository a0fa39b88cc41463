"""Read change sets. Every script must run in a snapshot."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from listings.contract.changes import END, ChangePage, ChangePosition, EditState, ListingChangePage
from listings.contract.listings import MAX_LIST_BYTES, ROW_BYTES
from listings.domain import timestamps
from listings.domain.changes import Change
from listings.domain.fields import FIELDS
from listings.domain.model import BUCKETS, ListingChange, Value, bucket_of
from listings.store import change_sql
from listings.store.mapping import Partition, Row, build_listing
from listings.store.scripts.changes import decode_ids
from listings.store.scripts.script import Query, QueryMany, Script

_MAX_ROWS = 1024  # measured at a time
_MAX_BUILT = 200  # changes read at a time: about 1.5 ms of the event loop on PostgreSQL
_CHANGE_BYTES = 200  # bytes that are counted for a change in addition to its values
_SET_ATTRIBUTES = tuple(field.attribute for field in FIELDS.values())

_decode_values = msgspec.json.Decoder(list[tuple[Value, Value]]).decode


class _Entry(NamedTuple):
    """A change that was found but not read yet.

    The number of a create is 0 if its change set has no row, and otherwise -n, ..., -1 in the order of creation.
    """

    edit_revision: int
    number: int
    listing_id: int
    size: int
    is_create: bool


def read_page(partition: Partition, after: ChangePosition, last: int, page_creates: str) -> Script[ChangePage]:
    """Return a page of the account's changes. `page_creates` is PAGE_CREATES as the engine runs it."""
    edit_revision, purged_revision, purged_serial = (yield Query(change_sql.GET_EDIT_STATE, partition))[0]
    is_split = after.number != END
    EditState(edit_revision, purged_revision).require_retained(after.edit_revision - is_split)
    last = min(last, edit_revision)
    rows = yield Query(change_sql.MEASURE_CHANGES, (*partition, *after, last, _MAX_ROWS))
    has_more_rows = len(rows) == _MAX_ROWS
    if has_more_rows:
        last = rows[-1][0]
    found, gaps, last = _arrange(partition[0], rows, after, last)
    creates = yield from find_single_creates(partition, gaps, purged_serial, page_creates)
    found += [_Entry(edit, 0, listing_id, size + ROW_BYTES, is_create=True) for listing_id, _, edit, size in creates]
    entries, end = _cut((yield from _measure_creates(partition, found)), last, is_complete=not has_more_rows)
    return ChangePage((yield from _read_changes(partition, entries)), end, edit_revision)


def _arrange(bucket: int, rows: Sequence[Row], after: ChangePosition, last: int) -> tuple[list[_Entry], list[int], int]:
    """Return the changes in the rows, the ids of the change sets without a row, and the id of the last one read."""
    found: list[_Entry] = []
    gaps: list[int] = []
    next_revision = after.edit_revision + 1
    for edit_revision, group in groupby(rows, lambda row: int(row[0])):
        gaps += range(next_revision, edit_revision)
        found += [entry for row in group for entry in _expand(bucket, row) if entry[:2] > after]
        next_revision = edit_revision + 1
        if len(found) + len(gaps) >= _MAX_ROWS:
            return found, gaps, edit_revision
    gaps += range(next_revision, last + 1)
    return found, gaps, max(after.edit_revision, last)


def _expand(bucket: int, row: Row) -> Iterator[_Entry]:
    """Yield the changes of a row: one of a listing, or all creates of the change set."""
    edit_revision, number, listing_id, serials, size = row
    if listing_id:
        yield _Entry(edit_revision, number, listing_id, size + _CHANGE_BYTES, is_create=False)
        return
    ids = list(decode_ids(serials, bucket))
    for index, created_id in enumerate(ids):
        yield _Entry(edit_revision, index - len(ids), created_id, 0, is_create=True)


def find_single_creates(
    partition: Partition, gaps: Sequence[int], purged_serial: int, page_creates: str
) -> Script[list[Row]]:
    """Return the listings created by the change sets `gaps`, which have no row. They are rows of `page_creates`.

    `gaps` and the result are in ascending order.
    """
    if not gaps:
        return []
    found, missing = [], set(gaps)
    start = yield Query(change_sql.FIND_START, (*partition, gaps[0] - 1))
    position = (start[0][0] if start else purged_serial) * BUCKETS + partition[0]
    while missing:
        page = yield Query(page_creates, (*partition, position, _MAX_ROWS))
        for row in page:
            _, author, edit_revision, _ = row
            if author is not None and edit_revision in missing:
                missing.remove(edit_revision)
                found.append(row)
        if missing and len(page) < _MAX_ROWS:
            raise AssertionError(f"Account {partition[1]} lacks the change sets {sorted(missing)[:10]}")
        position = page[-1][0]
    return found


def _measure_creates(partition: Partition, entries: list[_Entry]) -> Script[list[_Entry]]:
    """Return the entries in order. Creates that have no size yet are measured."""
    entries = sorted(entries)
    unmeasured = [number for number, entry in enumerate(entries) if not entry.size]
    if unmeasured:
        keys = [(partition[0], entries[number].listing_id) for number in unmeasured]
        sizes = yield QueryMany(change_sql.MEASURE_LISTING, keys)
        for number, (size,) in zip(unmeasured, sizes, strict=True):
            entries[number] = entries[number]._replace(size=size + ROW_BYTES)
    return entries


def _cut(entries: list[_Entry], last: int, *, is_complete: bool) -> tuple[list[_Entry], ChangePosition]:
    """Return the entries that fit on a page, and where it ends. `is_complete`: `entries` has all of the set `last`."""
    size = count = 0
    for entry in entries:
        size += entry.size
        if size > MAX_LIST_BYTES and count:
            break
        count += 1
    kept = entries[:count]
    split = entries[count].edit_revision if count < len(entries) else last
    if count == len(entries) and is_complete:
        return kept, ChangePosition(last)
    whole = [entry for entry in kept if entry.edit_revision < split]
    if whole or not kept:
        return whole, ChangePosition(split - 1)
    return kept, ChangePosition(split, kept[-1].number)


def _read_changes(partition: Partition, entries: Sequence[_Entry]) -> Script[list[Change]]:
    changes: list[Change] = []
    for start in range(0, len(entries), _MAX_BUILT):
        changes += yield from _read_slice(partition, entries[start : start + _MAX_BUILT])
    return changes


def _read_slice(partition: Partition, entries: Sequence[_Entry]) -> Script[list[Change]]:
    first, last = entries[0], entries[-1]
    span = (*first[:2], last.edit_revision, max(last.number, 0))
    rows = {tuple(row[:2]): row for row in (yield Query(change_sql.LIST_CHANGES, (*partition, *span)))}
    created = [(partition[0], entry.listing_id) for entry in entries if entry.is_create]
    listings = {}
    if created:
        listings = {row[0]: row for row in (yield QueryMany(change_sql.GET_CREATED, created))}
    return [
        _build_create(entry, listings[entry.listing_id], rows.get((entry.edit_revision, 0)))
        if entry.is_create
        else build_change(rows[entry.edit_revision, entry.number])
        for entry in entries
    ]


def build_change(row: Row) -> Change:
    """Return the change in a row of LIST_CHANGES."""
    *columns, fields, detail, external_id = row
    edit_revision, number, listing_id, moment, actor, kind, group_id = columns
    before, after = build_values(fields, detail)
    return Change(edit_revision, number, listing_id, moment, actor, kind, group_id, external_id, before, after)


def build_values(fields: str, detail: str) -> tuple[ListingChange, ListingChange]:
    """Return the values of the changed columns before and after the change."""
    names, values = fields.split(","), _decode_values(detail)
    before = {name: old for name, (old, _) in zip(names, values, strict=True)}
    return before, {name: new for name, (_, new) in zip(names, values, strict=True)}


def _build_create(entry: _Entry, row: Sequence[Any], described: Row | None) -> Change:
    """Return the change that created a listing. `described` is the row with number 0 of its change set, if any."""
    *columns, author = row
    listing = build_listing(columns)
    after = {name: getattr(listing, name) for name in _SET_ATTRIBUTES}
    if listing.deleted_at is not None:
        after["deleted_at"] = listing.deleted_at
    moment, kind, group_id = timestamps.parse_timestamp(listing.created_at), "created", None
    if described is not None:
        moment, author, kind, group_id = described[3:7]
    edit_revision, number, listing_id = entry[:3]
    return Change(edit_revision, number, listing_id, moment, author, kind, group_id, listing.external_id, None, after)


def read_listing_page(listing_id: int, before: int, count: int) -> Script[ListingChangePage]:
    """Return the changes of a listing in at most `count` change sets before `before`."""
    key = (bucket_of(listing_id), listing_id)
    sizes = yield Query(change_sql.MEASURE_LISTING_CHANGES, (*key, before, _MAX_ROWS))
    kept, is_complete = _cut_history(sizes, count)
    changes: list[Change] = []
    for start in range(0, len(kept), _MAX_BUILT):
        part, end = kept[start : start + _MAX_BUILT], kept[start - 1] if start else before
        rows = yield Query(change_sql.LIST_LISTING_CHANGES, (*key, end, part[-1]))
        changes += [build_change(row) for row in rows]
    creation = yield from _read_creation(key, before)
    if (is_complete and len(kept) < count) or (creation and creation[0].edit_revision in kept):
        return ListingChangePage(changes + creation, more=False)
    return ListingChangePage(changes, more=bool(creation) or not is_complete)


def _cut_history(rows: Sequence[Row], count: int) -> tuple[list[int], bool]:
    """Return the change sets that fit on a page, at most `count`, and whether there are no further rows."""
    size, kept = 0, list[int]()
    for edit_revision, group in groupby(rows, lambda row: int(row[0])):
        size += sum(row[2] + _CHANGE_BYTES for row in group)
        if kept and (size > MAX_LIST_BYTES or len(kept) == count):
            return kept, False
        kept.append(edit_revision)
    return kept, len(rows) < _MAX_ROWS


def _read_creation(key: tuple[int, int], before: int) -> Script[list[Change]]:
    """Return the change that created a listing, if its change set is stored."""
    row = (yield Query(change_sql.GET_CREATED, key))[0]
    account_id, edit_revision = (yield Query(change_sql.GET_CREATION, key))[0]
    if edit_revision is None or edit_revision >= before:
        return []
    partition = (key[0], account_id)
    purged_revision = (yield Query(change_sql.GET_EDIT_STATE, partition))[0][1]
    if edit_revision <= purged_revision:
        return []
    described = yield Query(change_sql.LIST_CHANGES, (*partition, edit_revision, 0, edit_revision, 0))
    entry = _Entry(edit_revision, 0, key[1], 0, is_create=True)
    return [_build_create(entry, row, described[0] if described else None)]
