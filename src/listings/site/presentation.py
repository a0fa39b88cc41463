"""Formatting of prices, places, dates and texts for people in New Zealand. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from urllib.parse import urlsplit

import msgspec

from listings.domain import timestamps
from listings.domain.accounts import ENDING_DAYS, PLAN_ENDED
from listings.domain.errors import Problem
from listings.domain.model import ApiKey, KeyAccess, Listing
from listings.domain.number_text import format_count
from listings.domain.rate_limiter import RateLimiter
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS, format_date, get_zone, to_local

GROUPS: Mapping[str, str] = {"product": "For sale", "service": "Services", "rental": "Rentals", "job": "Jobs"}
"""Label of all listings of a type."""
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "product": (
        *("Animals", "Antiques", "Appliances", "Art", "Bicycles", "Boats", "Books", "Cars", "Clothing", "Electronics"),
        *("Furniture", "Garden", "Music", "Outdoors", "Plants", "Pottery and glass", "Sport", "Tools", "Toys"),
    ),
    "service": ("Beauty", "Childcare", "Cleaning", "Computers", "Events", "Gardening", "Lessons", "Moving", "Trades"),
    "rental": ("Campervans", "Event venues", "Flats", "Holiday homes", "Houses", "Storage", "Tools", "Vehicles"),
    "job": (
        *("Agriculture", "Construction", "Education", "Engineering", "Health", "Hospitality", "Information technology"),
        *("Office", "Retail", "Trades", "Transport"),
    ),
}
"""Categories that the form of a listing suggests, by type."""
KEY_ACCESS: Mapping[KeyAccess, str] = {"write": "Read and write", "read": "Read only"}
"""Label of the access of an API key."""

_UNITS = {"per_hour": " per hour", "per_night": " per night", "negotiable": " negotiable"}
_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    *(("iPhone", "an iPhone"), ("iPad", "an iPad"), ("Android", "Android"), ("Windows", "Windows")),
    *(("Mac OS", "a Mac"), ("Linux", "Linux")),
)
_MINUTE = 60
_PERIODS = ((DAY_SECONDS, "day"), (HOUR_SECONDS, "hour"), (_MINUTE, "minute"))
_SHORT_UNITS = {"day": "d", "hour": "h", "minute": "min"}
_RECENT_DAYS = 7
_LINE = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")
_NOT_IN_NUMBER = re.compile(r"[^0-9+]")


def format_price(cents: int, price_type: str) -> str:
    """Return a price such as "$1,999", "$35 per hour" or "$500 negotiable"; 0 means no price (decision G5)."""
    return "".join(price_parts(cents, price_type))


def price_parts(cents: int, price_type: str) -> tuple[str, str]:
    """Return the amount and the text after it, such as ("$35", " per hour")."""
    if cents == 0:
        return "Price on request", ""
    return format_dollars(cents), _UNITS.get(price_type, "")


def format_price_range(lowest: int | None, highest: int | None) -> str:
    """Return a price range in cents with at least one end: "$100 to $500", "From $100" or "Up to $500"."""
    if lowest == 1 and highest is not None:
        lowest = None  # one cent only excludes listings without a price
    ends = ["" if cents is None else format_dollars(cents) for cents in (lowest, highest)]
    if all(ends):
        return " to ".join(ends)
    return f"From {ends[0]}" if ends[0] else f"Up to {ends[1]}"


def format_place(*parts: str) -> str:
    """Join places from the narrowest to the widest, such as "Te Aro, Wellington", without repeating a name."""
    place = ""
    for part in filter(None, map(str.strip, parts)):
        if not place.casefold().endswith(part.casefold()):
            place = f"{place}, {part}" if place else part
    return place


def format_dollars(cents: int) -> str:
    """Return an amount such as "$1,999" or "$19.90"."""
    return f"${cents / 100:,.2f}".removesuffix(".00")


def format_bounded_count(number: int, unit: str, maximum: int) -> str:
    """Return a count that stops after `maximum`, such as "75 listings" or "Over 1,000 listings"."""
    return f"Over {format_count(maximum, unit)}" if number > maximum else format_count(number, unit)


def format_month(moment: int) -> str:
    """Return the month in New Zealand, such as "November 2026"."""
    return f"{to_local(moment):%B %Y}"


def contact_url(contact: str) -> str:
    """Return the URL of a seller's public contact: a web page, an email address or a phone number."""
    if contact.startswith(("http://", "https://")):
        return contact
    if "@" in contact:
        return f"mailto:{contact}"
    number = contact.replace("(0)", "") if contact.startswith("+") else contact  # from abroad, the 0 is not dialled
    return f"tel:{_NOT_IN_NUMBER.sub('', number)}"


