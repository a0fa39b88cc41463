"""The drawing and the color of each category. Both are classes of the style sheet, so that they follow the theme."""

import re
from collections.abc import Mapping
from zlib import crc32

_TINTS = 6
_DRAWINGS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"\b(?:{words})")
    for name, words in {
        "furniture": "furni|chair|table|sofa|bed",
        "pottery": "potter|glass|ceramic|art|collect|antique",
        "tools": "tool|trade|build|diy|hardware",
        "bicycles": "bicycl|bike|cycl",
        "boats": "boat|marine|kayak|canoe|fish|surf",
        "vehicles": r"cars?\b|vehicle|motor|vans?\b|truck|transport",
        "music": "music|instrument|guitar|piano|record",
        "books": "book|educat|tutor|school|teach|lesson",
        "electronics": r"electron|computer|phone|camera|tv\b|it\b",
        "garden": "garden|plant|farm|agri|orchard|nurser|animal",
        "clothing": "cloth|fashion|shoe|wear|baby",
        "rental": "home|house|holiday|bach|flat|room|accommodation|cabin",
        "outdoors": "outdoor|sport|camp|tramp|ski",
    }.items()
}


def choose_art(listing_type: str, category: str) -> str:
    """Return the classes of a listing's drawing, such as "art-3 bicycles"."""
    folded = category.casefold()
    drawing = next((name for name, words in _DRAWINGS.items() if words.search(folded)), listing_type)
    return f"art-{crc32((folded or listing_type).encode()) % _TINTS + 1} {drawing}"
