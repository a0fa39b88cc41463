"""Prices, places, dates and texts as people in New Zealand write them. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from listings.domain import timestamps
from listings.domain.errors import Problem

TYPES: Mapping[str, str] = {"product": "For sale", "service": "Service", "rental": "Rental", "job": "Job"}
"""What one listing of a type is called."""

GROUPS: Mapping[str, str] = {"product": "For sale", "service": "Services", "rental": "Rentals", "job": "Jobs"}
"""What all of a type are called."""

_UNITS = {"per_hour": " per hour", "per_night": " per night", "negotiable": ", negotiable"}
_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    *(("iPhone", "an iPhone"), ("iPad", "an iPad"), ("Android", "Android"), ("Windows", "Windows")),
    *(("Mac OS", "a Mac"), ("Linux", "Linux")),
)
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_RECENT_DAYS = 7
_LINE = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")


def price_of(cents: int, price_type: str) -> str:
    """Such as "$1,999.00", "$35 per hour", "$500, negotiable"; a price of 0 is none (decision G5)."""
    return "".join(price_parts(cents, price_type))


def price_parts(cents: int, price_type: str) -> tuple[str, str]:
    """A price's amount, and what stands behind it: ("$35", " per hour")."""
    if cents == 0:
        return "Price on request", ""
    unit = _UNITS.get(price_type, "")
    return f"${cents // 100:,}" if unit and cents % 100 == 0 else f"${cents / 100:,.2f}", unit


def place_of(*parts: str) -> str:
    """From the nearest to the widest, such as "Te Aro, Wellington"; what the nearer ends with is not said again."""
    place = ""
    for part in filter(None, map(str.strip, parts)):
        if not place.casefold().endswith(part.casefold()):
            place = f"{place}, {part}" if place else part
    return place


def suburb_of(location: str) -> str:
    """What of a location tells most in few words: "Te Aro" of "12 Cuba Street, Te Aro"."""
    return location.rpartition(",")[2].strip()


def age_of(created_at: str, now: float) -> str:
    """How long ago that was, in words; after a week, the day."""
    seconds = max(0, int(now) - timestamps.parse_timestamp(created_at))
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return _ago(seconds // _MINUTE, "minute")
    if seconds < _DAY:
        return _ago(seconds // _HOUR, "hour")
    if seconds < _RECENT_DAYS * _DAY:
        return _ago(seconds // _DAY, "day")
    return day_of(created_at)


def day_of(created_at: str) -> str:
    """The day in New Zealand, such as "9 November 2026"."""
    day = datetime.fromtimestamp(timestamps.parse_timestamp(created_at), _zone())
    return f"{day.day} {day:%B %Y}"


def date_of(moment: int) -> str:
    """The day in New Zealand, in short: "9 Nov 2026"."""
    day = _local(moment)
    return f"{day.day} {day:%b %Y}"


def moment_of(moment: int) -> str:
    """Day and time in New Zealand: "9 Nov 2026, 2:05 pm"."""
    return f"{date_of(moment)}, {_time_of_day(_local(moment))}"


def hour_of(moment: int) -> str:
    """The hour in New Zealand: "9 Nov, 2 pm"."""
    hour = _local(moment)
    return f"{hour.day} {hour:%b}, {_time_of_day(hour).replace(':00', '')}"


def utc_day_of(moment: int) -> str:
    """A day as the service counts them, which is by UTC: "9 Nov"."""
    day = datetime.fromtimestamp(moment, UTC)
    return f"{day.day} {day:%b}"


def end_of_day(text: str) -> int | None:
    """When a day ends in New Zealand that a form has sent as YYYY-MM-DD; None for none. Raises Problem."""
    if not text.strip():
        return None
    try:
        day = datetime.fromisoformat(text.strip()).replace(hour=0, minute=0, second=0, tzinfo=_zone())
        return int((day + timedelta(days=1)).timestamp())
    except (ValueError, OverflowError):
        raise Problem("invalid_request", "Write the day as year-month-day, like 2027-03-31") from None


def machine_moment_of(moment: int) -> str:
    """The moment as machines read it."""
    return machine_time_of(timestamps.format_timestamp(moment))


def browser_of(agent: str) -> str:
    """What people call a browser and where it runs, such as "Firefox on Windows", by what it calls itself."""
    names = ((name, told) for name, told in _BROWSERS if name in agent)
    systems = (told for name, told in _SYSTEMS if name in agent)
    browser, system = next((told for _, told in names), "A browser"), next(systems, "")
    return f"{browser} on {system}" if system else browser


def code_parts_of(text: str) -> list[tuple[str, bool]]:
    """A sentence in parts, and which of them stood between backticks."""
    return [(part, number % 2 == 1) for number, part in enumerate(text.split("`"))]


def machine_time_of(created_at: str) -> str:
    """The moment as machines read it, such as "2026-11-09T10:00:00Z"."""
    return created_at.replace(" ", "T") + "Z"


def paragraphs_of(text: str) -> list[list[str]]:
    """Paragraphs of lines, as the seller has broken them."""
    paragraphs: list[list[str]] = [[]]
    for line in _LINE.split(text):
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return [lines for lines in paragraphs if lines]


def summary_of(text: str, most: int = 200) -> str:
    """The beginning of a text in one line."""
    line = _SPACE.sub(" ", text[: 4 * most]).strip()
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def count_of(number: int, unit: str) -> str:
    """Such as "1 view", "1,234 views"."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def size_of(count: int) -> str:
    """Bytes as people say them: "2 MB", "50 kB"."""
    for unit, size in (("MB", 1024 * 1024), ("kB", 1024)):
        if count >= size:
            return f"{count / size:,.1f}".removesuffix(".0") + f" {unit}"
    return count_of(count, "byte")


def pictures_of(images: str) -> list[str]:
    """Those addresses of a listing's pictures that a page may show."""
    return [address for address in msgspec.json.decode(images, type=list[str]) if picture_of(address)]


def picture_of(address: str) -> str:
    """The address where it is absolute, by http or https; "" otherwise (decision G3)."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return address if parts.scheme in {"http", "https"} and parts.netloc else ""


def map_of(latitude: float | None, longitude: float | None) -> str:
    """Where a map shows the place; "" where it is not known."""
    if latitude is None or longitude is None:
        return ""
    place = f"{latitude:.5f}", f"{longitude:.5f}"
    return f"https://www.openstreetmap.org/?mlat={place[0]}&mlon={place[1]}#map=15/{place[0]}/{place[1]}"


def in_order(names: Sequence[str]) -> list[str]:
    """As people look them up."""
    return sorted(names, key=lambda name: (name.casefold(), name))


def _local(moment: int) -> datetime:
    return datetime.fromtimestamp(moment, _zone())


def _time_of_day(moment: datetime) -> str:
    return f"{moment.hour % 12 or 12}:{moment:%M} {'am' if moment.hour < 12 else 'pm'}"  # noqa: PLR2004 - noon


def _ago(number: int, unit: str) -> str:
    return f"{count_of(number, unit)} ago"


@cache
def _zone() -> tzinfo:
    try:
        return ZoneInfo("Pacific/Auckland")
    except ZoneInfoNotFoundError:  # a system without the world's zones
        return UTC
