"""Import the rows of a file into an account. `file_formats` reads the files.

A row is a mapping with the fields of the API, including its read-only timestamps and view count.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import thread_time
from typing import Literal, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, NO_LIMITS, AccountLimits, AccountSize, measure_imported
from listings.domain.errors import Problem
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.faults import preview
from listings.domain.history import OPERATOR, Actor, choose_kind
from listings.domain.imports import (
    ImportBatch,
    ImportKey,
    ImportProgress,
    ImportRow,
    NoRoomToCreateError,
    Position,
    RowOutcome,
    count_outcomes,
    require_room,
)
from listings.domain.model import Account, ImportedListing, Listing, ListingChange, bucket_of
from listings.service.transfer.cells import drop_stored_cells
from listings.service.transfer.picture_names import PictureNames
from listings.service.transfer.row_changes import (
    build_imported_listing,
    build_listing_change,
    parse_exported,
    parse_external_id,
)
from listings.service.transfer.rows import COLUMNS, FieldDiff, Row, Source
from listings.service.transfer.scan import MAX_GIVEN_ID, FileScan, is_id_in
from listings.store.store import Store

_log = logging.getLogger(__name__)

_BATCH_ROWS = 200
_BATCH_BYTES = 4 * 1024 * 1024
_STEP_SECONDS = 0.001  # of work, after which other tasks run
_KNOWN_COLUMNS = frozenset((*COLUMNS, "reason"))  # of rejected rows, `reason` says why

IdChoice: TypeAlias = Literal["auto", "new", "match"]
"""Meaning of ids in a file: those of another shop (`new`), or of listings (`match`). `auto`: it must be clear."""

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

    ids: IdChoice = "match"
    overwrite: bool = False  # changes since the export of the file
    dry_run: bool = False  # validate the rows that would be imported, write nothing
    stops_when_full: bool = False  # before the first row that would create a listing in a full account
    again: bool = False  # import from the start, even if the file was imported before
    actor: int = OPERATOR  # the `Actor.key_id` of the audit events. Only the operator's rows create with given ids
    max_rows: int | None = None
    name: str = ""  # the file's
    expected_pictures: Collection[str] = ()  # file names of pictures that a dry run takes for uploaded
    pause: Callable[[float], Awaitable[object]] = lambda _: asyncio.sleep(0)  # after a step of `n` seconds


@dataclass
class Import:
    """One import of a file into an account."""

    store: Store
    clock: Callable[[], float]
    account: Account
    source: Source
    listener: ImportProgressListener
    options: ImportOptions
    origin: str  # of this database's exports
    given_up: set[int] = field(default_factory=set)  # hashes of external ids that earlier rows of a dry run gave up
    taken: dict[str, int] = field(default_factory=dict)  # listings that got their external ids back by a restore
    size: AccountSize = NO_GROWTH  # of the account after the earlier rows of a dry run
    limits: AccountLimits = NO_LIMITS  # of a dry run
    step_began: float = field(default_factory=thread_time)

    def __post_init__(self) -> None:
        self.scan = FileScan(self.account, self.origin, new_ids=self.options.ids == "new")

    async def run(self) -> ImportProgress:
        """Import the remaining rows of the file. Return the counts of all its rows, including earlier runs.

        Raises Problem: already_imported (unless `again`), import_conflict, invalid_request (not a valid file, or too
        many rows; an IdChoiceRequired), account_disabled (the account is erased).
        """
        key = await build_import_key(self.account, self.source, self.options)
        done = await self.store.find_import(key)
        self._require_new(done)
        await self._scan()
        done = await self._begin(key, done)
        if self.options.dry_run:
            partition = bucket_of(self.account.id), self.account.id
            counts = await self.store.count_listings(*partition)
            self.size = AccountSize(counts.active + counts.inactive, counts.text_bytes)
            self.limits = await self.store.get_account_limits(*partition)
        phase: ImportPhase = "Validating" if self.options.dry_run else "Importing"
        pictures = PictureNames(self.store, self.account.id, self.options.expected_pictures)
        async for rows in self._read_batches(self.source.rows(done.position), done.offset, phase):
            done = await self._import(key, done, [await pictures.replace(row) for row in rows])
            self.listener.on_progress(phase, done.position)
        done = await self._advance(key, done, ImportBatch(done.position, done.position, [], self._now()), [])
        if not self.options.dry_run:
            stored = await self.store.find_import(key)
            done = msgspec.structs.replace(done, import_id=None if stored is None else stored.import_id)
            count = done.created + done.updated
            message = "Imported %d listing into account %d" if count == 1 else "Imported %d listings into account %d"
            _log.info(message, count, self.account.id)
        return done

    def _require_new(self, done: ImportProgress | None) -> None:
        if done is None:
            return
        if not self.options.again and done.finished_at is not None:
            imported_at = timestamps.format_timestamp(done.finished_at)
            raise Problem("already_imported", f"This file was imported on {imported_at} UTC")
        if self.options.again and not self.options.dry_run and done.finished_at is None:  # rows would be imported twice
            raise Problem("import_conflict", "An earlier import of this file was not finished: continue that one first")

    async def _begin(self, key: ImportKey, done: ImportProgress | None) -> ImportProgress:
        if done is not None and not self.options.again:
            self.listener.on_resume(done)
            return done
        if self.options.dry_run:
            return ImportProgress(started_at=self._now())
        last_id = self.scan.last_id if self.options.actor == OPERATOR else 0  # accounts share the ids of their bucket
        progress = await self.store.begin_import(key, done, self._now(), last_id, self.options.name)
        if progress is None:
            raise _import_conflict()
        return progress

    async def _scan(self) -> None:
        read: Callable[[], Iterator[Row]] = getattr(self.source, "scan_rows", partial(self.source.rows, Position()))
        async for rows in self._read_batches(read(), 0, "Checking"):
            for row in rows:
                self.scan.add(row)
            self.listener.on_progress("Checking", rows[-1].end)
        self.scan.finish()
        if self.options.ids == "auto":
            self.scan.require_own_ids()

    async def _read_batches(self, rows: Iterator[Row], begin: int, phase: ImportPhase) -> AsyncIterator[list[Row]]:
        batch: list[Row] = []
        count = 0
        for row in rows:
            if row.is_gap:
                self.listener.on_progress(phase, row.end)
            else:
                batch.append(row)
                count += 1
            if self.options.max_rows is not None and count > self.options.max_rows:
                message = f"A file must have at most {self.options.max_rows:,} rows: split it into several files"
                raise Problem("invalid_request", message)
            if batch and (len(batch) >= _BATCH_ROWS or row.end.offset - begin >= _BATCH_BYTES):
                yield batch
                batch, begin = [], row.end.offset
            await self._pause()
        if batch:
            yield batch

    async def _pause(self) -> None:
        seconds = thread_time() - self.step_began
        if seconds >= _STEP_SECONDS:
            await self.options.pause(seconds)
            self.step_began = thread_time()

    async def _import(self, key: ImportKey, done: ImportProgress, rows: list[Row]) -> ImportProgress:
        now = self.clock()
        for row in rows:
            unknown = row.content.keys() - _KNOWN_COLUMNS
            if unknown:
                self.listener.on_ignored_columns(frozenset(unknown))
        steps = [self._build_row(row, now) for row in rows]
        batch = ImportBatch(done.position, rows[-1].end, steps, stops_when_full=self.options.stops_when_full)
        try:
            return await self._advance(key, done, batch, rows)
        except NoRoomToCreateError as full:
            if full.index and not self.options.dry_run:
                stored = ImportBatch(done.position, rows[full.index - 1].end, steps[: full.index])
                await self._advance(key, done, stored, rows[: full.index])
            message = f"Stopped before line {rows[full.index].line}: {full.message}, or raise its limits"
            raise Problem(full.code, f"{message}; then import the same file again, which continues there") from None

    def _build_row(self, row: Row, now: float) -> ImportRow:
        new_ids = self.options.ids == "new"
        external_id = parse_external_id(row, new_ids=new_ids)
        if row.error is not None:
            return ImportRow(None, partial(_reject, Problem("invalid_request", row.error)))
        try:
            listing_id = None if new_ids else _parse_id(row.content, self.account)
            if listing_id is not None:
                self.scan.ids.require_unique("id", listing_id)
            if external_id is not None:
                self.scan.external_ids.require_unique("external_id", external_id)
        except Problem as problem:
            return ImportRow(None, partial(_reject, problem))
        content = row.content
        if new_ids and content.get("external_id") is None and content.get("id") is not None:
            content = {**content, "external_id": str(content["id"])}
        exported = None if new_ids else parse_exported(content, self.origin)
        decide = partial(self._decide, row._replace(content=content), now, listing_id, external_id)
        return ImportRow(listing_id, decide, external_id, exported, self.options.overwrite)

    def _decide(
        self, row: Row, now: float, listing_id: int | None, external_id: str | None, listing: Listing | None
    ) -> ImportedListing | ListingChange:
        if listing is None:
            if listing_id is not None and (self.options.actor != OPERATOR or listing_id > MAX_GIVEN_ID):
                raise _wrong_owner(listing_id)
            return build_imported_listing(row.content, now, row.cell_errors)
        if listing.account_id != self.account.id:
            raise _wrong_owner(listing.id)
        if listing_id is None and listing.id in self.scan.ids:
            message = f"external_id {preview(external_id)} is that of listing {listing.id}, which has a row of its own"
            raise Problem("invalid_request", message)
        change = self._build_change(row, now, listing)
        claimed = find_claimed(listing, change)
        if claimed is not None and claimed != external_id and claimed in self.scan.external_ids:
            message = f"external_id {preview(claimed)}, which this listing gets back, is in another row"
            raise Problem("external_id_taken", message)
        return change

    def _build_change(self, row: Row, now: float, listing: Listing) -> ListingChange:
        may_restore = self.options.ids != "new" and parse_exported(row.content, self.origin) is not None

        def build(row: Row) -> ListingChange:
            return build_listing_change(row.content, listing, now, row.cell_errors, may_restore=may_restore)

        if not row.cells:
            return build(row)
        with suppress(Problem):
            if not build(row):
                return {}
        return build(drop_stored_cells(row, listing))  # a stored value that a spreadsheet has reformatted is unchanged

    async def _advance(
        self, key: ImportKey, done: ImportProgress, batch: ImportBatch, rows: list[Row]
    ) -> ImportProgress:
        outcomes: list[RowOutcome] | None
        if self.options.dry_run:
            planned = [await self._dry_run(row) for row in batch.rows]
            rows = [row._replace(diff=diff) for row, (diff, _) in zip(rows, planned, strict=True)]
            outcomes = [outcome for _, outcome in planned]
        else:
            outcomes = await self.store.import_listings(key, batch, Actor(self.options.actor, self._now()))
        if outcomes is None:
            raise _import_conflict()
        for index, (row, outcome) in enumerate(zip(rows, outcomes, strict=True)):
            batch.require_room(index, outcome)
            self.listener.on_outcome(row, outcome)
        counts = {name: getattr(done, name) + count for name, count in count_outcomes(outcomes).items()}
        return msgspec.structs.replace(
            done, offset=batch.end.offset, line=batch.end.line, finished_at=batch.finished_at, **counts
        )

    async def _dry_run(self, row: ImportRow) -> tuple[FieldDiff, RowOutcome]:
        await self._pause()
        try:
            found = await self._find_listing(row)
            decision = row.decide(found)
            if found is not None and decision and not isinstance(decision, ImportedListing):
                count = row.count_edits(found)
                row.check(found, decision, await self.store.list_edits(found.id, count) if count else [])
            claimed = find_claimed(found, decision)
            holder = None if claimed is None else await self._find_holder(claimed)
            if claimed is not None and holder is not None and (found is None or holder.id != found.id):
                raise build_taken_problem(claimed, holder.id)
            growth = measure_imported(found, decision)
            require_room(self.limits, self.size, growth, decision)
            self.size = self.size.add(growth)
        except Problem as problem:
            return {}, problem
        if isinstance(decision, ImportedListing) or found is None:
            return {}, "created"
        former = found.external_id if found.deleted_at is None else None
        is_deleted = decision.get("deleted_at", found.deleted_at) is not None
        if former is not None and (is_deleted or decision.get("external_id", former) != former):
            self.given_up.add(hash(former))
        if claimed is not None and claimed != row.external_id:
            self.taken[claimed] = found.id
        diff = {name: (getattr(found, name), value) for name, value in decision.items() if name != "updated_at"}
        return diff, choose_kind(decision) if decision else "unchanged"

    async def _find_listing(self, row: ImportRow) -> Listing | None:
        if row.listing_id is not None:
            return await self.store.get_listing(row.listing_id)
        return None if row.external_id is None else await self._find_holder(row.external_id)

    async def _find_holder(self, external_id: str) -> Listing | None:
        if external_id in self.taken:  # by an earlier row, which does not name it
            return await self.store.get_listing(self.taken[external_id])
        if hash(external_id) in self.given_up:
            return None
        return await self.store.find_by_external_id(bucket_of(self.account.id), self.account.id, external_id)

    def _now(self) -> int:
        return int(self.clock())


async def build_import_key(account: Account, source: Source, options: ImportOptions) -> ImportKey:
    """Return what identifies the import of a file into an account with these options."""
    digest = await asyncio.to_thread(source.digest)
    if options.overwrite:
        digest = hashlib.sha256(digest + b"overwrite").digest()
    return ImportKey(bucket_of(account.id), account.id, digest, source.format, options.ids == "new")


def _import_conflict() -> Problem:
    return Problem("import_conflict", "Another import of this file is running: wait for it to finish")


def _reject(problem: Problem, _: Listing | None) -> NoReturn:
    raise problem


def _parse_id(content: Mapping[str, object], account: Account) -> int | None:
    number = content.get("id")
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise Problem("invalid_request", f"id must be a positive integer, got {preview(number)}")
    if not is_id_in(number, bucket_of(account.id)):
        raise _wrong_owner(number)
    return number


def _wrong_owner(number: int) -> Problem:
    return Problem(
        "not_owner",
        f"id {preview(number)} is invalid in this account: remove it, or import every row as a new listing",
    )
