"""UTC timestamps: seconds since 1970, or `YYYY-MM-DD HH:MM:SS` in listings and outside the program (decision G7).

Pages and mail show the time in New Zealand.
"""

import calendar
import re
import time
from datetime import MAXYEAR, UTC, datetime, tzinfo
from functools import cache, lru_cache
from math import floor
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from listings.domain.errors import Problem

HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS
MICROSECONDS_PER_SECOND = 1_000_000
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d))?", re.ASCII)
_MAX_LOCAL = 253_402_214_400  # 9999-12-31 in UTC: half a day later, the year 10000 begins in New Zealand


def format_timestamp(seconds: float) -> str:
    """Return the time as `YYYY-MM-DD HH:MM:SS`. Fractions of a second are cut, not rounded."""
    return _format_second(floor(seconds))


@lru_cache(maxsize=16)  # most timestamps are of the current second
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second)).zfill(19)  # %Y has no leading zeros


def parse_timestamp(text: str) -> int:
    """Return the seconds since 1970 of `YYYY-MM-DD HH:MM:SS`, or of `YYYY-MM-DD` at 00:00:00.

    Raises ValueError for any other text.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date: write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS, in UTC")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from None


def add_months(seconds: float, months: int) -> int:
    """Return the same time of day `months` calendar months later, in seconds since 1970.

    The result is on the last day of its month if the month is too short. Raises Problem("invalid_request") if it is
    after the year 9999.
    """
    start = datetime.fromtimestamp(seconds, UTC)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    if year > MAXYEAR:
        raise Problem(
            "invalid_request", f"{months} {'month' if months == 1 else 'months'} would end after the year 9999"
        )
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return int(start.replace(year=year, month=month + 1, day=day, microsecond=0).timestamp())


@cache
def get_zone() -> tzinfo:
    """Return the time zone of New Zealand, or UTC on a system without the time zone database."""
    try:
        return ZoneInfo("Pacific/Auckland")
    except ZoneInfoNotFoundError:
        return UTC


def to_local(moment: int) -> datetime:
    """Return a Unix time as date and time in New Zealand."""
    return datetime.fromtimestamp(min(moment, _MAX_LOCAL), get_zone())


def format_date(moment: int) -> str:
    """Return the short date in New Zealand, such as "9 Nov 2026"."""
    day = to_local(moment)
    return f"{day.day} {day:%b %Y}"
