"""Pictures that sellers upload: their names, paths and sizes.

A name is random and belongs to one account, so it reveals nothing about the picture.
"""

import re
import secrets
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

WIDTHS: Final = (400, 800, 1600)
"""The WebP variants, by longest side in pixels. A smaller picture is not enlarged."""

CACHE_CONTROL: Final = "public, max-age=31536000, s-maxage=86400, immutable"
"""The header of files."""

_NAME = r"([0-9a-f]{32})"
_URL = re.compile(rf"(?:(?i:https?)://[^/?#\s]+)?(?:/[^/?#\s]+)*/media/{_NAME}\.jpg", re.ASCII)
_FILE = re.compile(rf"{_NAME}(?:\.jpg|-(?:400|800|1600)\.webp)", re.ASCII)


class Picture(msgspec.Struct, frozen=True):
    """A picture of an account. Times are Unix times in seconds."""

    name: str  # 32 lower-case hexadecimal digits
    account_id: int
    width: int  # of the JPEG, in pixels
    height: int
    size: int  # bytes of all files
    created_at: int  # or the last upload of the same bytes
    unused_since: int | None = None  # None: a listing shows it, or no sweep has run since its upload
    file_name: str = ""  # as uploaded; may be empty


class Sweep(NamedTuple):
    """The result of a sweep of an account's listings, and the unused pictures to delete. Times are Unix times."""

    used: Collection[str]  # the names of pictures in listings
    edit_revision: int  # when the listings were read
    now: int
    unused_before: int  # pictures that have been unused since before this are deleted
    room: int = 0  # bytes to free in addition, the longest unused first
    room_before: int = 0  # of pictures that have been unused since before this


def create_name() -> str:
    """Return a new random name."""
    return secrets.token_hex(16)


def find_name(url: str) -> str | None:
    """Return the name of the picture that a URL may show, or None. Host and path prefix may be of any service."""
    match = _URL.fullmatch(url)
    return match[1] if match is not None else None


def parse_file(file: str) -> str | None:
    """Return the name of the picture that a file such as `NAME-400.webp` belongs to, or None if there is none."""
    match = _FILE.fullmatch(file)
    return match[1] if match is not None else None


def list_files(name: str) -> tuple[str, ...]:
    """Return the names of a picture's files: the JPEG, then the variants."""
    return (f"{name}.jpg", *(f"{name}-{width}.webp" for width in WIDTHS))


def get_media_type(file: str) -> str:
    """Return the type of a picture's file."""
    return "image/jpeg" if file.endswith(".jpg") else "image/webp"


def build_path(name: str, prefix: str = "") -> str:
    """Return the URL path of the JPEG. `prefix` is that of the service."""
    return f"{prefix}/media/{name}.jpg"


def compute_size(width: int, height: int, side: int) -> tuple[int, int]:
    """Return the size of a picture in a variant whose longest side is at most `side`."""
    factor = min(1.0, side / max(width, height))
    return max(1, round(width * factor)), max(1, round(height * factor))