def extract_suburb(location: str) -> str:
    """Return the last part of an address, such as "Te Aro" from "12 Cuba Street, Te Aro"."""
    return location.rpartition(",")[2].strip()


def format_age(created_at: str, now: float) -> str:
    """Return the time since `created_at`, such as "3 hours ago"; after a week, the date."""
    number, unit = _measure_age(created_at, now)
    recent = f"{format_count(number, unit)} ago" if number else unit
    return recent or format_day(created_at)


def format_short_age(created_at: str, now: float) -> str:
    """Return the time since `created_at` for a narrow card, such as "3 h"; after a week, ""."""
    number, unit = _measure_age(created_at, now)
    return f"{number} {_SHORT_UNITS[unit]}" if number else unit


def _measure_age(created_at: str, now: float) -> tuple[int, str]:
    seconds = max(0, int(now) - timestamps.parse_timestamp(created_at))
    if seconds < _MINUTE:
        return 0, "just now"  # instead of a unit
    length, unit = next(period for period in _PERIODS if seconds >= period[0])
    return (seconds // length, unit) if seconds < _RECENT_DAYS * DAY_SECONDS else (0, "")


def format_day(created_at: str) -> str:
    """Return the date in New Zealand, such as "9 November 2026"."""
    day = to_local(timestamps.parse_timestamp(created_at))
    return f"{day.day} {day:%B %Y}"


def format_moment(moment: int) -> str:
    """Return date and time in New Zealand, such as "9 Nov 2026, 2:05 pm"."""
    return f"{format_date(moment)}, {_format_time(to_local(moment))}"


def describe_plan_end(plan_expires_at: int | None, now: float) -> str:
    """Return a sentence about a plan that ends within 14 days or has ended, or "" if there is nothing to say."""
    if plan_expires_at is None or plan_expires_at - now > ENDING_DAYS * DAY_SECONDS:
        return ""
    date, days = format_date(plan_expires_at), ceil((plan_expires_at - now) / DAY_SECONDS)
    if days <= 0:
        return PLAN_ENDED.format(date)
    return f"Your Business plan ends {'within a day' if days == 1 else f'in {days} days'}, on {date}"


def format_hour(moment: int) -> str:
    """Return day and hour in New Zealand, such as "9 Nov, 2 pm"."""
    hour = to_local(moment)
    return f"{hour.day} {hour:%b}, {_format_time(hour).replace(':00', '')}"


def format_utc_day(moment: int) -> str:
    """Return the day in UTC, by which the service counts usage, such as "9 Nov"."""
    day = datetime.fromtimestamp(moment, UTC)
    return f"{day.day} {day:%b}"


def parse_end_of_day(text: str) -> int | None:
    """Return when a day (YYYY-MM-DD) ends in New Zealand; None for an empty text.

    Raises Problem("invalid_request").
    """
    if not text.strip():
        return None
    try:
        day = datetime.fromisoformat(text.strip()).replace(hour=0, minute=0, second=0, tzinfo=get_zone())
        return int((day + timedelta(days=1)).timestamp())
    except (ValueError, OverflowError):
        raise Problem("invalid_request", "Enter the date as year-month-day, for example 2027-03-31") from None


def moment_to_iso(moment: int) -> str:
    """Return the moment in ISO 8601, such as "2026-11-09T10:00:00Z"."""
    return timestamp_to_iso(timestamps.format_timestamp(moment))


def describe_browser(user_agent: str) -> str:
    """Return browser and system of a User-Agent, such as "Firefox on Windows"."""
    browsers = (name for mark, name in _BROWSERS if mark in user_agent)
    systems = (name for mark, name in _SYSTEMS if mark in user_agent)
    browser, system = next(browsers, "A browser"), next(systems, "")
    return f"{browser} on {system}" if system else browser


def timestamp_to_iso(timestamp: str) -> str:
    """Return a timestamp of the API in ISO 8601, such as "2026-11-09T10:00:00Z"."""
    return timestamp.replace(" ", "T") + "Z"


_MAX_LINES = 1_000  # rendering 50,000 takes 60 ms


def split_paragraphs(text: str) -> list[list[str]]:
    """Return the lines of each paragraph. A text of very many lines is one, which the style sheet breaks."""
    all_lines = _LINE.split(text)
    if len(all_lines) > _MAX_LINES:
        return [[text]]
    paragraphs: list[list[str]] = [[]]
    for line in all_lines:
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return [lines for lines in paragraphs if lines]


def summarize(text: str, max_length: int = 200) -> str:
    """Return the start of a text in one line."""
    line = _SPACE.sub(" ", text[: 4 * max_length]).strip()
    return line if len(line) <= max_length else line[: max_length - 1].rstrip() + "…"


def format_period(seconds: int) -> str:
    """Return a time as in "the last hour", "the last 2 hours" or "the last 90 seconds"."""
    length, unit = next((it for it in _PERIODS if seconds % it[0] == 0), (1, "second"))
    return unit if seconds == length else format_count(seconds // length, unit)


def format_wait(seconds: float) -> str:
    """Return when a time ends, rounded up, such as "in 12 minutes" or "in 3 hours"."""
    if seconds <= _MINUTE:
        return "in less than a minute"
    length, unit = next((it for it in _PERIODS if seconds > 2 * it[0]), (_MINUTE, "minute"))
    return f"in {format_count(ceil(seconds / length), unit)}"


def describe_key(key: ApiKey) -> str:
    """Return the name of a key with its hint, such as "Warehouse (lst_…x7Qa, read-only)"."""
    return f"{key.name} ({key.hint}{', read-only' if key.access == 'read' else ''})"


def format_request_limit(limiter: RateLimiter | None) -> str:
    """Return how many requests a key allows, such as "1,000 requests per hour"."""
    if limiter is None:
        return "any number of requests"
    return f"{format_count(limiter.limit, 'request')} per {format_period(limiter.window)}"


def format_size(count: int) -> str:
    """Return a number of bytes, such as "2 MB" or "50 kB"."""
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if count >= size:
            return f"{count / size:,.1f}".removesuffix(".0") + f" {unit}"
    return format_count(count, "byte")


def picture_url(url: str) -> str:
    """Return the URL if it is absolute with http or https, otherwise "" (decision G3)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return url if parts.scheme in {"http", "https"} and parts.netloc else ""


def round_coordinates(listing: Listing) -> Listing:
    """Return the listing with coordinates of two decimals, about a kilometre, so that no page shows a home."""
    latitude, longitude = (
        degrees if degrees is None else round(degrees, 2) + 0.0  # -0.0 + 0.0 is 0.0
        for degrees in (listing.latitude, listing.longitude)
    )
    return msgspec.structs.replace(listing, latitude=latitude, longitude=longitude)


def map_url(latitude: float | None, longitude: float | None) -> str:
    """Return the URL of a map, or "" if the coordinates are unknown."""
    if latitude is None or longitude is None:
        return ""
    north, east = (f"{degrees:.5f}".rstrip("0").rstrip(".") for degrees in (latitude, longitude))
    return f"https://www.openstreetmap.org/?mlat={north}&mlon={east}#map=15/{north}/{east}"


def sort_names(names: Sequence[str]) -> list[str]:
    """Sort names regardless of case."""
    return sorted(names, key=lambda name: (name.casefold(), name))


def _format_time(moment: datetime) -> str:
    return f"{moment.hour % 12 or 12}:{moment:%M} {('am', 'pm')[moment.hour // 12]}"
