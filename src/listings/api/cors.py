"""Cross-origin requests of browsers, for the origins that the operator named (decision G19); none by default."""

from collections.abc import Collection

from listings.api.request import Request
from listings.api.wire import Answer, Headers

ANY = "*"
_EXPOSED = (
    b"location, link, retry-after, x-request-id, x-error-code, x-ignored-fields, preference-applied, "
    b"ratelimit, ratelimit-policy, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
)
_MAX_AGE = b"600"


def is_preflight(request: Request, origins: Collection[str]) -> bool:
    """Whether the browser of a named origin asks if it may send a request."""
    asks = request.method == "OPTIONS" and bool(request.header(b"access-control-request-method"))
    return asks and _is_named(request.header(b"origin"), origins)


def origin_headers(request: Request, origins: Collection[str]) -> Headers:
    """What lets the page of a named origin read the answer; for any other origin only that answers vary."""
    origin = request.header(b"origin")
    if not _is_named(origin, origins):
        return [(b"vary", b"origin")]
    return [
        (b"vary", b"origin"),
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
    ]


def preflight_answer(allowed: str) -> Answer:
    """Which methods and headers a page may send."""
    return Answer(
        200,
        b"{}",
        [
            (b"access-control-allow-methods", allowed.encode()),
            (
                b"access-control-allow-headers",
                b"authorization, content-type, prefer, x-api-key, x-request-id",
            ),
            (b"access-control-max-age", _MAX_AGE),
        ],
    )


def _is_named(origin: str, origins: Collection[str]) -> bool:
    return bool(origin) and (origin in origins or ANY in origins)
