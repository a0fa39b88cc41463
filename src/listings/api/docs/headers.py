"""Every request header that the API uses and every response header. Their texts are in `operations.toml`."""

from collections.abc import Mapping
from typing import NamedTuple

from listings.api import codec
from listings.api.docs.schemas import refer
from listings.api.docs.texts import read_texts
from listings.domain.rules import Schema

_STRING: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}

_TAG = r'(?:W/)?"[ !#-~]*"'


class _Header(NamedTuple):
    example: object
    schema: Schema = _STRING
    required: bool = False


_REQUEST_HEADERS: Mapping[str, _Header] = {
    "X-Request-Id": _Header("import-2026-11-21-0042"),
    "Prefer": _Header("handling=strict"),
    "If-None-Match": _Header('"v7.0"'),
    "If-Match": _Header("*", _STRING | {"pattern": rf"^(?:\*|[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*)?$"}),
    "X-Change-Group": _Header("night-2026-11-20", _STRING | {"pattern": f"^(?:{codec.CHANGE_GROUP.pattern})?$"}),
    "Idempotency-Key": _Header('"bike-42"', _STRING | {"pattern": '^(?:"[ -~]{1,255}"|[!#-~][ -~]{0,254})?$'}),
}

_RESPONSE_HEADERS: Mapping[str, _Header] = {
    "Date": _Header("Sat, 21 Nov 2026 06:54:32 GMT", required=True),
    "X-Request-Id": _Header("import-2026-11-21-0042", required=True),
    "X-Content-Type-Options": _Header("nosniff", _STRING | {"const": "nosniff"}, required=True),
    "Content-Length": _Header(417, _COUNT),
    "Cache-Control": _Header("no-store", required=True),
    "Content-Encoding": _Header("gzip", _STRING | {"const": "gzip"}),
    "Vary": _Header("accept-encoding"),
    "Access-Control-Allow-Origin": _Header("https://shop.example"),
    "Access-Control-Expose-Headers": _Header("etag, link, x-error-code"),
    "RateLimit-Policy": _Header('"hour";q=1000;w=3600'),
    "RateLimit": _Header('"hour";r=995;t=1800'),
    "X-RateLimit-Limit": _Header(1000, _COUNT),
    "X-RateLimit-Remaining": _Header(995, _COUNT),
    "X-RateLimit-Reset": _Header(1795247675, _COUNT),
    "X-Error-Code": _Header("invalid_request", refer("schemas", "ErrorCode"), required=True),
    "Retry-After": _Header(1800, _COUNT, required=True),
    "WWW-Authenticate": _Header('Bearer realm="listings"', required=True),
    "Location": _Header(f"{codec.LISTINGS_PATH}/1025", required=True),
    "ETag": _Header('"v1.0"'),
    "Link": _Header(f'<{codec.LISTINGS_PATH}?limit=100&cursor=eyJ2IjoxfQ>; rel="next"'),
    "X-Next-Cursor": _Header("eyJ2IjoxfQ"),
    "X-Total-Count": _Header("42"),
    "Idempotent-Replayed": _Header("true", _STRING | {"const": "true"}),
    "X-Ignored-Fields": _Header("sku, view_count"),
    "Preference-Applied": _Header("handling=strict"),
    "X-Test-Mode": _Header("true", _STRING | {"const": "true"}),
    "X-Ignored-Parameters": _Header("page"),
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
    texts = read_texts().request_headers
    return {
        name: {"name": name, "in": "header", "description": texts[name], "schema": schema, "example": example}
        for name, (example, schema, _) in _REQUEST_HEADERS.items()
    }


def build_headers() -> dict[str, Schema]:
    """Return the response headers as OpenAPI headers, by name."""
    texts = read_texts().response_headers
    return {
        name: {"description": texts[name], "required": required, "schema": schema, "example": example}
        for name, (example, schema, required) in _RESPONSE_HEADERS.items()
    }
