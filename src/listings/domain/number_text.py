"""Numbers as texts: counts, and prices as people write them in forms and in CSV files."""

import re

_GROUPING = re.compile(r"[\s,]")
_PRICE = re.compile(r"\$?\s*(-?(?:[0-9]{1,3}(?:[\s,][0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,20})?)")


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
