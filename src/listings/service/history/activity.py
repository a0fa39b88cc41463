"""The audit log of an account and its listings, the change sets of its listings, and their retention."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from typing import NamedTuple, TypeVar

from listings.domain import timestamps
from listings.domain.changes import END, Change, ChangeActor, ChangePage, ChangePosition, GroupPage, ListingChangePage
from listings.domain.errors import Unavailable
from listings.domain.history import CONSOLE, LATEST, OPERATOR, ActivityCursor, Creation, Event, HistoryCutoffs
from listings.domain.model import BUCKETS, Account, Caller, bucket_of
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, MICROSECONDS_PER_SECOND
from listings.service.history.usage import USAGE_DAYS
from listings.store.store import Store

T = TypeVar("T")

ACTIVITY_DAYS = 90
_IMPORT_DAYS = 366  # until a finished import can be repeated without an option
_PAGE_SIZE = 500
_MAX_PAGES = 20  # of listings that are scanned for single creates, which have no stored event
_PURGE_BUCKETS = [range(first, first + 64) for first in range(0, BUCKETS, 64)]  # each call purges one range
_PURGE_BATCH_SIZE = 500
_MAX_AHEAD_SECONDS = 60  # by which the clocks of machines may differ
_PURGED_CHANGE_SETS = 50  # in one transaction. Each has the changes of at most 300 listings


class ActivityPage(NamedTuple):
    """Audit events, newest first, and the cursor of the next page, with its own position for creates."""

    events: list[Event]
    next_cursor: ActivityCursor | None = None


class Activity:
    """Reads the audit log, and deletes its old events."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
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
        revision, number, last_id = start
        for event in page:
            if event.kind == "created":
                last_id = event.subject
            else:
                revision, number = event.revision, event.number
        if len(page) == len(merged):  # the page has all events found, so the next scan starts where this one ended
            last_id = creates.last_id
        return ActivityPage(page, ActivityCursor(revision, number, last_id))

    async def _find_creates(self, partition: tuple[int, int], before_id: int, count: int, oldest: int) -> "_Creates":
        # Creates that were not part of a batch or an import have no stored events.
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
        """Delete events older than 90 days, usage and rejected requests older than 31 days, and imports after a year.

        Some events of keys are stored for longer. Each call purges the next 64 buckets, in batches.
        """
        now, buckets = int(self._clock()), next(self._buckets)
        oldest_usage = now - USAGE_DAYS * DAY_SECONDS
        oldest = HistoryCutoffs(
            events=now - ACTIVITY_DAYS * DAY_SECONDS,
            hours=oldest_usage // HOUR_SECONDS,
            rejections=oldest_usage * MICROSECONDS_PER_SECOND,
            imports=now - _IMPORT_DAYS * DAY_SECONDS,
            latest=now + _MAX_AHEAD_SECONDS,
        )
        with suppress(Unavailable):
            while await self._store.purge_history(buckets, oldest, _PURGE_BATCH_SIZE) >= _PURGE_BATCH_SIZE:
                pass


