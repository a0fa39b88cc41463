"""Usage: what each key asked and how it was answered, counted in memory and stored every few seconds."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from math import ceil
from typing import NamedTuple

from listings.contract.history import RejectedRequest, UsageCount, UsageKey
from listings.contract.rate_limiter import RateLimitDecision, RateLimiter
from listings.contract.store import Store
from listings.domain.api_keys import masked
from listings.domain.errors import Unavailable
from listings.domain.model import Account, ApiKey, Caller, bucket_of

_log = logging.getLogger(__name__)

MOST_REFUSALS = 100
USAGE_DAYS = 31
_HOUR = 3600
_DAY = 24
_HOURS_SHOWN = 24
_DAYS_SHOWN = 30
_MICROSECOND = 1_000_000
_LONGEST_PATH = 200
_LONGEST_ID = 128
_MOST_COUNTED = 50_000  # keys by their statuses, between two writes
_MOST_ACCOUNTS = 200  # whose refusals are kept between two writes
_WRITTEN_AT_ONCE = 500
_ACCOUNTS_AT_ONCE = 50  # as far as they have no more refusals than are written at once
_LEAST_AT_ONCE = _WRITTEN_AT_ONCE // MOST_REFUSALS  # accounts


class Period(NamedTuple):
    """An hour or a day: its start in seconds since 1970, and the responses by their status."""

    start: int
    by_status: dict[int, int]

    @property
    def responses(self) -> int:
        """All of them."""
        return sum(self.by_status.values())

    @property
    def refused(self) -> int:
        """Those of 400 and more."""
        return sum(count for status, count in self.by_status.items() if status >= 400)  # noqa: PLR2004 - HTTP's own


class Counts(NamedTuple):
    """The last 24 hours and the last 30 days, the oldest first and the present ones last, each without a gap."""

    hours: list[Period]
    days: list[Period]

    @property
    def last_day(self) -> int:
        """Answers in the last 24 hours."""
        return sum(period.responses for period in self.hours)

    @property
    def by_status(self) -> dict[int, int]:
        """Answers in the last 30 days by their status, in its order."""
        return _summed(self.days)


class KeyUsage(NamedTuple):
    """A key with what it has asked; `limit` is None where there is no limit, or it can't be told now."""

    key: ApiKey
    limit: RateLimitDecision | None
    counts: Counts


class Usage(NamedTuple):
    """What the keys of an account have asked, each and together, and its last refused requests, the latest first."""

    keys: list[KeyUsage]
    total: Counts
    refusals: list[RejectedRequest]


