"""Every request header that the API uses and every response header, with its OpenAPI schema."""

from collections.abc import Mapping
from typing import NamedTuple

from listings.api import codec
from listings.api.docs.schemas import refer
from listings.domain.rules import Schema

_STRING: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}

_TAG = r'(?:W/)?"[ !#-~]*"'


class _Header(NamedTuple):
    description: str
    example: object
    schema: Schema = _STRING
    required: bool = False


_REQUEST_HEADERS: Mapping[str, _Header] = {
    "X-Request-Id": _Header(
        "Your own id for the request, which the response repeats: 1 to 128 visible ASCII characters. The service "
        "replaces any other value with a generated id.",
        "import-2026-11-21-0042",
    ),
    "Prefer": _Header(
        "`handling=strict` rejects fields and parameters that are ignored otherwise, and relative image URLs. "
        "`return=representation` returns the whole record after a create, an update or a restore (RFC 7240). "
        "`Created` and `Confirmation` may therefore have the fields of a record. `errors=detailed` adds `errors` "
        "to error bodies and failed results: the field, a code and a sentence for each fault.",
        "handling=strict",
    ),
    "If-None-Match": _Header(
        "The ETag of your copy. A read returns 304 if your copy is current, a write of one listing 412.", '"v7.0"'
    ),
    "If-Match": _Header(
        "The ETag of the listing as you read it, several ETags, or `*`. Returns 412 if the listing has changed "
        "since. For a batch, the ETag of a list, or of the batch before.",
        "*",
        _STRING | {"pattern": rf"^(?:\*|[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*)?$"},
    ),
    "X-Change-Group": _Header(
        "A name for all writes of a run of your program, to undo them together: 1 to 64 visible ASCII characters, "
        "not beginning with `#`.",
        "night-2026-11-20",
        _STRING | {"pattern": f"^(?:{codec.CHANGE_GROUP.pattern})?$"},
    ),
    "Idempotency-Key": _Header(
        "Your own id for this write: 1 to 255 printable ASCII characters, with or without quotes. A request "
        "repeated within 24 hours with the same key and body returns the first response without writing again. "
        "Rejected requests, and batches that were undone, do not use up the key.",
        '"bike-42"',
        _STRING | {"pattern": '^(?:"[ -~]{1,255}"|[!#-~][ -~]{0,254})?$'},
    ),
}

_RESPONSE_HEADERS: Mapping[str, _Header] = {
    "Date": _Header("Time of the response.", "Sat, 21 Nov 2026 06:54:32 GMT", required=True),
    "X-Request-Id": _Header(
        "The request id: yours, if you sent a valid one, or a generated one.", "import-2026-11-21-0042", required=True
    ),
    "X-Content-Type-Options": _Header(
        "Tells browsers to trust Content-Type.", "nosniff", _STRING | {"const": "nosniff"}, required=True
    ),
    "Content-Length": _Header("Length of the body in bytes. Not sent with 304.", 417, _COUNT),
    "Cache-Control": _Header(
        "Responses with an ETag may be cached and revalidated with If-None-Match; others must not be cached.",
        "no-store",
        required=True,
    ),
    "Content-Encoding": _Header(
        "Sent if the body is compressed. Bodies of 1 KiB and more are, if the request has `Accept-Encoding: gzip`.",
        "gzip",
        _STRING | {"const": "gzip"},
    ),
    "Vary": _Header(
        "The request headers on which the response depends: a success on Accept-Encoding, and all responses on the "
        "origin if the operator has enabled CORS.",
        "accept-encoding",
    ),
    "Access-Control-Allow-Origin": _Header("The origin whose web pages may read the response.", "https://shop.example"),
    "Access-Control-Expose-Headers": _Header("The headers that those web pages may read.", "etag, link, x-error-code"),
    "RateLimit-Policy": _Header(
        "The rate limit of your key: `q` requests in a window of `w` seconds.", '"hour";q=1000;w=3600'
    ),
    "RateLimit": _Header(
        "The current state: `r` requests remain, and in `t` seconds one more becomes available.", '"hour";r=995;t=1800'
    ),
    "X-RateLimit-Limit": _Header("Maximum number of requests in a window.", 1000, _COUNT),
    "X-RateLimit-Remaining": _Header("Remaining requests.", 995, _COUNT),
    "X-RateLimit-Reset": _Header(
        "Unix time at which the oldest counted request leaves the window and one more becomes available.",
        1795247675,
        _COUNT,
    ),
    "X-Error-Code": _Header(
        "The error code, for programs.", "invalid_request", refer("schemas", "ErrorCode"), required=True
    ),
    "Retry-After": _Header("Seconds to wait before retrying.", 1800, _COUNT, required=True),
    "WWW-Authenticate": _Header("How to send the API key.", 'Bearer realm="listings"', required=True),
    "Location": _Header("URL of the new listing, or of the revert.", f"{codec.LISTINGS_PATH}/1025", required=True),
    "ETag": _Header(
        "Entity tag of the response, for If-None-Match and If-Match. Compressed, it ends in `-gzip`.", '"v1.0"'
    ),
    "Link": _Header(
        'URL of the next page, as `<…>; rel="next"`. Not sent with the last page (RFC 8288).',
        f'<{codec.LISTINGS_PATH}?limit=100&cursor=eyJ2IjoxfQ>; rel="next"',
    ),
    "X-Next-Cursor": _Header("The `cursor` of the next page. Not sent with the last page.", "eyJ2IjoxfQ"),
    "X-Total-Count": _Header(
        "Number of listings that match the filters, on all pages together: exact up to 1,000 and without "
        "filters other than `status`, otherwise `1000+`. Sent with `count=true`.",
        "42",
    ),
    "Idempotent-Replayed": _Header(
        "The write was applied before; this is its first response.", "true", _STRING | {"const": "true"}
    ),
    "X-Ignored-Fields": _Header(
        "The first ignored fields of the body, percent-encoded: at most 20, and 4,000 characters.", "sku, view_count"
    ),
    "Preference-Applied": _Header("The preferences that were applied.", "handling=strict"),
    "X-Test-Mode": _Header("Sent if the key is a test key.", "true", _STRING | {"const": "true"}),
    "X-Ignored-Parameters": _Header(
        "The first unknown query parameters, percent-encoded: at most 20, and 4,000 characters. Also an "
        "`Idempotency-Key` that has no effect.",
        "page",
    ),
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
    "X-Test-Mode",
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
        for name, (text, example, schema, _) in _REQUEST_HEADERS.items()
    }


def build_headers() -> dict[str, Schema]:
    """Return the response headers as OpenAPI headers, by name."""
    return {
        name: {"description": text, "required": required, "schema": schema, "example": example}
        for name, (text, example, schema, required) in _RESPONSE_HEADERS.items()
    }
