"""Whole accounts out to files and in again: the rules of an import's rows, and the order in which all is done.

What a file looks like is not known here. A row is a mapping as the API takes and shows it, with the times and the
views that the API only shows.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar

import msgspec

from listings.contract.history import OPERATOR, Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position, RowOutcome
from listings.domain import fields, timestamps
from listings.domain.errors import Problem
from listings.domain.fields import FieldError, shown
from listings.domain.model import BUCKETS, Account, ImportedListing, Listing, ListingChange, NewListing, bucket_of
from listings.service import Service, difference
from listings.service.transfer.rows import COLUMNS, Row, Source

T = TypeVar("T")

_log = logging.getLogger(__name__)


_BATCH_ROWS = 200
_BATCH_BYTES = 4 * 1024 * 1024
_LARGEST_ID = 2**52  # so that half of the ids that every JSON reader keeps exactly stay free
_MOST_VIEWS = 2**53 - 1


class ImportProgressListener(Protocol):
    """What is told of an import while it goes on."""

    def resumed(self, done: ImportProgress) -> None:
        """An earlier import of the same file is gone on with."""

    def moved(self, doing: str, place: Position) -> None:
        """So far has the file been read."""

    def settled(self, row: Row, outcome: RowOutcome) -> None:
        """What became of a row; one with a Problem is left out."""

    def ignored(self, names: frozenset[str]) -> None:
        """These columns of a row are no fields; told again for every such row."""


class Options(NamedTuple):
    """How a file is imported."""

    new_ids: bool = False  # every row becomes a new listing, whatever its id
    dry_run: bool = False  # every row is judged, and nothing is written
    again: bool = False  # from its beginning, even where it was imported before
    actor: int = OPERATOR  # on whose behalf, as in `Actor`


class Import:
    """One import of a file into an account."""

    def __init__(
        self, service: Service, account: Account, source: Source, watch: ImportProgressListener, options: Options
    ) -> None:
        """`watch` is told of every step."""
        self._service = service
        self._account = account
        self._source = source
        self._watch = watch
        self._options = options
        self._rehearsed = _IdSet()

    async def run(self) -> ImportProgress:
        """Import what is left of the file; returns what became of all its rows, earlier runs' included.

        Raises Problem: already_imported (unless again), import_conflict, invalid_request (no such file at all).
        """
        digest = await asyncio.to_thread(self._source.digest)
        key = ImportKey(
            bucket_of(self._account.id), self._account.id, digest, self._source.format, self._options.new_ids
        )
        done = await self._begin(key)
        for rows in _batches(self._source.rows(done.position), done.position):
            done = await self._import(key, done, rows)
            self._watch.moved("Rehearsing" if self._options.dry_run else "Importing", done.position)
        done = await self._advance(key, done, ImportBatch(done.position, done.position, [], self._now()), [])
        if not self._options.dry_run:
            count = done.made + done.changed
            told = "%d listing of account %d is imported" if count == 1 else "%d listings of account %d are imported"
            _log.info(told, count, self._account.id)
        return done

    async def _begin(self, key: ImportKey) -> ImportProgress:
        done = await self._service.store.find_import(key)
        if done is not None and not self._options.again:
            if done.finished_at is not None:
                moment = timestamps.text_of(done.finished_at)
                raise Problem("already_imported", f"This file was imported on {moment}; --again imports it once more")
            self._watch.resumed(done)
            return done
        last_id = 0 if self._options.new_ids else await self._last_id(key.bucket)
        if self._options.dry_run:
            return ImportProgress(started_at=self._now())
        begun = await self._service.store.begin_import(key, done, self._now(), last_id)
        if begun is None:
            raise _overtaken()
        return begun

    async def _last_id(self, bucket: int) -> int:
        """The highest id of the file, so that neither the service nor a row without id is given one of them first."""
        last_id = 0
        for rows in _batches(self._source.rows(Position()), Position()):
            for row in rows:
                number = row.content.get("id")
                if _is_id_of(number, bucket):
                    last_id = max(last_id, number)
            self._watch.moved("Checking", rows[-1].end)
            await asyncio.sleep(0)
        return last_id

    async def _import(self, key: ImportKey, done: ImportProgress, rows: list[Row]) -> ImportProgress:
        moment = self._service.clock()
        for row in rows:
            unknown = row.content.keys() - _KNOWN
            if unknown:
                self._watch.ignored(frozenset(unknown))
        judged = [_import_row(row, self._account, moment, new_ids=self._options.new_ids) for row in rows]
        return await self._advance(key, done, ImportBatch(done.position, rows[-1].end, judged), rows)

    async def _advance(
        self, key: ImportKey, done: ImportProgress, batch: ImportBatch, rows: list[Row]
    ) -> ImportProgress:
        if self._options.dry_run:
            outcomes: list[RowOutcome] | None = await self._rehearse(batch)
        else:
            actor = Actor(self._options.actor, self._now())
            outcomes = await self._service.store.import_listings(key, batch, actor)
        if outcomes is None:
            raise _overtaken()
        for row, outcome in zip(rows, outcomes, strict=True):
            self._watch.settled(row, outcome)
        return _counted(done, batch, outcomes)

    async def _rehearse(self, batch: ImportBatch) -> list[RowOutcome]:
        """What the store would answer, as far as that can be told without writing."""
        await asyncio.sleep(0)  # as in `pages`
        return [await self._rehearse_row(row) for row in batch.rows]

    async def _rehearse_row(self, row: ImportRow) -> RowOutcome:
        number = row.listing_id
        found = None if number is None else await self._service.store.get_listing(number)
        if found is None and number is not None and number in self._rehearsed:
            found = _stand_in(number, self._account)
        try:
            decision = row.decide(found)
        except Problem as problem:
            return problem
        if not isinstance(decision, ImportedListing):
            return "changed" if decision else "unchanged"
        if number is not None:
            self._rehearsed.add(number)
        return "made"

    def _now(self) -> int:
        return int(self._service.clock())


def _counted(done: ImportProgress, batch: ImportBatch, outcomes: list[RowOutcome]) -> ImportProgress:
    return msgspec.structs.replace(
        done,
        offset=batch.end.offset,
        line=batch.end.line,
        made=done.made + outcomes.count("made"),
        changed=done.changed + outcomes.count("changed"),
        unchanged=done.unchanged + outcomes.count("unchanged"),
        refused=done.refused + sum(isinstance(outcome, Problem) for outcome in outcomes),
        finished_at=batch.finished_at,
    )


def _batches(rows: Iterator[Row], start: Position) -> Iterator[list[Row]]:
    """Rows by the hundreds, fewer where they are long."""
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= _BATCH_ROWS or row.end.offset - start.offset >= _BATCH_BYTES:
            yield batch
            batch, start = [], row.end
    if batch:
        yield batch


def _overtaken() -> Problem:
    return Problem("import_conflict", "Another import of the same file goes on: wait for its end")


class _IdSet:
    """Ids, most of which follow one another: a set of a million would take a hundred megabytes."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, number: int) -> None:
        place, bit = divmod(number // BUCKETS, 256)
        self._bits[place] = self._bits.get(place, 0) | 1 << bit

    def __contains__(self, number: int) -> bool:
        place, bit = divmod(number // BUCKETS, 256)
        return bool(self._bits.get(place, 0) >> bit & 1)


def _stand_in(listing_id: int, account: Account) -> Listing:
    """For a listing that an earlier row of a rehearsed file would have made, whatever it would hold."""
    values: dict[str, Any] = msgspec.structs.asdict(NewListing(title="", content=""))
    values |= {"view_count": 0, "created_at": "", "updated_at": "", "deleted_at": None}
    return Listing(id=listing_id, account_id=account.id, version=1, **values)


# A row

_KNOWN = frozenset(COLUMNS)


def _import_row(row: Row, account: Account, moment: float, *, new_ids: bool) -> ImportRow:
    """The row with its judge; one without an id that can be judges itself."""
    if row.fault is not None:
        return ImportRow(None, _refusal(Problem("invalid_request", row.fault)))
    try:
        listing_id = None if new_ids else _id_of(row.content, account)
    except Problem as problem:
        return ImportRow(None, _refusal(problem))

    def decide(listing: Listing | None) -> ImportedListing | ListingChange:
        if listing is None:
            return new_listing(row.content, moment)
        if listing.account_id != account.id:
            raise _foreign(listing.id)
        return listing_change(row.content, listing, moment)

    return ImportRow(listing_id, decide)


def _refusal(problem: Problem) -> Callable[[Listing | None], ListingChange]:
    def refuse(_: Listing | None) -> ListingChange:
        raise problem

    return refuse


def _is_id_of(number: object, bucket: int) -> TypeGuard[int]:
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and BUCKETS <= number <= _LARGEST_ID
        and bucket_of(number) == bucket
    )


def _id_of(content: Mapping[str, object], account: Account) -> int | None:
    """The id that a row names, which lies in the account's bucket. Raises Problem("invalid_request")."""
    number = content.get("id")
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise Problem("invalid_request", f"id must be a whole number from 1, got {shown(number)}")
    if not _is_id_of(number, bucket_of(account.id)):
        raise _foreign(number)
    return number


def _foreign(number: int) -> Problem:
    return Problem(
        "not_owner", f"id {shown(number)} is not of this account: leave it out, or make every row a new listing"
    )


class _Faults(list[str]):
    """All that is wrong with a row, in the order in which it was found."""

    def read(self, read: Callable[[fields.Body], tuple[T, list[str]]], content: Mapping[str, object]) -> T | None:
        """What the fields of a row describe."""
        try:
            return read({name: content[name] for name in fields.FIELDS if name in content})[0]
        except Problem as problem:
            self.append(problem.message)
            return None

    def take(self, name: str, rule: Callable[[object], T], content: Mapping[str, object], absent: T) -> T:
        """One value that fields know nothing of."""
        if content.get(name) is None:
            return absent
        try:
            return rule(content[name])
        except FieldError as fault:
            self.append(f"{name} {fault}")
            return absent

    def require_closed(self, content: Mapping[str, object]) -> None:
        """A deleted listing is inactive (decision G11)."""
        if content.get("is_active") is True:
            self.append("is_active must be false for a deleted listing, got true")

    def refuse(self) -> None:
        """Raises Problem("invalid_request") when there is any."""
        if self:
            raise Problem("invalid_request", "; ".join(self))


def new_listing(content: Mapping[str, object], moment: float) -> ImportedListing:
    """The listing that a row without one describes; what it doesn't tell of its past is that of one made now.

    Raises Problem("invalid_request") that names every fault.
    """
    faults = _Faults()
    now = timestamps.text_of(moment)
    new = faults.read(fields.read_new, content)
    views = faults.take("view_count", _views, content, 0)
    created_at, updated_at = (
        faults.take(name, lambda value: _time(value, now), content, now) for name in ("created_at", "updated_at")
    )
    deleted_at = faults.take("deleted_at", lambda value: timestamps.moment_of(_time(value, now)), content, None)
    if updated_at < created_at and not faults:
        faults.append(f"updated_at must not be before created_at, which is {created_at}, got {updated_at}")
    if deleted_at is not None:
        faults.require_closed(content)
    faults.refuse()
    assert new is not None  # noqa: S101 - else there is a fault
    if deleted_at is not None:
        new = msgspec.structs.replace(new, is_active=False)
    return ImportedListing(new, views, created_at, updated_at, deleted_at)


def listing_change(content: Mapping[str, object], listing: Listing, moment: float) -> ListingChange:
    """What a row changes of the listing whose id it names: as an update does, and it may close and restore.

    Raises Problem("invalid_request") that names every fault.
    """
    faults = _Faults()
    now = timestamps.text_of(moment)
    change = dict(faults.read(fields.read_change, content) or {})
    if "deleted_at" in content:
        change["deleted_at"] = faults.take(
            "deleted_at", lambda value: timestamps.moment_of(_time(value, now)), content, None
        )
    if change.get("deleted_at", listing.deleted_at) is not None:
        faults.require_closed(content)
        change["is_active"] = False
    faults.refuse()
    return difference(listing, change, now)


def _views(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_VIEWS:
        raise FieldError(f"must be a whole number from 0 to {_MOST_VIEWS}, got {shown(value)}")
    return value


def _time(value: object, now: str) -> str:
    """The text itself, which tells a moment up to now."""
    if not isinstance(value, str):
        raise FieldError(f"must be a time like {now}, got {shown(value)}")
    try:
        text = timestamps.text_of(timestamps.moment_of(value))
    except ValueError:
        text = ""
    if text != value:
        raise FieldError(f"must be a time like {now}, got {shown(value)}")
    if text > now:
        raise FieldError(f"must not be in the future, got {value}")
    return text