class RequestCounts:
    """The use cases of usage, over a store, a limiter and a clock."""

    store: Store
    limiter: RateLimiter | None
    clock: Callable[[], float]

    def _begin_counting(self) -> None:
        self._answers: dict[tuple[int, int, int], int] = {}  # of the present hour, by account, key and status
        self._unwritten: dict[UsageKey, int] = {}
        self._refused: dict[int, deque[RejectedRequest]] = {}
        self._last_refusal = 0
        self._storing = asyncio.Lock()  # what is being stored is neither here nor there
        self._begin_hour(self.clock())

    def _begin_hour(self, now: float) -> None:
        """What is counted from now on is of this hour."""
        if self._answers:
            _add(self._unwritten, self._pending_answers())
            self._answers = {}
        self._hour = int(now // _HOUR)
        self._hour_begins = self._hour * _HOUR
        self._hour_ends = self._hour_begins + _HOUR

    def _take_counts(self) -> dict[UsageKey, int]:
        """The longest kept of what isn't stored yet, as much as is written at once."""
        counts = {key: self._unwritten.pop(key) for key in list(islice(self._unwritten, _WRITTEN_AT_ONCE))}
        for account_id, key_id, status in list(islice(self._answers, _WRITTEN_AT_ONCE - len(counts))):
            key = UsageKey(account_id, self._hour, key_id, status)
            counts[key] = counts.get(key, 0) + self._answers.pop((account_id, key_id, status))
        return counts

    def _pending_answers(self) -> Iterator[tuple[UsageKey, int]]:
        for (account_id, key_id, status), count in self._answers.items():
            yield UsageKey(account_id, self._hour, key_id, status), count

    def record_response(self, caller: Caller, status: int) -> None:
        """Count an answer. May not wait, and takes well under a microsecond."""
        key = (caller.account_id, caller.key_id, status)
        try:
            self._answers[key] += 1
        except KeyError:
            if len(self._answers) < _MOST_COUNTED:
                self._answers[key] = 1

    def record_rejection(  # noqa: PLR0913, PLR0917 - what is told of a refused request
        self, caller: Caller, code: str, status: int, method: str, path: str, request_id: str
    ) -> None:
        """Keep what was refused, for its owner to see. `path` has no query, which could hold anything."""
        refused = self._refused.get(caller.account_id)
        if refused is None:
            if len(self._refused) >= _MOST_ACCOUNTS:
                return
            refused = self._refused[caller.account_id] = deque(maxlen=MOST_REFUSALS)
        self._last_refusal = self._next_moment()
        refused.append(
            RejectedRequest(
                account_id=caller.account_id,
                moment=self._last_refusal,
                key_id=caller.key_id,
                code=code,
                status=status,
                method=method,
                path=_storable(masked(path))[:_LONGEST_PATH],
                request_id=masked(request_id)[:_LONGEST_ID],
            )
        )

    def _next_moment(self) -> int:
        """Of a refusal, each its own; the clock is followed where it was put back."""
        now = int(self.clock() * _MICROSECOND)
        return now if self._last_refusal > now + _MICROSECOND else max(now, self._last_refusal + 1)

    async def write_usage(self) -> None:
        """Store all that was counted up to now, in small steps; what the store can't take is kept for the next time."""
        steps = ceil((len(self._unwritten) + len(self._answers)) / _WRITTEN_AT_ONCE)
        for _ in range(max(steps, ceil(len(self._refused) / _LEAST_AT_ONCE))):
            if not await self.write_some_usage() or not (self._unwritten or self._answers or self._refused):
                break

    async def write_some_usage(self) -> bool:
        """Store what was counted, but no more than one small write holds; False when the store can't take it.

        Who stops waiting for this leaves nothing half done.
        """
        return await asyncio.shield(self._store_some())

    async def _store_some(self) -> bool:
        async with self._storing:
            counts = self._take_counts()
            refused = self._take_refused()
            if not counts and not refused:
                return True
            try:
                await self.store.add_usage(counts, list(chain.from_iterable(refused.values())), MOST_REFUSALS)
            except Unavailable:
                _add(self._unwritten, counts.items())
                self._take_back(refused)
                return False
            return True

    def _take_refused(self) -> dict[int, deque[RejectedRequest]]:
        """Of as many accounts as are written at once, which is fewer where they have many."""
        refused: dict[int, deque[RejectedRequest]] = {}
        room = _WRITTEN_AT_ONCE
        for account_id in list(islice(self._refused, _ACCOUNTS_AT_ONCE)):
            room -= len(self._refused[account_id])
            if room < 0:
                break
            refused[account_id] = self._refused.pop(account_id)
        return refused

    def _take_back(self, refused: dict[int, deque[RejectedRequest]]) -> None:
        for account_id, later in self._refused.items():
            if account_id in refused or len(refused) < _MOST_ACCOUNTS:
                refused.setdefault(account_id, deque(maxlen=MOST_REFUSALS)).extend(later)
        self._refused = refused

    async def usage(self, account: Account) -> Usage:
        """What the account's keys have asked; what other processes have not stored yet is missing."""
        async with self._storing:
            return await self._usage(account)

    async def _usage(self, account: Account) -> Usage:
        place = (bucket_of(account.id), account.id)
        now = int(self.clock() // _HOUR)
        pending = self._pending(account.id)
        hours = [*await self.store.list_usage_by_hour(*place, now - _HOURS_SHOWN + 1), *pending]
        first_day = now // _DAY - _DAYS_SHOWN + 1
        days = [
            *await self.store.list_usage_by_day(*place, first_day * _DAY),
            *(row._replace(period=row.period // _DAY) for row in pending),
        ]
        keys = [
            KeyUsage(key, await self._look(key), _counts(_of_key(hours, key), _of_key(days, key), now))
            for key in await self.store.list_keys(account.id)
        ]
        return Usage(keys, _counts(hours, days, now), await self._refusals(account))

    async def _look(self, key: ApiKey) -> RateLimitDecision | None:
        try:
            return await self.limiter.peek(key.id) if self.limiter is not None else None
        except Unavailable:
            return None

    async def _refusals(self, account: Account) -> list[RejectedRequest]:
        pending = list(self._refused.get(account.id, ()))[::-1]
        stored = await self.store.list_rejected_requests(bucket_of(account.id), account.id, MOST_REFUSALS)
        return sorted([*pending, *stored], key=lambda one: -one.moment)[:MOST_REFUSALS]

    def _pending(self, account_id: int) -> list[UsageCount]:
        """What is not stored yet."""
        return [
            UsageCount(key.hour, key.key_id, key.status, count)
            for key, count in chain(self._unwritten.items(), self._pending_answers())
            if key.account_id == account_id
        ]


def _add(counts: dict[UsageKey, int], more: Iterable[tuple[UsageKey, int]]) -> None:
    for key, count in more:
        if key in counts or len(counts) < _MOST_COUNTED:
            counts[key] = counts.get(key, 0) + count


def _of_key(rows: Iterable[UsageCount], key: ApiKey) -> list[UsageCount]:
    return [row for row in rows if row.key_id == key.id]


def _counts(hours: Iterable[UsageCount], days: Iterable[UsageCount], now: int) -> Counts:
    """Counts by the present hour, in hours since 1970."""
    today = now // _DAY
    return Counts(
        _periods(hours, range(now - _HOURS_SHOWN + 1, now + 1), _HOUR),
        _periods(days, range(today - _DAYS_SHOWN + 1, today + 1), _HOUR * _DAY),
    )


def _periods(rows: Iterable[UsageCount], shown: range, seconds: int) -> list[Period]:
    periods = {number: Period(number * seconds, {}) for number in shown}
    for row in rows:
        if row.period in periods:
            by_status = periods[row.period].by_status
            by_status[row.status] = by_status.get(row.status, 0) + row.responses
    return list(periods.values())


def _summed(periods: Iterable[Period]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for period in periods:
        for status, count in period.by_status.items():
            counts[status] = counts.get(status, 0) + count
    return dict(sorted(counts.items()))


def _storable(text: str) -> str:
    """Text that every engine can keep."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
