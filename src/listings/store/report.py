"""The report about all accounts, in one snapshot. See `sql` for the conventions of its statements.

Usage and rejections are read bucket by bucket, along the indexes of their times.
"""

from collections import Counter
from http import HTTPStatus
from typing import Any

from listings.contract.history import Report, ReportTimes
from listings.domain.model import BUCKETS, MAX_ID
from listings.domain.timestamps import HOUR_SECONDS, MICROSECONDS_PER_SECOND, format_timestamp
from listings.store import inspection
from listings.store.scripts.script import Query, QueryMany, Script, ScriptedStore

_PAGE_SIZE = 10_000

COUNT_ACCOUNTS = """
SELECT
    count(*) FILTER (WHERE disabled_at IS NULL),
    count(*) FILTER (WHERE disabled_at IS NULL AND created_at >= $1),
    count(*) FILTER (WHERE disabled_at IS NOT NULL),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at > $2),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at > $2 AND plan_expires_at <= $3),
    count(*) FILTER (WHERE disabled_at IS NULL AND plan_expires_at <= $2)
FROM accounts
"""

SUM_USAGE = """
SELECT status, CAST(SUM(count) AS bigint) FROM usage_hours WHERE bucket = $1 AND hour >= $2 GROUP BY status
"""

COUNT_REJECTIONS = "SELECT code, count(*) FROM refusals WHERE bucket = $1 AND moment >= $2 GROUP BY code"

COUNT_MARKET = "SELECT count(*) FROM market WHERE state = 1"

COUNT_NEWEST = """
SELECT min(serial), count(*) FILTER (WHERE created_at >= $3) FROM (
    SELECT serial, created_at FROM market WHERE serial < $1 ORDER BY serial DESC LIMIT $2) AS newest
"""


class ScriptedReportStore(ScriptedStore):
    """Implements `ReportStore`."""

    database_bytes_statement: str

    async def read_report(self, times: ReportTimes) -> Report:
        return await self._run_reads(lambda: read_report(times, self.database_bytes_statement))


def read_report(times: ReportTimes, database_bytes: str) -> Script[Report]:
    """Return the report. `database_bytes` is the engine's statement for the size of the database."""
    accounts = (yield Query(COUNT_ACCOUNTS, times))[0]
    statuses = yield from _sum_by_bucket(SUM_USAGE, times.since // HOUR_SECONDS)
    rejected = sum(count for status, count in statuses.items() if status >= HTTPStatus.BAD_REQUEST)
    codes = yield from _sum_by_bucket(COUNT_REJECTIONS, times.since * MICROSECONDS_PER_SECOND)
    new_listings = yield from _count_new_listings(format_timestamp(times.since))
    market = (yield Query(COUNT_MARKET, ()))[0]
    pending = inspection.Pending(*(yield Query(inspection.COUNT_PENDING, ()))[0])
    waiting = (pending.plan_requests, pending.mails, pending.given_up_mails)
    size = (yield Query(database_bytes, ()))[0]
    usage = (statuses.total(), rejected, dict(codes.most_common()))
    return Report._make((*accounts, *usage, new_listings, *market, *waiting, *size))


def _sum_by_bucket(statement: str, since: int) -> Script[Counter[Any]]:
    """Return the sums of the pairs that a statement returns for each bucket."""
    total = Counter[Any]()
    for name, count in (yield QueryMany(statement, [(bucket, since) for bucket in range(BUCKETS)])):
        total[name] += count
    return total


def _count_new_listings(since: str) -> Script[int]:
    """Count the listings that entered the market since a time, even if they are hidden now.

    Pages are read from the newest entry backwards, until one has no new entry.
    """
    total, last, new = 0, MAX_ID, 1
    while new:
        last, new = (yield Query(COUNT_NEWEST, (last, _PAGE_SIZE, since)))[0]
        total += new
    return total
