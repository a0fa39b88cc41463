"""The audit log of an account and its listings, the change sets of its listings, and their retention."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import NamedTuple, Protocol

from listings.contract.accounts import KeyStore
from listings.contract.changes import END, ChangePage, ChangePosition, ChangeStore, ListingChangePage
from listings.contract.history import (
    CONSOLE,
    LATEST,
    OPERATOR,
    ActivityCursor,
    Creation,
    Event,
    HistoryCutoffs,
    HistoryStore,
)
from listings.domain import timestamps
from listings.domain.changes import Change, ChangeActor
from listings.domain.errors import Unavailable
from listings.domain.model import BUCKETS, Account, Caller, bucket_of
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, MICROSECONDS_PER_SECOND
from listings.service.history.usage import USAGE_DAYS

ACTIVITY_DAYS = 90
_PAGE_SIZE = 500
_MAX_PAGES = 20  # of listings that are scanned for single creates, which have no stored event
_PURGE_BUCKETS = [range(first, first + 64) for first in range(0, BUCKETS, 64)]  # each call purges one range
_PURGE_BATCH_SIZE = 500
_MAX_READS = 16  # pages of changes for one page of activity
_PURGED_CHANGE_SETS = 50  # in one transaction. Each has the changes of at most 300 listings


class ActivityPage(NamedTuple):
    """Audit events, newest first, and the cursor of the next page."""

    events: list[Event]
    next_cursor: ActivityCursor | None = None


class Activity:
    """Reads the audit log, and deletes its old events."""

    def __init__(self, store: HistoryStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._buckets = cycle(_PURGE_BUCKETS)

    async def list_page(self, account: Account, before: ActivityCursor | None = None, count: int = 50) -> ActivityPage:
        """Return at most `count` events of the last 90 days, before a cursor if one is given.

        A creation may be on a later page than older events, if imports and batches created at least 10,000 listings
        after it.
        """
        start = before if before is not None else LATEST
        oldest = int(self._clock()) - ACTIVITY_DAYS * DAY_SECONDS
        partition = (bucket_of(account.id), account.id)
        creates = await self._find_creates(partition, start.listing_id, count + 1, oldest)
        stored = [
            event for event in await self._store.page_events(*partition, start, count + 1) if event.moment >= oldest
        ]
        merged = sorted([*stored, *creates.events], key=lambda event: (event.revision, event.number), reverse=True)
        page = merged[:count]
        if len(merged) <= count and creates.is_complete:
            return ActivityPage(page)
        return ActivityPage(page, _build_cursor(page, merged, start, creates))

    async def _find_creates(self, partition: tuple[int, int], before_id: int, count: int, oldest: int) -> "_Creates":
        """Build the events of creates that were not part of a batch or an import. These events are not stored."""
        events: list[Event] = []
        oldest_text = timestamps.format_timestamp(oldest)
        for _ in range(_MAX_PAGES):
            page = await self._store.page_creations(*partition, before_id, _PAGE_SIZE)
            for creation in page:
                before_id = creation.listing_id
                if creation.actor is None:
                    continue
                if creation.created_at < oldest_text:
                    return _Creates(events, before_id, is_complete=True)
                events.append(_build_event(creation))
                if len(events) == count:
                    return _Creates(events, before_id, is_complete=False)
            if len(page) < _PAGE_SIZE:
                return _Creates(events, before_id, is_complete=True)
            await asyncio.sleep(0)  # lets other requests run
        return _Creates(events, before_id, is_complete=False)

    async def purge(self) -> None:
        """Delete events older than 90 days, and usage and rejected requests older than 31 days.

        Rotations of keys are stored for a year longer. Each call purges the next 64 buckets, in batches.
        """
        now = int(self._clock())
        oldest_usage = now - USAGE_DAYS * DAY_SECONDS
        oldest = HistoryCutoffs(
            now - ACTIVITY_DAYS * DAY_SECONDS, oldest_usage // HOUR_SECONDS, oldest_usage * MICROSECONDS_PER_SECOND
        )
        await _purge(partial(self._store.purge_history, next(self._buckets), oldest), _PURGE_BATCH_SIZE)


class _ChangeStores(ChangeStore, KeyStore, Protocol):
    pass


class Changes:
    """Reads change sets, and deletes old ones (decision G45)."""

    def __init__(self, store: _ChangeStores, clock: Callable[[], float], days: int) -> None:
        """`days`: how long change sets are stored."""
        self._store = store
        self._clock = clock
        self.days = days
        self._buckets = cycle(_PURGE_BUCKETS)

    async def get_last_id(self, caller: Caller) -> int:
        """Return the id of the last change set of the caller's listings, or 0."""
        return (await self._store.get_edit_state(caller.bucket, caller.account_id)).edit_revision

    async def read(self, caller: Caller, after: int, count: int) -> AsyncIterator[ChangePage]:
        """Yield at most `count` of the caller's change sets with ids above `after`, in pages.

        There are several pages only if the first change set is too large for one. Raises Problem("changes_gone").
        """
        state = await self._store.get_edit_state(caller.bucket, caller.account_id)
        state.require_retained(after)
        position = ChangePosition(after)
        if after == state.edit_revision:
            yield ChangePage([], position, after)
            return
        while True:
            page = await self._store.page_changes(caller.bucket, caller.account_id, position, after + count)
            yield page
            position = page.end
            if position.number == END:
                return

    async def read_of_listing(self, listing_id: int, before: int, count: int) -> ListingChangePage:
        """Return the changes of a listing in at most `count` change sets with ids below `before`."""
        return await self._store.page_listing_changes(listing_id, before, count)

    async def read_sets(self, account_id: int, ids: Collection[int]) -> Mapping[int, Sequence[Change]]:
        """Return the first changes of each change set in `ids`, by id. Purged change sets are left out.

        At most 16 pages are read, lowest ids first, and each gap in `ids` begins a new page. A change set that is not
        reached has an empty list.

        Raises Problem("changes_gone") if one is purged during the read.
        """
        partition = (bucket_of(account_id), account_id)
        last, purged = await self._store.get_edit_state(*partition)
        wanted = sorted(number for number in set(ids) if purged < number <= last)
        found: dict[int, list[Change]] = {number: [] for number in wanted}
        after = 0
        for _ in range(_MAX_READS):
            run = _find_run(wanted, after)
            if not run:
                break
            page = await self._store.page_changes(*partition, ChangePosition(run[0] - 1), run[-1])
            for change in page.changes:
                found[change.edit_revision].append(change)
            after = page.end.edit_revision  # skips the rest of a large change set
        return found

    async def read_latest(self, account: Account, count: int) -> AsyncIterator[Change]:
        """Yield the changes of an account's last `count` change sets, oldest first.

        Raises Problem("changes_gone") if one is purged during the read.
        """
        partition = (bucket_of(account.id), account.id)
        last, purged = await self._store.get_edit_state(*partition)
        position = ChangePosition(max(purged, last - count))
        while position < ChangePosition(last):
            page = await self._store.page_changes(*partition, position, last)
            for change in page.changes:
                yield change
            position = page.end

    async def list_actors(self, account_id: int) -> Mapping[int, ChangeActor]:
        """Return the possible actors of an account's change sets, by `Actor.key_id`."""
        keys = await self._store.list_keys(account_id)
        people = {OPERATOR: ChangeActor("operator"), CONSOLE: ChangeActor("member")}
        return people | {key.id: ChangeActor("key", key.name, key.hint, key.id) for key in keys}

    async def purge(self) -> None:
        """Delete old change sets. Each call purges the next 64 buckets, in batches."""
        oldest = int(self._clock()) - self.days * DAY_SECONDS
        await _purge(partial(self._store.purge_changes, next(self._buckets), oldest), _PURGED_CHANGE_SETS)


