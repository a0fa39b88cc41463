"""Moments in UTC: as seconds since 1970 inside, as `YYYY-MM-DD HH:MM:SS` outside (decision G7)."""

import calendar
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from math import floor

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d))?", re.ASCII)


def text_of(moment: float) -> str:
    """The moment as `YYYY-MM-DD HH:MM:SS`, whole seconds, cut and not rounded."""
    return _text_of_second(floor(moment))


@lru_cache(maxsize=16)  # what is made now is made in the same second as much else
def _text_of_second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second)).zfill(19)  # %Y has no leading zeros


def moment_of(text: str) -> int:
    """Seconds since 1970 of `YYYY-MM-DD` (00:00:00) or `YYYY-MM-DD HH:MM:SS`; ValueError for anything else."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date: write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS, in UTC")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from None


def add_months(moment: float, months: int) -> int:
    """The same time of day `months` calendar months later, on the month's last day where it is shorter.

    ValueError when that lies beyond the year 9999.
    """
    start = datetime.fromtimestamp(moment, UTC)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    if year > 9999:  # noqa: PLR2004 - the last year of the four-digit form
        raise ValueError(f"{months} {'month leads' if months == 1 else 'months lead'} beyond the year 9999")
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return int(start.replace(year=year, month=month + 1, day=day, microsecond=0).timestamp())
