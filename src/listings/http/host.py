"""The syntax of a Host header (RFC 9110, 7.2; RFC 3986, 3.2.2)."""

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
