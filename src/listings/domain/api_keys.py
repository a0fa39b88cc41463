"""Generate, validate, hash and mask API keys (decision G24)."""

import re
import secrets
import string
import zlib
from hashlib import sha256

PREFIX = "lst_"
TEST_PREFIX = "lst_test_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_LENGTH = 32  # 190 bits
_CHECKSUM_LENGTH = 6  # 62**6 > 2**32
_GENERATED = re.compile(f"{PREFIX}(?:test_)?[0-9A-Za-z]{{{_RANDOM_LENGTH + _CHECKSUM_LENGTH}}}")
_TRUNCATED = re.compile(f"{PREFIX}(test_)?[0-9A-Za-z]{{0,{_RANDOM_LENGTH + _CHECKSUM_LENGTH - 1}}}")
_QUOTED = re.compile(rf"([\"']){_GENERATED.pattern}\1")
_WITH_SCHEME = re.compile(r"bearer[ \t].*", re.IGNORECASE | re.DOTALL)
_IMPORTED = re.compile(r"[\x21-\x7e]{16,200}")


def generate(*, is_test: bool = False) -> str:
    """Return a new random key: `lst_` or `lst_test_`, 32 base62 characters and a checksum of 6 characters."""
    body = (TEST_PREFIX if is_test else PREFIX) + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return body + compute_checksum(body)


def compute_checksum(text: str) -> str:
    """Return the CRC32 of the text as six base62 characters."""
    rest, last = divmod(zlib.crc32(text.encode()), len(_PAIRS))
    first, middle = divmod(rest, len(_PAIRS))
    return _PAIRS[first] + _PAIRS[middle] + _PAIRS[last]


def is_well_formed(key: str) -> bool:
    """Return whether the text can be a key.

    A key that begins with `lst_` needs a valid checksum. Any other key was imported from an older system and has
    16 to 200 visible ASCII characters.
    """
    if not key.startswith(PREFIX):
        return _IMPORTED.fullmatch(key) is not None
    return (
        _GENERATED.fullmatch(key) is not None and compute_checksum(key[:-_CHECKSUM_LENGTH]) == key[-_CHECKSUM_LENGTH:]
    )


def describe_defect(key: str) -> str:
    """Return what the text alone shows to be wrong with a key, or "". No well-formed key has such a defect."""
    if _WITH_SCHEME.fullmatch(key) is not None:
        return 'it contains "Bearer"; send only the key in X-API-Key, or "Bearer" once in Authorization'
    if _QUOTED.fullmatch(key) is not None:
        return "it is in quotes; send only the key"
    truncated = _TRUNCATED.fullmatch(key)
    if truncated is not None and truncated[1]:
        return "it is truncated; a key that begins with lst_test_ has 47 characters"
    if truncated is not None:
        return "it is truncated; a key that begins with lst_ has 42 characters"
    return ""


def digest(key: str) -> bytes:
    """Return the SHA-256 under which a key is stored. A key has enough entropy that a slow hash would add nothing."""
    return sha256(key.encode()).digest()


def mask_keys(text: str) -> str:
    """Mask the generated keys in a string. A caller may have put one where it does not belong, such as in a path."""
    return _GENERATED.sub(lambda found: mask(found[0]), text)


def mask(key: str) -> str:
    """Return the first four characters of a key, or `lst_test_`, and the last four: they may be shown later."""
    return f"{TEST_PREFIX if key.startswith(TEST_PREFIX) else key[:4]}…{key[-4:]}"
