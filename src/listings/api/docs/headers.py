"""Every header that a request can have a use for and that an answer can have, as OpenAPI describes them."""

from collections.abc import Mapping

from listings.api import codec
from listings.api.docs.schemas import Schema

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}

_SENT: Mapping[str, tuple[str, Schema, str]] = {
    "X-Request-Id": (
        (
            "Your own name for the request, which the answer repeats; it must be 1 to 128 visible ASCII characters, "
            "otherwise the answer has one of ours."
        ),
        _TEXT,
        "import-2026-11-21-0042",
    ),
    "Prefer": (
        (
            "`handling=strict` refuses what is otherwise ignored: keys and parameters that are not known here, and "
            "image addresses that are not absolute (RFC 7240)."
        ),
        _TEXT,
        "handling=strict",
    ),
    "If-None-Match": ("A tag that you have: 304 when it still holds.", _TEXT, '"v1.0"'),
    "If-Match": (
        "The tag of the listing as you have read it, or several, or `*`: 412 when it is another version by now.",
        _TEXT,
        "*",
    ),
    "Idempotency-Key": (
        (
            "Your own name for this write, quoted or bare, 1 to 255 visible ASCII characters: sent again within 24 "
            "hours with the same body, it is done once and answered the same. A refused request keeps nothing."
        ),
        _TEXT | {"pattern": '^(?:"[ -~]{1,255}"|[!#-~][ -~]{0,254})?$'},
        '"bike-42"',
    ),
}

_RETURNED: Mapping[str, tuple[str, Schema, bool]] = {
    "Date": ("When the answer was made.", _TEXT, True),
    "X-Request-Id": ("The request's name, yours or ours.", _TEXT | {"minLength": 1, "maxLength": 128}, True),
    "X-Content-Type-Options": ("The content is what Content-Type says.", {"const": "nosniff"}, True),
    "Content-Length": ("The length of the body in bytes; 304 has none.", _NUMBER, False),
    "Cache-Control": (
        "With a tag the answer may be kept, and asked for anew with If-None-Match; without one it may not.",
        _TEXT | {"enum": ["no-store", "private, no-cache"]},
        True,
    ),
    "Vary": ("Where the operator has named origins of web pages: answers differ by them.", {"const": "origin"}, False),
    "Access-Control-Allow-Origin": ("The origin of the web page that may read the answer.", _TEXT, False),
    "Access-Control-Expose-Headers": ("The headers that the web page may read.", _TEXT, False),
    "RateLimit-Policy": ("The limit of your key: requests `q` in a window of `w` seconds.", _TEXT, False),
    "RateLimit": (
        "What is left of it: `r` requests; in `t` seconds the oldest that counts is forgotten.",
        _TEXT,
        False,
    ),
    "X-RateLimit-Limit": ("Requests in a window.", _NUMBER, False),
    "X-RateLimit-Remaining": ("Requests that are left.", _NUMBER, False),
    "X-RateLimit-Reset": ("When the oldest that counts is forgotten, in seconds since 1970.", _NUMBER, False),
    "X-Error-Code": ("The error for programs.", {"type": "string", "enum": list(codec.STATUS)}, True),
    "Retry-After": ("In so many seconds it is worth trying again.", _NUMBER | {"minimum": 0}, True),
    "WWW-Authenticate": ("How to send a key.", _TEXT | {"pattern": '^Bearer realm="listings"'}, True),
    "Allow": ("The methods of the path.", _TEXT, True),
    "Location": ("The new listing's address.", _TEXT | {"pattern": rf"^{codec.LISTINGS_PATH}/[1-9][0-9]*$"}, True),
    "ETag": ("The tag of what you read, for If-None-Match and If-Match.", _TEXT | {"pattern": '^".+"$'}, False),
    "Link": ('The address of the next page, as `<…>; rel="next"`; none behind the last page (RFC 8288).', _TEXT, False),
    "Idempotent-Replayed": ("The write was done before; this is what it came to.", {"const": "true"}, False),
    "X-Ignored-Fields": ("The first 20 keys of the body that were ignored, percent-encoded.", _TEXT, False),
    "Preference-Applied": ("The preference was followed.", {"const": "handling=strict"}, False),
    "Content-Security-Policy": ("What the page may load: nothing from elsewhere.", _TEXT, True),
    "Referrer-Policy": ("What the page tells others of itself: nothing.", {"const": "no-referrer"}, True),
}

OF_EVERY_ANSWER = (
    "Date",
    "X-Request-Id",
    "X-Content-Type-Options",
    "Content-Length",
    "Cache-Control",
    "Vary",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
)
OF_THE_LIMIT = (
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)


def parameters() -> dict[str, Schema]:
    """The headers of requests, by name."""
    return {
        name: {"name": name, "in": "header", "description": words, "schema": schema, "example": example}
        for name, (words, schema, example) in _SENT.items()
    }


def headers() -> dict[str, Schema]:
    """The headers of answers, by name."""
    return {
        name: {"description": words, "required": always, "schema": schema}
        for name, (words, schema, always) in _RETURNED.items()
    }
