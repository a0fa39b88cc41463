"""Activity: who did what to an account and its listings, and for how long that is kept."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from listings.contract.history import LATEST, ActivityCursor, Creation, Event, HistoryCutoffs
from listings.contract.store import Store
from listings.domain import timestamps
from listings.domain.errors import Unavailable
from listings.domain.model import BUCKETS, Account, bucket_of
from listings.service.usage import USAGE_DAYS

ACTIVITY_DAYS = 90
_DAY = 24 * 3600
_HOUR = 3600
_MICROSECOND = 1_000_000
_PAGE = 500
_MOST_PAGES = 20  # of listings that are looked through for those that somebody made singly
_BUCKETS_AT_ONCE = 64
_MOST_FORGOTTEN = 500


class ActivityPage(NamedTuple):
    """Some events, the newest first, and the place behind which there are older ones."""

    events: list[Event]
    next_place: ActivityCursor | None = None


class Activity:
    """The use cases of activity, over a store and a clock."""

    store: Store
    clock: Callable[[], float]
    _next_bucket: int = 0

    async def activity(self, account: Account, before: ActivityCursor | None = None, count: int = 50) -> ActivityPage:
        """What was done in the last 90 days before a place, `count` events at most."""
        start = before if before is not None else LATEST
        oldest = int(self.clock()) - ACTIVITY_DAYS * _DAY
        place = (bucket_of(account.id), account.id)
        creates = await self._creates(place, start.listing_id, count + 1, oldest)
        noted = [event for event in await self.store.page_events(*place, start, count + 1) if event.moment >= oldest]
        merged = sorted([*noted, *creates.events], key=lambda event: (event.revision, event.number), reverse=True)
        shown = merged[:count]
        if len(merged) <= count and creates.is_whole:
            return ActivityPage(shown)
        return ActivityPage(shown, _place_behind(shown, merged, start, creates))

    async def _creates(self, place: tuple[int, int], before_id: int, count: int, oldest: int) -> "_Creates":
        """The creates of single listings, which the listings themselves tell of."""
        events: list[Event] = []
        oldest_text = timestamps.text_of(oldest)
        for _ in range(_MOST_PAGES):
            page = await self.store.page_creations(*place, before_id, _PAGE)
            for made in page:
                before_id = made.listing_id
                if made.actor is None:
                    continue
                if made.created_at < oldest_text:
                    return _Creates(events, before_id, is_whole=True)
                events.append(_event_of(made))
                if len(events) == count:
                    return _Creates(events, before_id, is_whole=False)
            if len(page) < _PAGE:
                return _Creates(events, before_id, is_whole=True)
            await asyncio.sleep(0)  # others want to be answered, too
        return _Creates(events, before_id, is_whole=False)

    async def purge_history(self) -> None:
        """Remove activity after 90 days and usage after 31, from some buckets each time, in small steps."""
        now = int(self.clock())
        kept_usage = now - USAGE_DAYS * _DAY
        oldest = HistoryCutoffs(now - ACTIVITY_DAYS * _DAY, kept_usage // _HOUR, kept_usage * _MICROSECOND)
        first = self._next_bucket
        self._next_bucket = (first + _BUCKETS_AT_ONCE) % BUCKETS
        count = _MOST_FORGOTTEN
        with suppress(Unavailable):
            while count >= _MOST_FORGOTTEN:
                buckets = range(first, first + _BUCKETS_AT_ONCE)
                count = await self.store.purge_history(buckets, oldest, _MOST_FORGOTTEN)


class _Creates(NamedTuple):
    """Creates that were found, the listing that was looked at last, and whether there are no more."""

    events: list[Event]
    last_id: int
    is_whole: bool


def _event_of(made: Creation) -> Event:
    return Event(
        revision=made.revision or 0,
        number=0,
        moment=timestamps.moment_of(made.created_at),
        actor=made.actor or 0,
        kind="created",
        subject=made.listing_id,
        detail="",
    )


def _place_behind(shown: list[Event], merged: list[Event], start: ActivityCursor, creates: _Creates) -> ActivityCursor:
    """Behind the last event and the last create that are shown, each for itself."""
    noted = [event for event in shown if event.kind != "created"]
    made = [event for event in shown if event.kind == "created"]
    revision, number = (noted[-1].revision, noted[-1].number) if noted else (start.revision, start.number)
    if len(shown) == len(merged):  # all that was found: what was passed over need not be looked at again
        return ActivityCursor(revision, number, creates.last_id)
    return ActivityCursor(revision, number, made[-1].subject if made else start.listing_id)
