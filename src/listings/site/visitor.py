"""Client IP address, scheme and host of a request. Forwarded headers are used only if a trusted proxy sends them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request

from listings.http.asgi import ASKING_BYTES, Exchange, Owner
from listings.http.host import choose_host
from listings.service.members.attempts import find_network
from listings.site.context import Network, site_of

_SCHEME = "listings.scheme"
_MAX_ESCAPED_BYTES = 5  # a code point in HTML


def client_ip(request: Request) -> str:
    """Return the visitor's IP address.

    Behind trusted proxies, this is the last address in X-Forwarded-For that is not a trusted proxy. The visitor could
    have forged the addresses before it.
    """
    trusted = site_of(request).options.trusted_proxies
    address = _peer(request)
    if not _is_in(address, trusted):
        return address
    for hop in reversed(",".join(request.headers.getlist("x-forwarded-for")).split(",")):
        normalized = _normalize(hop)
        if normalized is None:
            return address
        address = normalized
        if not _is_in(address, trusted):
            return address
    return address


def owner_of(request: Request) -> Owner:
    """Return the owner of the response: the account of a signed-in member, or the visitor's network."""
    owner: Owner | None = request.scope.get("listings.owner")  # that all responses of a file share
    if owner is not None:
        return owner
    member = getattr(request.state, "member", None)
    return ("console", member.account.id) if member is not None else ("visitors", find_network(client_ip(request)))


def measure_html(text: object) -> int:
    """Return how many bytes a text may take in a page, and 0 for anything else."""
    return _MAX_ESCAPED_BYTES * len(text) if isinstance(text, str) else 0


def require_room(request: Request, size: int) -> None:
    """Reserve memory for a page of this many bytes, if it is large, before it is built.

    Raises Unavailable if the visitor has left too many bytes unread.
    """
    exchange: Exchange = request.scope["listings.exchange"]
    if size >= ASKING_BYTES:
        exchange.set_owner(owner_of(request))
        exchange.reserve(size)


@asynccontextmanager
async def searching(request: Request) -> AsyncIterator[None]:
    """Wait for the visitor's turn to search the market. Raises Unavailable, or ClientDisconnect."""
    async with site_of(request).services.searches.acquire(owner_of(request)):
        if await request.is_disconnected():
            raise ClientDisconnect
        yield


def scheme_of(request: Request) -> str:
    """Return the visitor's scheme, "http" or "https". A trusted proxy reports it in X-Forwarded-Proto."""
    scheme: str | None = request.scope.get(_SCHEME)
    if scheme is None:  # called about ten times per page; not cached, it took 10% of the page's time
        scheme = request.scope[_SCHEME] = _find_scheme(request)
    return scheme


def _find_scheme(request: Request) -> str:
    options = site_of(request).options
    if options.base_url:
        return urlsplit(options.base_url).scheme
    if _is_in(_peer(request), options.trusted_proxies):
        forwarded = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if forwarded in {"http", "https"}:
            return forwarded
    return str(request.scope.get("scheme", "http"))


def host_of(request: Request) -> str:
    """Return the Host header, with its port if it has one, or "localhost" if it is not a valid host."""
    return choose_host(request.headers.get("host", ""))


def base_url_of(request: Request) -> str:
    """Return the URL of the site without a trailing slash: the operator's setting, or as the visitor addressed it."""
    return site_of(request).options.base_url or f"{scheme_of(request)}://{host_of(request)}"


def _peer(request: Request) -> str:
    client = request.scope.get("client")
    return (_normalize(client[0]) or "") if client else ""


def _normalize(text: str) -> str | None:
    text = text.strip()  # it may have a port
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


@lru_cache(1024)
def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    return bool(address and networks) and any(ip_address(address) in network for network in networks)
