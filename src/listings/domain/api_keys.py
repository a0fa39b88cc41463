"""API keys: make, check, digest and mask them (decision G24). Pure but for the randomness of `make`."""

import re
import secrets
import string
import zlib
from hashlib import sha256

PREFIX = "lst_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_LENGTH = 32  # 190 bits
_CHECKSUM_LENGTH = 6  # 62**6 > 2**32
_GENERATED = re.compile(f"{PREFIX}[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECKSUM_LENGTH}}}")
_BROUGHT_ALONG = re.compile(r"[\x21-\x7e]{16,200}")


def make() -> str:
    """A new key: `lst_`, 32 random base62 characters, 6 characters of checksum."""
    body = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return body + checksum(body)


def checksum(text: str) -> str:
    """CRC32 of the text as six base62 characters."""
    rest, last = divmod(zlib.crc32(text.encode()), len(_PAIRS))
    first, middle = divmod(rest, len(_PAIRS))
    return _PAIRS[first] + _PAIRS[middle] + _PAIRS[last]


def is_well_formed(key: str) -> bool:
    """Whether the text can be a key at all: of our making with a right checksum, or 16-200 visible ASCII."""
    if not key.startswith(PREFIX):
        return _BROUGHT_ALONG.fullmatch(key) is not None
    return _GENERATED.fullmatch(key) is not None and checksum(key[:-_CHECKSUM_LENGTH]) == key[-_CHECKSUM_LENGTH:]


def digest(key: str) -> bytes:
    """What is stored of a key: its SHA-256. A key has too much entropy for a slow hash to add anything."""
    return sha256(key.encode()).digest()


def masked(text: str) -> str:
    """A text with every key of our making in it masked: somebody may have put one where none belongs."""
    return _GENERATED.sub(lambda found: mask(found[0]), text)


def mask(key: str) -> str:
    """What is shown of a key after its creation: the first four and the last four characters."""
    return f"{key[:4]}…{key[-4:]}"
