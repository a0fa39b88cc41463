"""Numbers as texts: counts, and numbers and prices as people write them in forms and in CSV files."""

import re

_INTEGER = re.compile(r"-?\d{1,15}", re.ASCII)  # a float represents 15 digits exactly
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_MAX_NUMBER_LENGTH = 1_000
_GROUPING = re.compile(r"[\s,'\u2019]")
_PRICE = re.compile(
    r"(?:NZ\$|NZD|\$)?\s*+(-?(?:[0-9]{1,3}(?:[\s,'\u2019][0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,20})?)"
    r"\s*+(?:NZD|NZ\$)?\s*+(?:each|ea\.?)?",
    re.IGNORECASE,
)


def read_number(text: str) -> object:
    """Return the number "-41.29", "99" or "4.5e3", None if the text is blank, or the text itself if it is invalid."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    if len(stripped) <= _MAX_NUMBER_LENGTH and _NUMBER.fullmatch(stripped):
        return float(stripped)
    return text if stripped else None


def read_price(text: str) -> object:
    """Return the amount of a price or a number, None if the text is blank, or the text itself if it is invalid."""
    amount = parse_price(text)
    return read_number(text) if amount is None else amount


def parse_price(text: str) -> float | None:
    """Return the amount in dollars of "$1,250.50", "99" or "1 250", or None if the text is not a price."""
    match = _PRICE.fullmatch(text.strip())
    if match is None:
        return None
    digits = _GROUPING.sub("", match[1])
    return float(digits) if "." in digits else int(digits)


def format_count(number: int, unit: str) -> str:
    """Return a number with its unit, such as "1 listing" or "1,234 listings"."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"
