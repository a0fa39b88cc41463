"""Every operation: what it takes and returns. Its texts are in `operations.toml`, its examples in `examples.json`."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.api.docs.schemas import FIELD_DOCS
from listings.api.docs.texts import read_examples
from listings.domain.errors import Code
from listings.domain.listing_json import INCLUDABLE_FIELDS, Record

Tag: TypeAlias = Literal["Listings", "Changes", "Rate limit"]


class Success(NamedTuple):
    """A successful response."""

    description: str
    schema: str  # the name of a component; empty if there is no body
    example: object = None  # unless `examples.json` has one for the schema
    status: int = 200
    headers: tuple[str, ...] = ()  # in addition to the common ones


class Operation(NamedTuple):
    """The documentation of one endpoint."""

    id: str
    tag: Tag
    responses: tuple[Success, ...]
    codes: tuple[Code, ...] = ()  # from its handler; the connection and the common checks add more
    parameters: Mapping[str, Any] = {}  # query parameters with their rules
    headers: tuple[str, ...] = ()  # request headers, without those that every endpoint accepts
    body: str = ""  # the name of its schema, for which `examples.json` has examples
    path_id: str = "Id of the listing. Any other value returns 404."  # the description of {id}


EXAMPLE_LISTING = {name: FIELD_DOCS[name].example for name in Record.__struct_fields__ if name not in INCLUDABLE_FIELDS}
"""The record in the examples."""

_ETAG = ("ETag",)
_PREFERENCES = ("X-Ignored-Fields", "Preference-Applied")
_CONDITIONAL = ("If-None-Match",)
_FIND_ERRORS: tuple[Code, ...] = ("listing_not_found", "not_owner")
_WRITE_ERRORS: tuple[Code, ...] = ("invalid_request", "key_not_allowed")
_EDIT_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, *_FIND_ERRORS, "precondition_failed")
_BATCH_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, "idempotency_key_reused")
_NOT_MODIFIED = Success("Not modified since the ETag that you sent.", "", status=304, headers=_ETAG)
_UPDATED = Success(
    "The listing is updated; `ETag` is its new tag. With `dry_run=true` nothing is stored and no `ETag` sent.",
    "Confirmation",
    {"message": "listing updated"},
    headers=(*_ETAG, *_PREFERENCES),
)

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
            status=201,
            headers=(*_ETAG, "Location", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "account_full", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key"),
    body="ListingCreate",
)

BATCH = Operation(
    id="runBatch",
    tag="Listings",
    responses=(
        Success(
            "One result per operation. Check the status of each.",
            "BatchResults",
            headers=(*_ETAG, "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "precondition_failed"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key", "If-Match"),
    body="Batch",
)

GET = Operation(
    id="getListing",
    tag="Listings",
    responses=(Success("The listing.", "Listing", EXAMPLE_LISTING, headers=_ETAG), _NOT_MODIFIED),
    codes=("invalid_request", *_FIND_ERRORS, "precondition_failed"),
    parameters=params.LISTING_PARAMETERS,
    headers=("Prefer", *_CONDITIONAL, "If-Match"),
)

PATCH = Operation(
    id="updateListing",
    tag="Listings",
    responses=(_UPDATED,),
    codes=(*_EDIT_ERRORS, "account_full", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match", *_CONDITIONAL),
    body="ListingUpdate",
)

PUT = PATCH._replace(id="updateListingByPut")

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
    codes=(*_EDIT_ERRORS, "body_too_large"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match", *_CONDITIONAL),
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
    codes=(*_EDIT_ERRORS, "account_full", "body_too_large", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match", *_CONDITIONAL),
)

CHANGES = Operation(
    id="listChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets"),),
    codes=("invalid_request", "changes_gone", "too_many_waits"),
    parameters=params.CHANGE_PARAMETERS,
    headers=("Prefer",),
)

HISTORY = Operation(
    id="listListingChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets"),),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.HISTORY_PARAMETERS,
    headers=("Prefer",),
)

REVERT = Operation(
    id="revertChanges",
    tag="Changes",
    responses=(
        Success(
            "The revert is finished, or is a dry run.",
            "Revert",
            headers=("Idempotent-Replayed", *_PREFERENCES),
        ),
        Success(
            "The revert continues in the background.",
            "Revert",
            read_examples().responses["Revert"] | {"status": "running", "progress": 0.25},
            status=202,
            headers=("Location", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(
        *("invalid_request", "key_not_allowed", "change_not_found", "changes_gone", "revert_running"),
        "idempotency_key_reused",
    ),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key"),
    body="RevertRequest",
)

GET_REVERT = Operation(
    id="getRevert",
    tag="Changes",
    responses=(Success("The revert.", "Revert"),),
    codes=("invalid_request", "change_not_found"),
    parameters=params.CONFLICT_PARAMETERS,
    headers=("Prefer",),
    path_id="Id of the revert. Any other value returns 404.",
)

RATE_LIMIT = Operation(
    id="getRateLimit",
    tag="Rate limit",
    responses=(Success("The rate limit.", "RateLimit"),),
)
