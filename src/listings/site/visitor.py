"""Who asks, and by which address: forwarded headers count only from proxies that the operator named."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request

from listings.site.context import Network, site_of

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_NOWHERE = "localhost"


def address_of(request: Request) -> str:
    """The visitor's address.

    Behind trusted proxies that is the last one in X-Forwarded-For that is none of theirs: what stands before it, the
    visitor may have written.
    """
    trusted = site_of(request).options.trusted_proxies
    address = _peer(request)
    if not _is_among(address, trusted):
        return address
    for hop in reversed(",".join(request.headers.getlist("x-forwarded-for")).split(",")):
        plain = _plain(hop)
        if plain is None:
            return address
        address = plain
        if not _is_among(address, trusted):
            return address
    return address


def scheme_of(request: Request) -> str:
    """What the visitor speaks, "http" or "https"; a trusted proxy tells it by X-Forwarded-Proto."""
    options = site_of(request).options
    if options.base_url:
        return urlsplit(options.base_url).scheme
    if _is_among(_peer(request), options.trusted_proxies):
        told = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if told in {"http", "https"}:
            return told
    return str(request.scope.get("scheme", "http"))


def host_of(request: Request) -> str:
    """The Host header where it is the name of a host, and may have a port."""
    host = request.headers.get("host", "")
    return host if _HOST.fullmatch(host) else _NOWHERE


def base_url_of(request: Request) -> str:
    """Where the site is, without a slash at the end: as the operator has set it, else as the visitor calls it."""
    return site_of(request).options.base_url or f"{scheme_of(request)}://{host_of(request)}"


def _peer(request: Request) -> str:
    client = request.scope.get("client")
    return _plain(client[0]) or "" if client else ""


def _plain(text: str) -> str | None:
    """An address in its one form, without a port; None for what is no address."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_among(address: str, networks: tuple[Network, ...]) -> bool:
    return bool(address and networks) and any(ip_address(address) in network for network in networks)
