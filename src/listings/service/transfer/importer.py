"""Import the rows of a file into an account. `file_formats` reads the files.

A row is a mapping with the fields of the API, including its read-only timestamps and view count.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeGuard, TypeVar

import msgspec

from listings.contract.history import OPERATOR, Actor
from listings.contract.imports import (
    ImportBatch,
    ImportKey,
    ImportProgress,
    ImportRow,
    ImportStore,
    Position,
    RowOutcome,
)
from listings.contract.listings import ListingStore
from listings.domain import fields, timestamps
from listings.domain.account_limits import NO_GROWTH, AccountSize, measure_imported
from listings.domain.errors import Problem
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.fields import FieldError, preview
from listings.domain.model import BUCKETS, Account, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.service.listings.steps import find_changes
from listings.service.transfer.rows import COLUMNS, Row, Source

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BATCH_ROWS = 200
_ROWS_BETWEEN_PAUSES = 20  # of a dry run, so that it delays other tasks by at most about 2 ms
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_LINES = 10_000
_MAX_ID = 2**52  # JSON parsers are exact up to 2**53; the upper half is left for new ids
_MAX_VIEWS = 2**53 - 1


class TransferStore(ImportStore, ListingStore, Protocol):
    """The stores that imports and exports need."""


ImportPhase: TypeAlias = Literal["Checking", "Validating", "Importing"]


class ImportProgressListener(Protocol):
    """Receives the progress of a running import."""

    def on_resume(self, done: ImportProgress) -> None:
        """An interrupted import of the same file continues at `done.position`."""

    def on_progress(self, phase: ImportPhase, position: Position) -> None:
        """The file was read up to `position`."""

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        """A row was processed. The outcome is a Problem if it was rejected."""

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        """A row has unknown columns. Called for each such row."""


class ImportOptions(NamedTuple):
    """Options of an import."""

    new_ids: bool = False  # ignore the ids, but not the external ids
    dry_run: bool = False  # validate the rows that would be imported, write nothing
    again: bool = False  # import from the start, even if the file was imported before
    actor: int = OPERATOR  # the `Actor.key_id` of the audit events


class _IdSet:
    """A bit set for mostly consecutive ids of one bucket. A `set` of a million ids would take 100 MB."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, number: int) -> None:
        block, bit = divmod(number // BUCKETS, 256)
        self._bits[block] = self._bits.get(block, 0) | 1 << bit

    def __contains__(self, number: int) -> bool:
        block, bit = divmod(number // BUCKETS, 256)
        return bool(self._bits.get(block, 0) >> bit & 1)


@dataclass
class Import:
    """One import of a file into an account."""

    store: TransferStore
    clock: Callable[[], float]
    account: Account
    source: Source
    listener: ImportProgressListener
    options: ImportOptions
    created_ids: _IdSet = field(default_factory=_IdSet)  # by earlier rows of a dry run
    created_external_ids: set[int] = field(default_factory=set)  # hashes, to save memory
    size: AccountSize = NO_GROWTH  # of the account after the earlier rows of a dry run

    async def run(self) -> ImportProgress:
        """Import the remaining rows of the file. Return the counts of all its rows, including earlier runs.

        Raises Problem: already_imported (unless `again`), import_conflict, invalid_request (not a valid file),
        account_disabled (the account is erased).
        """
        key = await build_import_key(self.account, self.source, new_ids=self.options.new_ids)
        done = await self._begin(key)
        if self.options.dry_run:
            self.size = await self._measure_account()
        for rows in _split_into_batches(self.source.rows(done.position), done.position):
            done = await self._import(key, done, rows)
            self.listener.on_progress("Validating" if self.options.dry_run else "Importing", done.position)
        done = await self._advance(key, done, ImportBatch(done.position, done.position, [], self._now()), [])
        if not self.options.dry_run:
            stored = await self.store.find_import(key)
            done = msgspec.structs.replace(done, import_id=None if stored is None else stored.import_id)
            count = done.created + done.updated
            message = "Imported %d listing into account %d" if count == 1 else "Imported %d listings into account %d"
            _log.info(message, count, self.account.id)
        return done

    async def _begin(self, key: ImportKey) -> ImportProgress:
        done = await self.store.find_import(key)
        if done is not None and not self.options.again:
            if done.finished_at is not None:
                imported_at = timestamps.format_timestamp(done.finished_at)
                raise Problem("already_imported", f"This file was imported on {imported_at} UTC")
            self.listener.on_resume(done)
            return done
        if self.options.dry_run:
            return ImportProgress(started_at=self._now())
        if done is not None and done.finished_at is None:  # starting over would import its rows twice
            raise Problem("import_conflict", "An earlier import of this file was not finished: continue that one first")
        last_id = 0 if self.options.new_ids else await self._find_last_id(key.bucket)
        progress = await self.store.begin_import(key, done, self._now(), last_id)
        if progress is None:
            raise _import_conflict()
        return progress

    async def _find_last_id(self, bucket: int) -> int:
        """Return the file's highest id in the bucket, or 0. The store reserves ids up to it for rows of the file."""
        last_id = 0
        for rows in _split_into_batches(self.source.rows(Position()), Position()):
            for row in rows:
                number = row.content.get("id")
                if _is_id_in(number, bucket):
                    last_id = max(last_id, number)
            self.listener.on_progress("Checking", rows[-1].end)
            await asyncio.sleep(0)
        return last_id

    async def _import(self, key: ImportKey, done: ImportProgress, rows: list[Row]) -> ImportProgress:
        now = self.clock()
        for row in rows:
            unknown = row.content.keys() - _KNOWN_COLUMNS
            if unknown:
                self.listener.on_ignored_columns(frozenset(unknown))
        steps = [_build_import_row(row, self.account, now, new_ids=self.options.new_ids) for row in rows]
        return await self._advance(key, done, ImportBatch(done.position, rows[-1].end, steps), rows)

    async def _advance(
        self, key: ImportKey, done: ImportProgress, batch: ImportBatch, rows: list[Row]
    ) -> ImportProgress:
        if self.options.dry_run:
            outcomes: list[RowOutcome] | None = await self._dry_run_all(batch.rows)
        else:
            actor = Actor(self.options.actor, self._now())
            outcomes = await self.store.import_listings(key, batch, actor)
        if outcomes is None:
            raise _import_conflict()
        for row, outcome in zip(rows, outcomes, strict=True):
            self.listener.on_outcome(row, outcome)
        return msgspec.structs.replace(
            done,
            offset=batch.end.offset,
            line=batch.end.line,
            created=done.created + outcomes.count("created"),
            updated=done.updated + outcomes.count("updated"),
            unchanged=done.unchanged + outcomes.count("unchanged"),
            rejected=done.rejected + sum(isinstance(outcome, Problem) for outcome in outcomes),
            finished_at=batch.finished_at,
        )

    async def _dry_run_all(self, rows: Sequence[ImportRow]) -> list[RowOutcome]:
        outcomes = []
        for number, row in enumerate(rows):
            if number % _ROWS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)  # lets other tasks run
            outcomes.append(await self._dry_run(row))
        return outcomes

    async def _dry_run(self, row: ImportRow) -> RowOutcome:
        """Return the outcome that an import would have. It is approximate if an id or external id appears twice."""
        found = await self._find_listing(row)
        try:
            decision = row.decide(found)
            await self._require_free(found, decision)
            self._grow(found, decision)
        except Problem as problem:
            return problem
        if not isinstance(decision, ImportedListing):
            return "updated" if decision else "unchanged"
        if row.listing_id is not None:
            self.created_ids.add(row.listing_id)
        if row.external_id is not None:
            self.created_external_ids.add(hash(row.external_id))
        return "created"

    async def _find_listing(self, row: ImportRow) -> Listing | None:
        """Return the listing of a row, or a placeholder if an earlier row of a dry run would have created it."""
        found, was_created = None, False
        if row.listing_id is not None:
            found, was_created = await self.store.get_listing(row.listing_id), row.listing_id in self.created_ids
        elif row.external_id is not None:
            found = await self._find_holder(row.external_id)
            was_created = hash(row.external_id) in self.created_external_ids
        return _build_placeholder(row.listing_id or 0, self.account) if found is None and was_created else found

    async def _find_holder(self, external_id: str) -> Listing | None:
        return await self.store.find_by_external_id(bucket_of(self.account.id), self.account.id, external_id)

    async def _require_free(self, listing: Listing | None, decision: ImportedListing | ListingChange) -> None:
        """Raise Problem("external_id_taken") if another listing has the external id that a row takes."""
        claimed = find_claimed(listing, decision)
        holder = None if claimed is None else await self._find_holder(claimed)
        if claimed is not None and holder is not None and (listing is None or holder.id != listing.id):
            raise build_taken_problem(claimed, holder.id)

    async def _measure_account(self) -> AccountSize:
        counts = await self.store.count_listings(bucket_of(self.account.id), self.account.id)
        return AccountSize(counts.active + counts.inactive, counts.text_bytes)

    def _grow(self, listing: Listing | None, decision: ImportedListing | ListingChange) -> None:
        """Add the growth by one row of a dry run to `size`. Raises Problem("account_full")."""
        growth = measure_imported(listing, decision)
        self.store.account_limits.require_room(self.size, growth)
        self.size = self.size.add(growth)

    def _now(self) -> int:
        return int(self.clock())


async def build_import_key(account: Account, source: Source, *, new_ids: bool) -> ImportKey:
    """Return what identifies the import of a file into an account."""
    digest = await asyncio.to_thread(source.digest)
    return ImportKey(bucket_of(account.id), account.id, digest, source.format, new_ids)


def _split_into_batches(rows: Iterator[Row], start: Position) -> Iterator[list[Row]]:
    """Yield batches of a limited number of rows, bytes and lines. Many lines may be empty."""
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        size, lines = row.end.offset - start.offset, row.end.line - start.line
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES or lines >= _BATCH_LINES:
            yield batch
            batch, start = [], row.end
    if batch:
        yield batch


def _import_conflict() -> Problem:
    return Problem("import_conflict", "Another import of this file is running: wait for it to finish")


def _build_placeholder(listing_id: int, account: Account) -> Listing:
    """Return a placeholder for the listing that an earlier row of a dry run would have created."""
    values: dict[str, Any] = msgspec.structs.asdict(NewListing(title="", content=""))
    values |= {"view_count": 0, "created_at": "", "updated_at": "", "deleted_at": None}
    return Listing(id=listing_id, account_id=account.id, version=1, **values)


# Rows

_KNOWN_COLUMNS = frozenset(COLUMNS)


def _build_import_row(row: Row, account: Account, now: float, *, new_ids: bool) -> ImportRow:
    if row.error is not None:
        return ImportRow(None, partial(_reject, Problem("invalid_request", row.error)))
    try:
        listing_id = None if new_ids else _parse_id(row.content, account)
    except Problem as problem:
        return ImportRow(None, partial(_reject, problem))

    def decide(listing: Listing | None) -> ImportedListing | ListingChange:
        if listing is None:
            return build_imported_listing(row.content, now)
        if listing.account_id != account.id:
            raise _wrong_owner(listing.id)
        return build_listing_change(row.content, listing, now)

    return ImportRow(listing_id, decide, _parse_external_id(row.content))


def _parse_external_id(content: Mapping[str, object]) -> str | None:
    """Return the external id by which to find a row's listing, or None. A row with deleted_at is found by id only.

    For an invalid external id, this returns None, and `decide` raises the error.
    """
    external_id = content.get("external_id")
    if external_id is None or content.get("deleted_at") is not None:
        return None
    try:
        return str(fields.FIELDS["external_id"].rule(external_id))
    except FieldError:
        return None


def _reject(problem: Problem, _: Listing | None) -> NoReturn:
    raise problem


def _is_id_in(number: object, bucket: int) -> TypeGuard[int]:
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and BUCKETS <= number <= _MAX_ID
        and bucket_of(number) == bucket
    )


