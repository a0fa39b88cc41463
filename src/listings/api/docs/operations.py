"""What each endpoint is for, asks and answers, in words: what the description needs beside the rules and the routes."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.domain.errors import Code

Tag: TypeAlias = Literal["Listings", "Rate limit", "Health", "Description"]

TAGS: Mapping[Tag, str] = {
    "Listings": "Your own listings: find, make, read, change, delete and restore them.",
    "Rate limit": "What is left of the requests of your key.",
    "Health": "Whether the service works, for load balancers and monitoring.",
    "Description": "This interface, described by the service itself.",
}


class Success(NamedTuple):
    """One way in which a request is answered well."""

    description: str
    schema: str  # its name among the components; empty: no body
    example: object = None
    status: int = 200
    headers: tuple[str, ...] = ()  # beside those of every answer
    kind: str = "application/json"


class Example(NamedTuple):
    """A body as one would send it, and with which parameters."""

    summary: str
    body: object


class Operation(NamedTuple):
    """One endpoint in words. Codes are those that it answers beside the gate's and the connection's."""

    id: str
    tag: Tag
    summary: str
    description: str
    answers: tuple[Success, ...]
    codes: tuple[Code, ...] = ()
    parameters: Mapping[str, Any] = {}  # of the address, each with its rule
    headers: tuple[str, ...] = ()  # that it heeds, beside those that every endpoint heeds
    body: str = ""  # the name of its schema
    examples: Mapping[str, Example] = {}  # by name


LISTING: dict[str, object] = {
    "id": 1025,
    "title": "Rimu dining table with six chairs",
    "content": "Solid heart rimu, 1.8 m, made in Oamaru in the seventies.",
    "type": "product",
    "category": "Furniture",
    "images": ["https://images.example/rimu-table-1.jpg", "https://images.example/rimu-table-2.jpg"],
    "price": 1250.5,
    "price_type": "negotiable",
    "location": "12 Cuba Street, Te Aro",
    "region": "Wellington",
    "is_active": True,
    "view_count": 0,
    "created_at": "2026-11-21 06:54:32",
    "updated_at": "2026-11-21 06:54:32",
}
"""A record as the examples show it."""

MORE: dict[str, object] = {"district": "Te Aro", "latitude": -41.2936, "longitude": 174.7762, "deleted_at": None}
"""What `include` can add to it."""

_ETAG = ("ETag",)
_TREATMENT = ("X-Ignored-Fields", "Preference-Applied")
_READ = ("If-None-Match",)
_ONE_OF_OURS: tuple[Code, ...] = ("listing_not_found", "not_owner")
_EDIT: tuple[Code, ...] = ("invalid_request", *_ONE_OF_OURS, "precondition_failed")
_KEPT: tuple[Code, ...] = ("invalid_request", "idempotency_key_reused")
_UNCHANGED = Success("What you have under the tag that you sent still holds.", "", status=304, headers=_ETAG)
_UPDATED = Success(
    "The listing is changed; ETag is its new tag. With `dry_run=true` it would be, and there is no new tag.",
    "Message",
    {"message": "listing updated"},
    headers=(*_ETAG, *_TREATMENT),
)
_CHANGES = {
    "price": Example("A new price", {"price": 1100}),
    "pause": Example("Take it off the market for a while", {"is_active": False}),
    "clear": Example("Set optional fields back", {"district": None, "latitude": None, "longitude": None}),
}

LIST = Operation(
    id="listListings",
    tag="Listings",
    summary="List your listings",
    description=(
        "All your active listings, newest first, unless parameters ask for something else. "
        "Where `limit` cuts the list, `Link` has the address of the next page; pages neither skip nor repeat a "
        "listing when others change meanwhile. Parameters that are not known here are ignored."
    ),
    answers=(
        Success("The listings.", "Listings", {"listings": [LISTING]}, headers=(*_ETAG, "Link")),
        _UNCHANGED,
    ),
    codes=("invalid_request",),
    parameters=params.PARAMETERS,
    headers=("Prefer", *_READ),
)

CREATE = Operation(
    id="createListing",
    tag="Listings",
    summary="Create a listing",
    description=(
        "Only `title` and `content` are needed. Keys of the body that can't be set are ignored and named in "
        "`X-Ignored-Fields`. With an `Idempotency-Key` the request may be sent again within 24 hours without making "
        "a second listing."
    ),
    answers=(
        Success(
            "The listing is made; its address is in Location.",
            "Created",
            {"id": 1025, "message": "listing created"},
            status=201,
            headers=("Location", "Idempotent-Replayed", *_TREATMENT),
        ),
        Success(
            "With `dry_run=true`: the listing would be made, and nothing is stored.",
            "Message",
            {"message": "listing would be created"},
            headers=("Idempotent-Replayed", *_TREATMENT),
        ),
    ),
    codes=_KEPT,
    parameters=params.OF_A_WRITE,
    headers=("Prefer", "Idempotency-Key"),
    body="NewListing",
    examples={
        "shortest": Example("The least that a listing needs", {"title": "Road bike", "content": "Alloy frame, 56 cm."}),
        "full": Example(
            "Everything that can be said",
            {
                name: value
                for name, value in (LISTING | MORE).items()
                if name not in {"id", "view_count", "created_at", "updated_at", "deleted_at"}
            },
        ),
        "draft": Example(
            "A draft, not shown yet",
            {
                "title": "Guitar lessons",
                "content": "Beginners welcome.",
                "type": "service",
                "price": 60,
                "price_type": "per_hour",
                "is_active": False,
            },
        ),
    },
)

BATCH = Operation(
    id="runBatch",
    tag="Listings",
    summary="Do many writes at once",
    description=(
        "At most 100 operations in the order sent, as one request to the rate limit. Each result is what the single "
        "request would have been answered, with the `ref` that you gave it. One operation's failure leaves the others "
        "alone; with `atomic` it undoes all of them, and those that would have passed have the status 424."
    ),
    answers=(
        Success(
            "What each operation came to; look at the status of each.",
            "BatchResults",
            {
                "results": [
                    {"ref": "bike", "status": 201, "body": {"id": 2049, "message": "listing created"}},
                    {"status": 200, "body": {"message": "listing updated"}},
                    {"status": 404, "body": {"error": "Listing not found"}},
                ]
            },
            headers=("Idempotent-Replayed", *_TREATMENT),
        ),
    ),
    codes=_KEPT,
    parameters=params.OF_A_WRITE,
    headers=("Prefer", "Idempotency-Key"),
    body="Batch",
    examples={
        "mixed": Example(
            "A create, an update and a delete",
            {
                "operations": [
                    {"op": "create", "ref": "bike", "listing": {"title": "Road bike", "content": "Alloy frame."}},
                    {"op": "update", "id": 1025, "changes": {"price": 1100}},
                    {"op": "delete", "id": 4097},
                ]
            },
        ),
        "atomic": Example(
            "All or nothing",
            {
                "operations": [
                    {"op": "update", "ref": 1, "id": 1025, "changes": {"region": "Otago"}},
                    {"op": "update", "ref": 2, "id": 1025, "changes": {"price": 990}},
                ],
                "atomic": True,
            },
        ),
    },
)

GET = Operation(
    id="getListing",
    tag="Listings",
    summary="Read a listing",
    description="One of your own listings that is not deleted.",
    answers=(Success("The listing.", "Listing", LISTING, headers=_ETAG), _UNCHANGED),
    codes=("invalid_request", *_ONE_OF_OURS),
    parameters=params.OF_ONE,
    headers=("Prefer", *_READ),
)

PATCH = Operation(
    id="updateListing",
    tag="Listings",
    summary="Change a listing",
    description=(
        "Changes the fields that are sent and no other; `{}` changes nothing. null sets an optional field back to "
        "what it is when it was never given. One wrong field refuses the whole change. With `If-Match` it is refused "
        "when somebody has changed the listing since you read it."
    ),
    answers=(_UPDATED,),
    codes=_EDIT,
    parameters=params.OF_A_WRITE,
    headers=("Prefer", "If-Match"),
    body="ListingChange",
    examples=_CHANGES,
)

PUT = PATCH._replace(
    id="updateListingByPut",
    summary="Change a listing (the same as PATCH)",
    description="Does what PATCH does: fields that are not sent stay as they are.",
)

DELETE = Operation(
    id="deleteListing",
    tag="Listings",
    summary="Delete a listing",
    description="The listing is inactive from then on and can't be read or changed; restoring it brings it back.",
    answers=(
        Success("The listing is deleted, or with `dry_run=true` would be.", "Message", {"message": "listing deleted"}),
    ),
    codes=_EDIT,
    parameters=params.OF_A_WRITE,
    headers=("Prefer", "If-Match"),
)

RESTORE = Operation(
    id="restoreListing",
    tag="Listings",
    summary="Restore a deleted listing",
    description="The listing comes back inactive. One that is not deleted stays as it is. A body is ignored.",
    answers=(
        Success(
            "The listing is back; ETag is its new tag. With `dry_run=true` it would be, and there is no new tag.",
            "Message",
            {"message": "listing restored"},
            headers=_ETAG,
        ),
    ),
    codes=_EDIT,
    parameters=params.OF_A_WRITE,
    headers=("Prefer", "If-Match"),
)

RATE_LIMIT = Operation(
    id="getRateLimit",
    tag="Rate limit",
    summary="See what is left of the limit",
    description=(
        "The limit of your key as a body. It does not count as a request, and answers beyond the limit too. "
        "All values are null where the operator has turned the limit off."
    ),
    answers=(
        Success("The limit.", "RateLimit", {"limit": 1000, "window": 3600, "remaining": 995, "reset": 1795247675}),
    ),
)

HEALTH = Operation(
    id="getHealth",
    tag="Health",
    summary="See whether the process answers",
    description="Asks nothing of the database.",
    answers=(Success("It answers.", "Health", {"status": "ok"}),),
)

READINESS = Operation(
    id="getReadiness",
    tag="Health",
    summary="See whether the service can do its work",
    description="503 while the database can't be written, the rate limit can't be counted or the service is stopping.",
    answers=(Success("It can.", "Readiness", {"status": "ready"}),),
)

DOCUMENT = Operation(
    id="getDescription",
    tag="Description",
    summary="Get this description",
    description="OpenAPI 3.1, made of the tables by which the service answers.",
    answers=(Success("The description.", "Description", headers=_ETAG), _UNCHANGED),
    headers=_READ,
)

PAGE = Operation(
    id="getReference",
    tag="Description",
    summary="Read this description as a page",
    description="For people: every operation with samples, and a form to try it.",
    answers=(
        Success(
            "The page.",
            "File",
            headers=(*_ETAG, "Content-Security-Policy", "Referrer-Policy"),
            kind="text/html; charset=utf-8",
        ),
        _UNCHANGED,
    ),
    headers=_READ,
)

STYLE = Operation(
    id="getReferenceStyle",
    tag="Description",
    summary="Get the page's style sheet",
    description="What makes the page look as it does.",
    answers=(Success("The style sheet.", "File", headers=_ETAG, kind="text/css; charset=utf-8"), _UNCHANGED),
    headers=_READ,
)

SCRIPT = Operation(
    id="getReferenceScript",
    tag="Description",
    summary="Get the page's script",
    description="What lets the page send requests.",
    answers=(Success("The script.", "File", headers=_ETAG, kind="text/javascript; charset=utf-8"), _UNCHANGED),
    headers=_READ,
)


class ErrorDoc(NamedTuple):
    """A code in words."""

    when: str
    example: str  # what a client may be told


ERROR_DOCS: Mapping[Code, ErrorDoc] = {
    "invalid_request": ErrorDoc("A field or parameter is missing or wrong.", "title is required; content is required"),
    "malformed_json": ErrorDoc("The body is no JSON object.", "The body must be a JSON object, but it is empty"),
    "malformed_request": ErrorDoc(
        "What was sent is no HTTP/1.1; the connection ends.", "The request is not valid HTTP"
    ),
    "api_key_required": ErrorDoc("No key was sent.", "API key is required"),
    "invalid_api_key": ErrorDoc("The key is unknown, malformed, revoked or expired.", "Invalid API key"),
    "not_owner": ErrorDoc("The listing belongs to another account.", "This listing belongs to another account"),
    "plan_expired": ErrorDoc("The account has no current Business plan.", "Business plan expired"),
    "account_disabled": ErrorDoc("The operator has disabled the account.", "This account is disabled"),
    "listing_not_found": ErrorDoc("There is no such listing, or it is deleted.", "Listing not found"),
    "path_not_found": ErrorDoc("There is no such path.", "There is nothing at this path"),
    "method_not_allowed": ErrorDoc(
        "The path has other methods, which Allow names.", "POST is not possible here, only GET, HEAD"
    ),
    "request_timeout": ErrorDoc(
        "The request took too long to arrive.", "The request's body took longer than 30 seconds"
    ),
    "precondition_failed": ErrorDoc(
        "The listing is no more the version that If-Match names.",
        "The listing does not match If-Match: read it again and send its current ETag, including the quotes",
    ),
    "body_too_large": ErrorDoc(
        "The body is larger than the operator allows.", "The body must be at most 2097152 bytes"
    ),
    "uri_too_long": ErrorDoc(
        "The address is longer than the operator allows.", "The address must be at most 8192 bytes"
    ),
    "unsupported_encoding": ErrorDoc(
        "The body is compressed.", "The body must not have a Content-Encoding other than identity"
    ),
    "idempotency_key_reused": ErrorDoc(
        "The Idempotency-Key was sent before with another request.",
        "This Idempotency-Key was sent with another request before",
    ),
    "dependency_failed": ErrorDoc(
        "In an atomic batch, another operation failed.", "Not done, because another operation of the batch failed"
    ),
    "rate_limited": ErrorDoc(
        "The limit of the key is used up; Retry-After tells when to go on.",
        "At most 1000 requests per hour and key: try again in 1800 seconds",
    ),
    "header_too_large": ErrorDoc(
        "The headers are more or larger than the operator allows.",
        "The headers must be at most 100 fields of 16384 bytes",
    ),
    "internal_error": ErrorDoc("Our fault; tell us the X-Request-Id.", "Something went wrong on our side"),
    "unavailable": ErrorDoc(
        "Try again after Retry-After. A write may or may not have happened.", "Too many connections"
    ),
    "version_not_supported": ErrorDoc(
        "Neither HTTP/1.1 nor HTTP/1.0 was spoken.", "Only HTTP/1.1 and HTTP/1.0 are spoken here"
    ),
}
"""Every code that a client can meet."""

FIELDS_IN_WORDS: Mapping[str, str] = {
    "id": "Positive, given once and never again; later listings of yours have higher ones.",
    "title": "What it is, in a line. Not blank; kept exactly as sent.",
    "content": "The description. Not blank; kept exactly as sent.",
    "type": "What kind of thing is offered.",
    "category": "Your own word for a finer kind. Empty: not stated.",
    "images": (
        "Addresses of pictures, kept in order and never fetched: URL references without white space, control "
        "characters or backslashes; a scheme is http or https, with a host and without a user name."
    ),
    "price": "In New Zealand dollars, at most two decimals. 0: not stated.",
    "price_type": "What the price is for.",
    "location": "Where it is. Empty: not stated.",
    "region": "The region it is in. Empty: not stated.",
    "district": "The district it is in. Empty: not stated.",
    "latitude": "Degrees north.",
    "longitude": "Degrees east.",
    "is_active": "Whether it is on the market. false on create makes a draft.",
    "view_count": "How often its public page was viewed.",
    "created_at": "When it was made, in UTC.",
    "updated_at": "When a field of it last really changed, in UTC.",
    "deleted_at": "When it was deleted, in UTC; null: it is not deleted.",
}
"""Every field of a record or a body."""

PARAMETERS_IN_WORDS: Mapping[str, str] = {
    "limit": "At most so many listings; without it all of them.",
    "cursor": (
        "Where the page begins: an opaque text from the `Link` of the page before. It is good for the same filters "
        "and the same order only, for ever."
    ),
    "status": "Which state the listings are to have.",
    "type": "Only listings of this type.",
    "category": "Only listings of exactly this category.",
    "region": "Only listings of exactly this region.",
    "q": (
        "Whole words, 1 to 10 of them, all of which the title or the content must have; case and accents do not matter."
    ),
    "price_min": "The lowest price, included, of at most two decimals.",
    "price_max": "The highest price, included, of at most two decimals.",
    "updated_since": (
        "Only listings updated at this moment or later, in UTC. With `status=all` and `include=deleted_at` a copy is "
        "kept in step, deletions included."
    ),
    "sort": "What to sort by; - in front: descending. Newest first without it.",
    "include": "What else to show of each listing; `all` means district, latitude and longitude.",
    "dry_run": "Check everything and store nothing: the answer says what would happen, or is the very error.",
}
"""Every parameter of an address."""
