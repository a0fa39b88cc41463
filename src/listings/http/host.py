"""Hosts that a request may name, which are also safe in links: domain names and IP addresses.

RFC 3986, 3.2.2 also permits other characters, such as the comma, and longer names, but no name in the DNS has them.
"""

import re
from ipaddress import AddressValueError, IPv6Address

_HOST = re.compile(
    rb"(?:(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{0,5}))?"
)
_MAX_NAME_LENGTH = 254  # with the dot at its end
_MAX_PORT = 65_535


def choose_host(value: str) -> str:
    """Return the host to use in links: the Host header, or "localhost" if it is not safe in a link."""
    host = value.strip(" \t")
    return host if is_host(host.encode()) else "localhost"


def is_host(value: bytes) -> bool:
    """Return whether this is a host with an optional port. No http URL has an empty host (RFC 9110, 4.2.1)."""
    match = _HOST.fullmatch(value.strip(b" \t"))
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return False
    if match["ipv6"] is None:
        return len(match["name"]) <= _MAX_NAME_LENGTH
    try:
        IPv6Address(match["ipv6"].decode("ascii"))
    except AddressValueError:
        return False
    return True
