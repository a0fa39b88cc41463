"""The report about all accounts, in one snapshot. See `sql` for the conventions of its statements.

Usage and rejections are read bucket by bucket, along the indexes of their times.
"""

from collections import Counter
from http import HTTPStatus
from typing import TypeVar

from listings.domain.history import Report, ReportTimes
from listings.domain.model import BUCKETS, MAX_ID
from listings.domain.timestamps import HOUR_SECONDS, MICROSECONDS_PER_SECOND, format_timestamp
from listings.store import inspection
from listings.store.query import Query
from listings.store.scripts.script import ScriptedStore, Transaction

T = TypeVar("T")

PAGE_SIZE = 10_000

COUNT_ACCOUNTS = Query[tuple[int, int, int, int, int, int]]("""
SELECT
    count(*) FILTER (WHERE disabled_at IS NULL),
    count(*) FILTER (WHERE disabled_at IS NULL AND created_at >= $1),
    count(*) FILTER (WHERE disabled_at IS NOT NULL),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at > $2),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at > $2 AND plan_expires_at <= $3),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at <= $2)
FROM accounts WHERE test_of IS NULL
""")
SUM_USAGE = Query[tuple[int, int]]("""
SELECT status, CAST(SUM(count) AS bigint) FROM usage_hours WHERE bucket = $1 AND hour >= $2 GROUP BY status
""")
COUNT_REJECTIONS = Query[tuple[str, int]](
    "SELECT code, count(*) FROM refusals WHERE bucket = $1 AND moment >= $2 GROUP BY code"
)
COUNT_MARKET = Query[tuple[int]]("SELECT count(*) FROM market_listings WHERE state = 1")
LIST_STORED = Query[tuple[int, int]]("""
SELECT account_id, text_bytes + history_bytes FROM account_state WHERE bucket = $1 AND text_bytes + history_bytes > $2
""")
READ_BACKLOG = Query[tuple[int, int, int]]("""
SELECT coalesce((SELECT min(created_at) FROM mails WHERE next_at IS NOT NULL), 0),
    CAST(coalesce((SELECT sum(text_bytes + history_bytes) FROM account_state), 0) AS bigint),
    CAST(coalesce((SELECT sum(bytes) FROM picture_usage), 0) AS bigint)
""")
LIST_PICTURE_BYTES = Query[tuple[int, int]]("SELECT account_id, bytes FROM picture_usage WHERE bytes > 0")
COUNT_NEWEST = Query[tuple[int | None, int]]("""
SELECT min(serial), count(*) FILTER (WHERE listed_at >= $3) FROM (
    SELECT serial, listed_at FROM market_listings WHERE serial < $1 ORDER BY serial DESC LIMIT $2) AS newest
""")


class ScriptedReportStore(ScriptedStore):
    """Reads the report."""

    database_bytes_statement: Query[tuple[int]]

    async def read_backlog(self) -> tuple[int, int, int]:
        """Return the Unix time of the oldest queued email (0: there is none), and the bytes that accounts store.

        The last number is the bytes of their pictures, which the others do not include.
        """
        ((oldest_mail, stored_bytes, picture_bytes),) = await self._fetch(READ_BACKLOG)
        return oldest_mail, stored_bytes, picture_bytes

    async def read_report(self, times: ReportTimes) -> Report:
        """Return the numbers of a period. Usage is stored by the hour, so `since` must be the start of an hour."""
        return await self._run_reads(lambda tx: read_report(tx, times, self.database_bytes_statement))


async def read_report(tx: Transaction, times: ReportTimes, database_bytes: Query[tuple[int]]) -> Report:
    """Return the report. `database_bytes` is the engine's statement for the size of the database."""
    (accounts,) = await tx.fetch(COUNT_ACCOUNTS, times)
    statuses = await _sum_by_bucket(tx, SUM_USAGE, times.since // HOUR_SECONDS)
    rejected = sum(count for status, count in statuses.items() if status >= HTTPStatus.BAD_REQUEST)
    codes = await _sum_by_bucket(tx, COUNT_REJECTIONS, times.since * MICROSECONDS_PER_SECOND)
    new_listings = await _count_new_listings(tx, format_timestamp(times.since))
    ((market,),) = await tx.fetch(COUNT_MARKET, ())
    pending = await tx.get(inspection.Pending, inspection.COUNT_PENDING, ())
    waiting = (pending.plan_requests, pending.mails, pending.given_up_mails)
    stored = await _sum_by_bucket(tx, LIST_STORED, 0)
    pictures = Counter(dict(await tx.fetch(LIST_PICTURE_BYTES, ())))
    largest = {str(account_id): count for account_id, count in (stored + pictures).most_common(10)}
    ((size,),) = await tx.fetch(database_bytes, ())
    usage = (statuses.total(), rejected, dict(codes.most_common()))
    bytes_ = (stored.total(), pictures.total(), largest)
    return Report(*accounts, *usage, new_listings, market, *waiting, *bytes_, size)


async def _sum_by_bucket(tx: Transaction, statement: Query[tuple[T, int]], since: int) -> Counter[T]:
    total = Counter[T]()
    for name, count in await tx.fetch_many(statement, [(bucket, since) for bucket in range(BUCKETS)]):
        total[name] += count
    return total


async def _count_new_listings(tx: Transaction, since: str) -> int:
    # Pages are read from the newest entry backwards, until one has no new entry. Hidden ones count, too.
    total, new = 0, 1
    last: int | None = MAX_ID
    while new:
        ((last, new),) = await tx.fetch(COUNT_NEWEST, (last, PAGE_SIZE, since))
        total += new
    return total