def _parse_id(content: Mapping[str, object], account: Account) -> int | None:
    """Return the id of a row, if any. Raises Problem: invalid_request, not_owner (another account's or invalid)."""
    number = content.get("id")
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise Problem("invalid_request", f"id must be a positive integer, got {preview(number)}")
    if not _is_id_in(number, bucket_of(account.id)):
        raise _wrong_owner(number)
    return number


def _wrong_owner(number: int) -> Problem:
    return Problem(
        "not_owner",
        f"id {preview(number)} is invalid in this account: remove it, or import every row as a new listing",
    )


class _RowErrors(list[str]):
    """The errors of a row, in the order in which they were found."""

    def parse_fields(
        self, parse: Callable[[fields.Body], tuple[T, list[str]]], content: Mapping[str, object]
    ) -> T | None:
        """Parse the fields that the API accepts. Return None if they are invalid."""
        try:
            return parse({name: content[name] for name in fields.FIELDS if name in content})[0]
        except Problem as problem:
            self.append(problem.message)
            return None

    def parse_value(self, name: str, rule: Callable[[object], T], content: Mapping[str, object], default: T) -> T:
        """Parse one of the other columns. Return the default if it is absent or invalid."""
        if content.get(name) is None:
            return default
        try:
            return rule(content[name])
        except FieldError as error:
            self.append(f"{name} {error}")
            return default

    def parse_deletion(self, content: Mapping[str, object], now: str) -> int | None:
        """Parse the column deleted_at to Unix time. Return None if it is absent or invalid."""
        return self.parse_value(
            "deleted_at", lambda value: timestamps.parse_timestamp(_parse_past(value, now)), content, None
        )

    def raise_if_any(self, content: Mapping[str, object], *, is_deleted: bool) -> None:
        """Raise Problem("invalid_request"), which lists the errors, if there are any.

        It is also an error if a deleted listing is active (decision G11).
        """
        if is_deleted and content.get("is_active") is True:
            self.append("is_active must be false for a deleted listing, got true")
        if self:
            raise Problem("invalid_request", "; ".join(self))


