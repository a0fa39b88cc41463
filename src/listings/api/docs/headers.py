"""Every request header that the API uses and every response header, with its OpenAPI schema."""

from collections.abc import Mapping

from listings.api import codec
from listings.api.docs.operations import ERROR_DOCS
from listings.api.docs.schemas import Schema

_STRING: Schema = {"type": "string"}
_STRICT, _REPRESENTATION = "handling=strict", "return=representation"
_COUNT: Schema = {"type": "integer", "minimum": 0}

_TAG = r'(?:(?:W/)?"[ !#-~]*"|\*)'

_REQUEST_HEADERS: Mapping[str, tuple[str, Schema, str]] = {
    "X-Request-Id": (
        (
            "Your own id for the request, which the response repeats: 1 to 128 visible ASCII characters. The service "
            "replaces any other value by a generated id."
        ),
        _STRING,
        "import-2026-11-21-0042",
    ),
    "Prefer": (
        (
            "`handling=strict` rejects fields and parameters that are ignored otherwise, and relative image URLs. "
            "`return=representation` returns the whole record after a create, an update or a restore (RFC 7240)."
        ),
        _STRING,
        "handling=strict",
    ),
    "If-None-Match": ("The ETag of your copy. Returns 304 if your copy is current.", _STRING, '"v1.0"'),
    "If-Match": (
        "The ETag of the listing as you read it, several ETags, or `*`. Returns 412 if the listing has changed since.",
        _STRING | {"pattern": rf"^(?:[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*)?$"},
        "*",
    ),
    "Idempotency-Key": (
        (
            "Your own id for this write: 1 to 255 visible ASCII characters, with or without quotes. A request repeated "
            "within 24 hours with the same key and body returns the first response without writing again. Rejected "
            "requests do not use up the key."
        ),
        _STRING | {"pattern": '^(?:"[ -~]{1,255}"|[!#-~][ -~]{0,254})?$'},
        '"bike-42"',
    ),
}

_RESPONSE_HEADERS: Mapping[str, tuple[str, Schema, bool]] = {
    "Date": ("Time of the response.", _STRING, True),
    "X-Request-Id": (
        "The request id: yours, if you sent a valid one, or a generated one.",
        _STRING | {"minLength": 1, "maxLength": 128},
        True,
    ),
    "X-Content-Type-Options": ("Tells browsers to trust Content-Type.", {"const": "nosniff"}, True),
    "Content-Length": ("Length of the body in bytes. Not sent with 304.", _COUNT, False),
    "Cache-Control": (
        "Responses with an ETag may be cached and revalidated with If-None-Match; others must not be cached.",
        _STRING | {"enum": ["no-store", "private, no-cache"]},
        True,
    ),
    "Vary": ("Sent if the operator has enabled CORS: responses depend on the origin.", {"const": "origin"}, False),
    "Access-Control-Allow-Origin": ("The origin whose web pages may read the response.", _STRING, False),
    "Access-Control-Expose-Headers": ("The headers that those web pages may read.", _STRING, False),
    "RateLimit-Policy": ("The rate limit of your key: `q` requests in a window of `w` seconds.", _STRING, False),
    "RateLimit": (
        "The current state: `r` requests remain, and in `t` seconds one more becomes available.",
        _STRING,
        False,
    ),
    "X-RateLimit-Limit": ("Maximum number of requests in a window.", _COUNT, False),
    "X-RateLimit-Remaining": ("Remaining requests.", _COUNT, False),
    "X-RateLimit-Reset": (
        "Unix time at which the oldest counted request leaves the window and one more becomes available.",
        _COUNT,
        False,
    ),
    "X-Error-Code": ("The error code, for programs.", {"type": "string", "enum": list(ERROR_DOCS)}, True),
    "Retry-After": ("Seconds to wait before retrying.", _COUNT | {"minimum": 0}, True),
    "WWW-Authenticate": ("How to send the API key.", _STRING | {"pattern": '^Bearer realm="listings"'}, True),
    "Allow": ("The methods that the path supports.", _STRING, True),
    "Location": ("URL of the new listing.", _STRING | {"pattern": rf"^{codec.LISTINGS_PATH}/[1-9][0-9]*$"}, True),
    "ETag": ("Entity tag of the response, for If-None-Match and If-Match.", _STRING | {"pattern": '^".+"$'}, False),
    "Link": ('URL of the next page, as `<…>; rel="next"`. Not sent with the last page (RFC 8288).', _STRING, False),
    "Idempotent-Replayed": ("The write was applied before; this is its first response.", {"const": "true"}, False),
    "X-Ignored-Fields": ("The first 20 ignored fields of the body, percent-encoded.", _STRING, False),
    "X-Ignored-Parameters": ("The first 20 unknown query parameters, percent-encoded.", _STRING, False),
    "Preference-Applied": (
        "The preferences that were applied.",
        _STRING | {"enum": [_STRICT, _REPRESENTATION, f"{_STRICT}, {_REPRESENTATION}"]},
        False,
    ),
    "Content-Security-Policy": ("Restricts what the page may load to this service.", _STRING, True),
    "Referrer-Policy": ("Keeps the page's URL from other sites.", {"const": "no-referrer"}, True),
}

COMMON_HEADERS = (
    "Date",
    "X-Request-Id",
    "X-Content-Type-Options",
    "Content-Length",
    "Cache-Control",
    "Vary",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
)
RATE_LIMIT_HEADERS = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)


def build_parameters() -> dict[str, Schema]:
    """Return the request headers as OpenAPI parameters, by name."""
    return {
        name: {"name": name, "in": "header", "description": text, "schema": schema, "example": example}
        for name, (text, schema, example) in _REQUEST_HEADERS.items()
    }


def build_headers() -> dict[str, Schema]:
    """Return the response headers as OpenAPI headers, by name."""
    return {
        name: {"description": text, "required": always, "schema": schema}
        for name, (text, schema, always) in _RESPONSE_HEADERS.items()
    }
