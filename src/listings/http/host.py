"""The syntax of a Host header (RFC 9110, 7.2; RFC 3986, 3.2.2), and the host to use in links."""

import re
from ipaddress import AddressValueError, IPv6Address

_HOST = re.compile(
    rb"""
    (?: \[ (?: (?P<ipv6>[0-9A-Fa-f:.]+) | [vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+ ) \]
      | (?: [A-Za-z0-9._~!$&'()*+,;=-] | %[0-9A-Fa-f]{2} )* )
    (?: :[0-9]* )?
    """,
    re.VERBOSE,
)

_IN_LINKS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def choose_host(value: str) -> str:
    """Return the host to use in links: the Host header, or "localhost" if it is not safe in a link."""
    return value if _IN_LINKS.fullmatch(value) else "localhost"


def is_host(value: bytes) -> bool:
    """Return whether this is a host with an optional port. RFC 9112, 3.2 permits an empty host."""
    match = _HOST.fullmatch(value.strip(b" \t"))
    return match is not None and (match["ipv6"] is None or _is_ipv6(match["ipv6"]))


def _is_ipv6(text: bytes) -> bool:
    try:
        IPv6Address(text.decode("ascii"))
    except AddressValueError:
        return False
    return True
