"""Random tokens for sessions, invitations, browsers and links in emails. The database stores only their hashes."""

import re
import secrets
from hashlib import sha256

RESET = "reset-"  # begins the token of a link that was mailed to the address of its account

_TOKEN = re.compile(rf"(?:{RESET})?[A-Za-z0-9_-]{{43}}")


def create_token() -> str:
    """Return a new random token."""
    return secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Return whether a string has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def hash_token(token: str) -> bytes:
    """Return the hash by which a token is stored."""
    return sha256(token.encode("ascii", "replace")).digest()
