"""Every operation: what it takes and returns. Its texts are in `operations.toml`."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.api.docs.schemas import FIELD_DOCS
from listings.domain.errors import Code
from listings.domain.fields import FIELDS
from listings.domain.listing_json import INCLUDED_FIELDS, Record

Tag: TypeAlias = Literal["Listings", "Changes", "Rate limit"]


class Success(NamedTuple):
    """A successful response."""

    description: str
    schema: str  # the name of a component; empty if there is no body
    example: object = None
    status: int = 200
    headers: tuple[str, ...] = ()  # in addition to the common ones


class Example(NamedTuple):
    """An example of a request body."""

    summary: str
    body: object


class Operation(NamedTuple):
    """The documentation of one endpoint."""

    id: str
    tag: Tag
    responses: tuple[Success, ...]
    codes: tuple[Code, ...] = ()  # from its handler; the connection and the common checks add more
    parameters: Mapping[str, Any] = {}  # query parameters with their rules
    headers: tuple[str, ...] = ()  # request headers, without those that every endpoint accepts
    body: str = ""  # the name of its schema
    examples: Mapping[str, Example] = {}  # by name
    path_id: str = "Id of the listing. Any other value returns 404."  # the description of {id}


_EXAMPLES = {name: FIELD_DOCS[name].example for name in Record.__struct_fields__}
EXAMPLE_LISTING = {name: value for name, value in _EXAMPLES.items() if name not in INCLUDED_FIELDS}
"""The record in the examples."""

_ETAG = ("ETag",)
_PREFERENCES = ("X-Ignored-Fields", "Preference-Applied")
_CONDITIONAL = ("If-None-Match",)
_FIND_ERRORS: tuple[Code, ...] = ("listing_not_found", "not_owner")
_WRITE_ERRORS: tuple[Code, ...] = ("invalid_request", "account_full", "key_not_allowed")
_EDIT_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, *_FIND_ERRORS, "precondition_failed")
_BATCH_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, "idempotency_key_reused")
_NOT_MODIFIED = Success("Not modified since the ETag that you sent.", "", status=304, headers=_ETAG)
_UPDATED = Success(
    "The listing is updated; `ETag` is its new tag. With `dry_run=true` nothing is stored and no `ETag` sent.",
    "Confirmation",
    {"message": "listing updated"},
    headers=(*_ETAG, *_PREFERENCES),
)
_CHANGES = {
    "price": Example("Change the price", {"price": 1100}),
    "pause": Example("Pause the listing", {"is_active": False}),
    "clear": Example("Clear optional fields", {"district": None, "latitude": None, "longitude": None}),
}

LIST = Operation(
    id="listListings",
    tag="Listings",
    responses=(
        Success(
            "The listings.",
            "Listings",
            {"listings": [EXAMPLE_LISTING]},
            headers=(*_ETAG, "Link", "X-Next-Cursor", "X-Total-Count"),
        ),
        _NOT_MODIFIED,
    ),
    codes=("invalid_request",),
    parameters=params.LIST_PARAMETERS,
    headers=("Prefer", *_CONDITIONAL),
)

CREATE = Operation(
    id="createListing",
    tag="Listings",
    responses=(
        Success(
            "The listing is created; `Location` has its URL and `ETag` its tag.",
            "Created",
            {"id": 1025, "message": "listing created"},
            status=201,
            headers=(*_ETAG, "Location", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key"),
    body="ListingCreate",
    examples={
        "shortest": Example("Required fields only", {"title": "Road bike", "content": "Alloy frame, 56 cm."}),
        "full": Example(
            "All fields",
            {name: value for name, value in _EXAMPLES.items() if name in FIELDS},
        ),
        "draft": Example(
            "A draft that is not on the market yet",
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
    responses=(
        Success(
            "One result per operation. Check the status of each.",
            "BatchResults",
            {
                "results": [
                    {
                        "ref": "bike",
                        "status": 201,
                        "etag": '"v1.0"',
                        "body": {"id": 2049, "message": "listing created"},
                    },
                    {"status": 200, "etag": '"v2.0"', "body": {"message": "listing updated"}},
                    {"status": 404, "code": "listing_not_found", "body": {"error": "Listing not found"}},
                ]
            },
            headers=(*_ETAG, "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "precondition_failed"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key", "If-Match"),
    body="Batch",
    examples={
        "mixed": Example(
            "A create, an update, a delete and a restore",
            {
                "operations": [
                    {"op": "create", "ref": "bike", "listing": {"title": "Road bike", "content": "Alloy frame."}},
                    {"op": "update", "id": 1025, "changes": {"price": 1100}, "if_match": '"v1.0"'},
                    {"op": "delete", "id": 4097},
                    {"op": "restore", "id": 4097},
                ]
            },
        ),
        "put": Example(
            "Create or update by your own identifiers",
            {
                "operations": [
                    {
                        "op": "put",
                        "listing": {"external_id": "sku-17", "title": "Road bike", "content": "Alloy frame."},
                    },
                    {"op": "put", "listing": {"external_id": "sku-18", "title": "Helmet", "content": "Size M."}},
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
    responses=(Success("The listing.", "Listing", EXAMPLE_LISTING, headers=_ETAG), _NOT_MODIFIED),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.LISTING_PARAMETERS,
    headers=("Prefer", *_CONDITIONAL),
)

PATCH = Operation(
    id="updateListing",
    tag="Listings",
    responses=(_UPDATED,),
    codes=(*_EDIT_ERRORS, "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match"),
    body="ListingUpdate",
    examples=_CHANGES,
)

PUT = PATCH._replace(
    id="updateListingByPut",
)

DELETE = Operation(
    id="deleteListing",
    tag="Listings",
    responses=(
        Success(
            "The listing is deleted. With `dry_run=true` nothing is stored.",
            "Confirmation",
            {"message": "listing deleted"},
        ),
    ),
    codes=_EDIT_ERRORS,
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match"),
)

RESTORE = Operation(
    id="restoreListing",
    tag="Listings",
    responses=(
        Success(
            "The listing is restored; `ETag` is its new tag. With `dry_run=true` nothing is stored and no `ETag` sent.",
            "Confirmation",
            {"message": "listing restored"},
            headers=(*_ETAG, "Preference-Applied"),
        ),
    ),
    codes=(*_EDIT_ERRORS, "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match"),
)

_EXAMPLE_CHANGE_SETS = {
    "change_sets": [
        {
            "id": 1200,
            "time": "2026-11-21 06:54:32",
            "actor": {"type": "key", "name": "price-bot", "hint": "lst_abcd…wxyz", "id": 7},
            "kind": "updated",
            "changes": [{"id": 1025, "external_id": None, "before": {"price": 1250.5}, "after": {"price": 1100.0}}],
        }
    ],
    "last": 1200,
    "more": False,
}

CHANGES = Operation(
    id="listChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets", _EXAMPLE_CHANGE_SETS),),
    codes=("invalid_request", "changes_gone", "too_many_waits"),
    parameters=params.CHANGE_PARAMETERS,
    headers=("Prefer",),
)

HISTORY = Operation(
    id="listListingChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets", _EXAMPLE_CHANGE_SETS),),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.HISTORY_PARAMETERS,
    headers=("Prefer",),
)

_EXAMPLE_REVERT = {
    "id": 1201,
    "status": "finished",
    "progress": 1.0,
    "counts": {"reverted": 188, "unchanged": 0, "conflicts": 1},
    "conflicts": [
        {
            "id": 1025,
            "external_id": None,
            "reason": "changed_later",
            "fields": ["price"],
            "change": 1200,
            "holder": None,
        }
    ],
    "last": 1,
    "more": False,
    "changes": [],
}

REVERT = Operation(
    id="revertChanges",
    tag="Changes",
    responses=(
        Success(
            "The revert is finished, or is a dry run.",
            "Revert",
            _EXAMPLE_REVERT,
            headers=("Idempotent-Replayed", *_PREFERENCES),
        ),
        Success(
            "The revert continues in the background.",
            "Revert",
            _EXAMPLE_REVERT | {"status": "running", "progress": 0.25},
            status=202,
            headers=("Location", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=("invalid_request", "key_not_allowed", "change_not_found", "changes_gone", "idempotency_key_reused"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key"),
    body="RevertRequest",
    examples={
        "change": Example("A change set", {"change": 1200}),
        "overwrite": Example("A change set, and overwrite later changes", {"change": 1200, "overwrite": True}),
        "revert": Example("An earlier revert", {"revert": 1201}),
        "key": Example(
            "What a key wrote in a night",
            {"key": 7, "since": "2026-11-20 22:00:00", "until": "2026-11-21 06:00:00"},
        ),
    },
)

GET_REVERT = Operation(
    id="getRevert",
    tag="Changes",
    responses=(Success("The revert.", "Revert", _EXAMPLE_REVERT),),
    codes=("invalid_request", "change_not_found"),
    parameters=params.CONFLICT_PARAMETERS,
    headers=("Prefer",),
    path_id="Id of the revert. Any other value returns 404.",
)

RATE_LIMIT = Operation(
    id="getRateLimit",
    tag="Rate limit",
    responses=(
        Success("The rate limit.", "RateLimit", {"limit": 1000, "window": 3600, "remaining": 995, "reset": 1795247675}),
    ),
)