def build_imported_listing(content: Mapping[str, object], now: float) -> ImportedListing:
    """Return the new listing that a row describes. If `created_at` or `updated_at` is absent, it is set to `now`.

    Raises Problem("invalid_request"), which lists every error.
    """
    errors = _RowErrors()
    timestamp = timestamps.format_timestamp(now)
    new = errors.parse_fields(fields.parse_new_listing, content)
    views = errors.parse_value("view_count", _parse_views, content, 0)
    created_at, updated_at = (
        errors.parse_value(name, lambda value: _parse_past(value, timestamp), content, timestamp)
        for name in ("created_at", "updated_at")
    )
    deleted_at = errors.parse_deletion(content, timestamp)
    if updated_at < created_at and not errors:
        if content.get("created_at") is not None:
            errors.append(f"updated_at must not be before created_at, which is {created_at}, got {updated_at}")
        else:
            errors.append("updated_at requires created_at, which would otherwise be now: add it")
    errors.raise_if_any(content, is_deleted=deleted_at is not None)
    assert new is not None  # noqa: S101 - otherwise there is an error
    if deleted_at is not None:
        new = msgspec.structs.replace(new, is_active=False)
    return ImportedListing(new, views, created_at, updated_at, deleted_at)


def build_listing_change(content: Mapping[str, object], listing: Listing, now: float) -> ListingChange:
    """Return the changes that a row makes to its listing. It may also delete or restore the listing.

    Raises Problem("invalid_request"), which lists every error.
    """
    errors = _RowErrors()
    timestamp = timestamps.format_timestamp(now)
    change = dict(errors.parse_fields(fields.parse_listing_change, content) or {})
    if "deleted_at" in content:
        change["deleted_at"] = errors.parse_deletion(content, timestamp)
    is_deleted = change.get("deleted_at", listing.deleted_at) is not None
    errors.raise_if_any(content, is_deleted=is_deleted)
    if is_deleted:
        change["is_active"] = False
    return find_changes(listing, change, timestamp)


def _parse_views(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_VIEWS:
        raise FieldError(f"must be an integer from 0 to {_MAX_VIEWS}, got {preview(value)}")
    return value


def _parse_past(value: object, now: str) -> str:
    """Return a timestamp unchanged. Raises FieldError if it is not one, or if it is in the future."""
    try:
        text = timestamps.format_timestamp(timestamps.parse_timestamp(value)) if isinstance(value, str) else None
    except ValueError:
        text = None
    if text is None or text != value:
        raise FieldError(f"must be a time like {now}, got {preview(value)}")
    if text > now:
        raise FieldError(f"must not be in the future, got {value}")
    return text