async def _purge(delete: Callable[[int], Awaitable[int]], batch_size: int) -> None:
    """Delete batches until one is smaller than `batch_size`, or the store is unavailable."""
    with suppress(Unavailable):
        while await delete(batch_size) >= batch_size:
            pass


def _find_run(numbers: Sequence[int], after: int) -> Sequence[int]:
    """Return the first run of consecutive numbers above `after`. The numbers must be in ascending order."""
    rest = [number for number in numbers if number > after]
    count = next((index for index, number in enumerate(rest) if number != rest[0] + index), len(rest))
    return rest[:count]


class _Creates(NamedTuple):
    """The create events found, the id of the last listing scanned, and whether there are no further ones."""

    events: list[Event]
    last_id: int
    is_complete: bool


def _build_event(creation: Creation) -> Event:
    return Event(
        revision=creation.revision or 0,
        number=0,
        moment=timestamps.parse_timestamp(creation.created_at),
        actor=creation.actor or 0,
        kind="created",
        subject=creation.listing_id,
        detail="",
        change=creation.change or 0,
    )


def _build_cursor(page: list[Event], merged: list[Event], start: ActivityCursor, creates: _Creates) -> ActivityCursor:
    """Return the cursor of the next page. It has separate positions for stored events and for creates."""
    stored = [event for event in page if event.kind != "created"]
    created = [event for event in page if event.kind == "created"]
    revision, number = (stored[-1].revision, stored[-1].number) if stored else (start.revision, start.number)
    if len(page) == len(merged):  # the page has all events found, so the next scan starts where this one ended
        return ActivityCursor(revision, number, creates.last_id)
    return ActivityCursor(revision, number, created[-1].subject if created else start.listing_id)
