"""Count the responses and rejected requests of each API key in memory, and store the counts every few seconds."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from itertools import chain, islice
from math import ceil
from typing import NamedTuple

from listings.domain.api_keys import mask_keys
from listings.domain.errors import Problem, Unavailable
from listings.domain.faults import describe_reason
from listings.domain.history import RejectedRequest, UsageCount, UsageSlot
from listings.domain.model import Account, ApiKey, Caller, bucket_of
from listings.domain.rate_limiter import RateLimitDecision, RateLimiter
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, MICROSECONDS_PER_SECOND
from listings.store.store import Store

_log = logging.getLogger(__name__)

MAX_REJECTED_REQUESTS = 100
USAGE_DAYS = 31
_DAY_HOURS = 24
_HOURS_SHOWN = 24
_DAYS_SHOWN = 30
_MAX_PATH_LENGTH = 200
_MAX_REQUEST_ID_LENGTH = 128
_MAX_PENDING_COUNTS = 50_000  # pairs of key and status between two writes
_MAX_PENDING_ACCOUNTS = 200  # with rejected requests between two writes
_BATCH_SIZE = 500  # counts, and as many rejected requests
_MAX_BATCH_ACCOUNTS = 50  # whose rejected requests are in one batch, if they fit
_MIN_BATCH_ACCOUNTS = _BATCH_SIZE // MAX_REJECTED_REQUESTS  # that fit even if each has the maximum


class Period(NamedTuple):
    """The responses of an hour or a day by status. `start` is in seconds since 1970."""

    start: int
    by_status: dict[int, int]

    @property
    def responses(self) -> int:
        return sum(self.by_status.values())

    @property
    def rejected(self) -> int:
        """The number of responses with a status of 400 or more."""
        return sum(count for status, count in self.by_status.items() if status >= HTTPStatus.BAD_REQUEST)


class Counts(NamedTuple):
    """The last 24 hours and the last 30 days without gaps, oldest first."""

    hours: list[Period]
    days: list[Period]

    @property
    def last_day(self) -> int:
        return sum(period.responses for period in self.hours)

    @property
    def by_status(self) -> dict[int, int]:
        """The responses of the last 30 days by ascending status."""
        total = Counter[int]()
        for period in self.days:
            total.update(period.by_status)
        return dict(sorted(total.items()))


class KeyUsage(NamedTuple):
    """The usage of a key. `limit` is None if there is no rate limit, or if the limiter is unavailable."""

    key: ApiKey
    limit: RateLimitDecision | None
    counts: Counts


class Usage(NamedTuple):
    """The usage of an account: per key, in total, and its last rejected requests, newest first."""

    keys: list[KeyUsage]
    total: Counts
    rejected_requests: list[RejectedRequest]


class RequestUsage:
    """Counts responses and rejected requests per key, and returns the counts."""

    def __init__(self, store: Store, limiter: RateLimiter | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._limiter = limiter
        self._clock = clock
        self.requests = 0  # for the API and for pages, in this process, so that background work can yield to them
        self._responses: dict[tuple[int, int, int], int] = {}  # in this hour, by account, key and status
        self._unwritten: dict[UsageSlot, int] = {}  # in other hours, or put back after a failed write
        self._rejected: dict[int, deque[RejectedRequest]] = {}
        self._last_rejection = 0  # in microseconds
        self._storing = asyncio.Lock()  # while a batch is written, its counts are neither in memory nor in the store
        self._begin_hour(self._clock())

    def _begin_hour(self, now: float) -> None:
        if self._responses:
            _add(self._unwritten, self._iterate_current_hour())
            self._responses = {}
        self._hour = int(now // HOUR_SECONDS)
        self._hour_begins = self._hour * HOUR_SECONDS
        self._hour_ends = self._hour_begins + HOUR_SECONDS

    def _iterate_current_hour(self) -> Iterator[tuple[UsageSlot, int]]:
        for (account_id, key_id, status), count in self._responses.items():
            yield UsageSlot(account_id, self._hour, key_id, status), count

    def record_response(self, caller: Caller, status: int) -> None:
        """Count a response. Takes well under a microsecond and never waits."""
        self.requests += 1
        now = self._clock()
        if not self._hour_begins <= now < self._hour_ends:
            self._begin_hour(now)
        key = (caller.account_id, caller.key_id, status)
        try:
            self._responses[key] += 1
        except KeyError:
            if len(self._responses) < _MAX_PENDING_COUNTS:
                self._responses[key] = 1

    def record_rejection(
        self, caller: Caller, problem: Problem, status: int, method: str, path: str, request_id: str
    ) -> None:
        """Record a rejected request so that the key's owner sees it. `path` must not contain the query."""
        rejected = self._rejected.get(caller.account_id)
        if rejected is None:
            if len(self._rejected) >= _MAX_PENDING_ACCOUNTS:
                return
            rejected = self._rejected[caller.account_id] = deque(maxlen=MAX_REJECTED_REQUESTS)
        now, last = int(self._clock() * MICROSECONDS_PER_SECOND), self._last_rejection
        # Times ascend, unless the clock was set back by over a second.
        self._last_rejection = now if last > now + MICROSECONDS_PER_SECOND else max(now, last + 1)
        rejected.append(
            RejectedRequest(
                account_id=caller.account_id,
                microseconds=self._last_rejection,
                key_id=caller.key_id,
                code=problem.code,
                status=status,
                method=method,
                path=_clean_text(mask_keys(path))[:_MAX_PATH_LENGTH],
                request_id=mask_keys(request_id)[:_MAX_REQUEST_ID_LENGTH],
                reason=_clean_text(describe_reason(problem)),
            )
        )

    async def write(self) -> None:
        """Store all counts in batches. Keep them for the next call if the store is unavailable."""
        batches = ceil((len(self._unwritten) + len(self._responses)) / _BATCH_SIZE)
        for _ in range(max(batches, ceil(len(self._rejected) / _MIN_BATCH_ACCOUNTS))):
            if not await self.write_batch() or not (self._unwritten or self._responses or self._rejected):
                break

    async def write_batch(self) -> bool:
        """Store a batch of the counts. Return False if the store is unavailable.

        Cancelling this call does not cancel the write.
        """
        return await asyncio.shield(self._store_batch())

    async def _store_batch(self) -> bool:
        async with self._storing:
            # Those of earlier hours and failed writes first.
            counts = {slot: self._unwritten.pop(slot) for slot in list(islice(self._unwritten, _BATCH_SIZE))}
            for account_id, key_id, status in list(islice(self._responses, _BATCH_SIZE - len(counts))):
                slot = UsageSlot(account_id, self._hour, key_id, status)
                counts[slot] = counts.get(slot, 0) + self._responses.pop((account_id, key_id, status))
            rejected = self._take_rejected()
            if not counts and not rejected:
                return True
            try:
                await self._store.add_usage(counts, list(chain.from_iterable(rejected.values())), MAX_REJECTED_REQUESTS)
            except Unavailable:
                _add(self._unwritten, counts.items())
                for account_id, later in self._rejected.items():
                    if account_id in rejected or len(rejected) < _MAX_PENDING_ACCOUNTS:
                        rejected.setdefault(account_id, deque(maxlen=MAX_REJECTED_REQUESTS)).extend(later)
                self._rejected = rejected
                return False
            return True

    def _take_rejected(self) -> dict[int, deque[RejectedRequest]]:
        rejected: dict[int, deque[RejectedRequest]] = {}
        remaining = _BATCH_SIZE
        for account_id in list(islice(self._rejected, _MAX_BATCH_ACCOUNTS)):
            remaining -= len(self._rejected[account_id])
            if remaining < 0:
                break
            rejected[account_id] = self._rejected.pop(account_id)
        return rejected

    async def get(self, account: Account) -> Usage:
        """Return the usage of the account. It lacks the counts that other processes have not stored yet."""
        async with self._storing:
            partition = (bucket_of(account.id), account.id)
            hour = int(self._clock() // HOUR_SECONDS)
            pending = [
                UsageCount(slot.hour, slot.key_id, slot.status, count)
                for slot, count in chain(self._unwritten.items(), self._iterate_current_hour())
                if slot.account_id == account.id
            ]
            hours = [*await self._store.list_usage_by_hour(*partition, hour - _HOURS_SHOWN + 1), *pending]
            first_day = hour // _DAY_HOURS - _DAYS_SHOWN + 1
            days = [
                *await self._store.list_usage_by_day(*partition, first_day * _DAY_HOURS),
                *(row._replace(period=row.period // _DAY_HOURS) for row in pending),
            ]
            keys = [
                KeyUsage(
                    key,
                    await self._peek_limit(key),
                    _build_counts(_filter_by_key(hours, key), _filter_by_key(days, key), hour),
                )
                for key in await self._store.list_keys(account.id)
            ]
            return Usage(keys, _build_counts(hours, days, hour), await self.list_rejected(account))

    async def _peek_limit(self, key: ApiKey) -> RateLimitDecision | None:
        try:
            return await self._limiter.peek(key.id) if self._limiter is not None else None
        except Unavailable:
            return None

    async def count_last_day(self, account: Account) -> Period:
        """Return the stored counts of this hour and the 23 hours before."""
        first, total = int(self._clock() // HOUR_SECONDS) - _DAY_HOURS + 1, Counter[int]()
        for row in await self._store.list_usage_by_hour(bucket_of(account.id), account.id, first):
            total[row.status] += row.responses
        return Period(first * HOUR_SECONDS, dict(total))

    async def list_hours(self, account: Account) -> list[UsageCount]:
        """Return the stored counts of the account by hour, key and status."""
        return await self._store.list_usage_by_hour(bucket_of(account.id), account.id, 0)

    async def list_rejected(self, account: Account) -> list[RejectedRequest]:
        """Return the last rejected requests of the account, newest first."""
        pending = list(self._rejected.get(account.id, ()))[::-1]
        stored = await self._store.list_rejected_requests(bucket_of(account.id), account.id, MAX_REJECTED_REQUESTS)
        return sorted([*pending, *stored], key=lambda request: -request.microseconds)[:MAX_REJECTED_REQUESTS]


def _add(counts: dict[UsageSlot, int], more: Iterable[tuple[UsageSlot, int]]) -> None:
    for slot, count in more:
        if slot in counts or len(counts) < _MAX_PENDING_COUNTS:
            counts[slot] = counts.get(slot, 0) + count


def _filter_by_key(rows: Iterable[UsageCount], key: ApiKey) -> list[UsageCount]:
    return [row for row in rows if row.key_id == key.id]


def _build_counts(hours: Iterable[UsageCount], days: Iterable[UsageCount], hour: int) -> Counts:
    today = hour // _DAY_HOURS
    return Counts(
        _build_periods(hours, range(hour - _HOURS_SHOWN + 1, hour + 1), HOUR_SECONDS),
        _build_periods(days, range(today - _DAYS_SHOWN + 1, today + 1), DAY_SECONDS),
    )


def _build_periods(rows: Iterable[UsageCount], numbers: range, seconds: int) -> list[Period]:
    counts = {number: Counter[int]() for number in numbers}
    for row in rows:
        if row.period in counts:
            counts[row.period][row.status] += row.responses
    return [Period(number * seconds, by_status) for number, by_status in counts.items()]


def _clean_text(text: str) -> str:
    # A database engine can't store the replaced characters.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
