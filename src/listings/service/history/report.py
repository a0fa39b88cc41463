"""The operator's report with key figures of the last 24 hours."""

from collections.abc import Callable

from listings.domain.accounts import ENDING_DAYS
from listings.domain.history import Report, ReportTimes
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS
from listings.store.store import Store

_HOURS = 24


class Reports:
    """Builds the report about all accounts."""

    def __init__(self, store: Store, clock: Callable[[], float], *, market_open: bool) -> None:
        self._store = store
        self._clock = clock
        self._market_open = market_open

    async def build(self) -> tuple[ReportTimes, Report]:
        """Return the report of this hour and the 23 hours before, and its times."""
        now = int(self._clock())
        since = (now // HOUR_SECONDS - _HOURS + 1) * HOUR_SECONDS
        times = ReportTimes(since, now, now + ENDING_DAYS * DAY_SECONDS)
        report = await self._store.read_report(times)
        return times, report if self._market_open else report._replace(new_listings=None, market_listings=None)
