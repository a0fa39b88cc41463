"""CORS for the origins that the operator has configured (decision G19). None by default."""

from collections.abc import Collection

from listings.api.codec import Response
from listings.api.request import Request

ANY = "*"
_EXPOSED = (
    "etag, idempotent-replayed, link, location, retry-after, x-request-id, x-error-code, x-ignored-fields, "
    "x-ignored-parameters, x-next-cursor, x-total-count, preference-applied, x-test-mode, ratelimit, ratelimit-policy, "
    "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
)
_PREFLIGHT = (
    "access-control-allow-methods: {methods}\r\n"
    "access-control-allow-headers: authorization, content-type, idempotency-key, if-match, if-none-match, prefer, "
    "x-api-key, x-change-group, x-request-id\r\n"
    "access-control-max-age: 600\r\n"
)


def is_preflight(request: Request, origins: Collection[str]) -> bool:
    """Return whether this is a preflight request from an allowed origin."""
    preflight = request.method == "OPTIONS" and bool(request.header(b"access-control-request-method"))
    return preflight and _is_allowed(request.header(b"origin"), origins)


def format_origin_headers(request: Request, origins: Collection[str]) -> bytes:
    """Return the headers that let pages of an allowed origin read the response."""
    origin = request.header(b"origin")
    if not _is_allowed(origin, origins):
        return b""
    lines = f"access-control-allow-origin: {origin}\r\naccess-control-expose-headers: {_EXPOSED}\r\n"
    return lines.encode("latin-1")


def format_vary(origins: Collection[str], *, compressible: bool) -> bytes:
    """Return Vary, or nothing if the response depends on no header of the request."""
    names = [*(["accept-encoding"] if compressible else []), *(["origin"] if origins else [])]
    return f"vary: {', '.join(names)}\r\n".encode() if names else b""


def build_preflight_response(allowed: str) -> Response:
    """Return the methods and headers that a page may send. `allowed` are the methods of the path."""
    return Response(200, b"{}", _PREFLIGHT.format(methods=allowed).encode())


def _is_allowed(origin: str, origins: Collection[str]) -> bool:
    return bool(origin) and (origin in origins or ANY in origins)