class Changes:
    """Reads change sets, and deletes old ones (decision G45)."""

    def __init__(self, store: Store, clock: Callable[[], float], days: int, deleted_days: int = 0) -> None:
        """`days`: how long change sets are stored, and `deleted_days` deleted listings; 0: within the budget."""
        self._store = store
        self._clock = clock
        self.days = days
        self._deleted_days = deleted_days
        self._buckets = cycle(_PURGE_BUCKETS)

    async def get_last_id(self, caller: Caller) -> int:
        """Return the id of the last change set of the caller's listings, or 0."""
        return (await self._store.get_edit_state(caller.bucket, caller.account_id)).edit_revision

    async def find_before(self, caller: Caller, moment: int) -> int:
        """Return the id of the last of the caller's change sets from before a Unix time.

        Raises Problem("changes_gone") if change sets since then are no longer stored.
        """
        return await self._store.find_last_change_before(caller.bucket, caller.account_id, moment)

    async def read(self, caller: Caller, after: int, count: int, end: int | None = None) -> AsyncIterator[ChangePage]:
        """Yield at most `count` of the caller's change sets with ids above `after`, up to `end`, in pages.

        There are several pages only if the first change set is too large for one. Raises Problem("changes_gone").
        """
        state = await self._store.get_edit_state(caller.bucket, caller.account_id)
        state.require_retained(after)
        position = ChangePosition(after)
        last = after + count if end is None else min(after + count, end)
        if after == state.edit_revision or last <= after:
            yield ChangePage([], position, after)
            return
        while True:
            page = await self._store.page_changes(caller.bucket, caller.account_id, position, last)
            yield page if end is None else page._replace(edit_revision=min(end, page.edit_revision))
            position = page.end
            if position.number == END:
                return

    async def read_of_listing(self, listing_id: int, before: int, count: int) -> ListingChangePage:
        """Return the changes of a listing in at most `count` change sets with ids below `before`."""
        return await self._store.page_listing_changes(listing_id, before, count)

    async def list_groups(self, caller: Caller, before: int, count: int) -> GroupPage:
        """Return the groups of the caller's change sets with ids below `before`, newest first, at most `count`."""
        return await self._store.page_change_groups(caller.bucket, caller.account_id, before, count)

    async def convert_first(
        self, account_id: int, ids: Collection[int], count: int, convert: Callable[[Change], T]
    ) -> Mapping[int, Sequence[T]]:
        """Return what `convert` returns for the first `count` changes of each change set in `ids` that is stored.

        There are none for a single create, and for the older ones if there are many large changes. Creates have no
        values in `after`.
        """
        partition = (bucket_of(account_id), account_id)
        last, purged, _ = await self._store.get_edit_state(*partition)
        wanted = sorted({number for number in ids if purged < number <= last}, reverse=True)
        found = await self._store.convert_first_changes(*partition, wanted, count, convert)
        return {number: found.get(number, ()) for number in wanted}

    async def find_first(self, account_id: int, number: int) -> Change | None:
        """Return the first change of a change set. Raises Problem("changes_gone") if it is not stored."""
        page = await self._store.page_changes(bucket_of(account_id), account_id, ChangePosition(number - 1), number)
        return next(iter(page.changes), None)

    async def read_latest(self, account: Account, count: int) -> AsyncIterator[Change]:
        """Yield the changes of an account's last `count` change sets, oldest first.

        Raises Problem("changes_gone") if one is purged during the read.
        """
        partition = (bucket_of(account.id), account.id)
        last, purged, _ = await self._store.get_edit_state(*partition)
        start = last - count
        for first_lost, last_lost in reversed(await self._store.list_lost_changes(*partition)):
            if start < last_lost:
                start -= last_lost - first_lost + 1
        position = ChangePosition(max(purged, start))
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
        """Delete old change sets, and the rows of listings that were deleted long ago.

        Each call purges the next 64 buckets, in batches.
        """
        now, buckets = int(self._clock()), next(self._buckets)
        oldest = now - self.days * DAY_SECONDS
        oldest_deleted = now - self._deleted_days * DAY_SECONDS if self._deleted_days else 0
        latest = now + _MAX_AHEAD_SECONDS
        with suppress(Unavailable):
            while await self._store.purge_changes(buckets, oldest, _PURGED_CHANGE_SETS, oldest_deleted, latest):
                pass

    async def enforce_budgets(self) -> None:
        """Delete the oldest history of accounts that store more than their budget, a step of each account in turn."""
        accounts = await self._store.list_accounts_over_budget()
        while accounts:
            accounts = [one for one in accounts if await self._store.shrink_history(*one)]


class _Creates(NamedTuple):
    events: list[Event]
    last_id: int  # the last listing that was scanned
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
