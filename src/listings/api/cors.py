"""Cross-origin requests of browsers, for the origins that the operator named (decision G19); none by default."""

from collections.abc import Collection

from listings.api.codec import Response
from listings.api.request import Request

ANY = "*"
_EXPOSED = (
    "etag, idempotent-replayed, link, location, retry-after, x-request-id, x-error-code, x-ignored-fields, "
    "preference-applied, ratelimit, ratelimit-policy, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
)
_PREFLIGHT = (
    "access-control-allow-methods: {methods}\r\n"
    "access-control-allow-headers: authorization, content-type, idempotency-key, if-match, if-none-match, prefer, "
    "x-api-key, x-request-id\r\n"
    "access-control-max-age: 600\r\n"
)


def is_preflight(request: Request, origins: Collection[str]) -> bool:
    """Whether the browser of a named origin asks if it may send a request."""
    asks = request.method == "OPTIONS" and bool(request.header(b"access-control-request-method"))
    return asks and _is_named(request.header(b"origin"), origins)


def origin_headers(request: Request, origins: Collection[str]) -> bytes:
    """What lets the page of a named origin read the answer; for any other origin only that answers vary."""
    origin = request.header(b"origin")
    if not _is_named(origin, origins):
        return b"vary: origin\r\n"
    lines = f"vary: origin\r\naccess-control-allow-origin: {origin}\r\naccess-control-expose-headers: {_EXPOSED}\r\n"
    return lines.encode("latin-1")


def preflight_response(allowed: str) -> Response:
    """Which methods and headers a page may send."""
    return Response(200, b"{}", _PREFLIGHT.format(methods=allowed).encode())


def _is_named(origin: str, origins: Collection[str]) -> bool:
    return bool(origin) and (origin in origins or ANY in origins)
