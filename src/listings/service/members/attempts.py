"""Limits of what visitors and members may try in a period, such as signing in or sending a message."""

import ipaddress
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256

from listings.domain.errors import Problem
from listings.domain.members import AttemptLimit
from listings.store.store import Store

_log = logging.getLogger(__name__)

MAX_SECONDS = 3600  # the longest period of a limit, after which its count is deleted
_DEFAULT_SECONDS = 15 * 60
_IPV6_PREFIX_LENGTH = 64  # providers assign at least this network to one customer


class Attempts:
    """Counts attempts in the store."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def count(self, limits: Sequence[AttemptLimit], name: str = "attempts") -> None:
        """Count an attempt against each limit, up to the first that rejects it.

        `name` follows "Too many" in the error message. Raises Problem("too_many_attempts").
        """
        now = int(self._clock())
        ends_at = await self._store.count_attempt(limits, now)
        if ends_at is not None:
            _log.warning("Rejected a request: too many %s", name)
            seconds = max(1, ends_at - now)
            minutes = -(-seconds // 60)
            wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
            raise Problem("too_many_attempts", f"Too many {name}: wait {wait}, then try again", retry_after=seconds)

    async def undo(self, limits: Sequence[AttemptLimit]) -> None:
        await self._store.decrement_attempts([limit.subject for limit in limits])


def build_limit(max_attempts: int, kind: str, text: str, seconds: int = _DEFAULT_SECONDS) -> AttemptLimit:
    """Return the limit of attempts with the same `kind` and `text`.

    Only their hash is stored. That does not hide an IPv4 address, because all addresses can be tried.
    """
    subject = sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()
    return AttemptLimit(subject, max_attempts, seconds)


def find_network(address: str) -> str:
    """Return the addresses that one client may have: an IPv4 address or an IPv6 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_LENGTH), strict=False))
