"""Every operation. Its texts are in `operations.toml`, its examples in `examples.json`."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.api.docs.schemas import FIELD_DOCS
from listings.api.docs.texts import read_examples
from listings.domain.errors import Code
from listings.domain.listing_json import INCLUDABLE_FIELDS, Record

Tag: TypeAlias = Literal["Listings", "Images", "Changes", "Key", "Rate limit"]


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
    undescribed: tuple[str, ...] = ()  # query parameters that only the description names
    headers: tuple[str, ...] = ("Prefer",)  # request headers, without those that every endpoint accepts
    later_headers: tuple[str, ...] = ()  # listed last, because generated clients pass parameters by position
    body: str = ""  # the name of its schema, for which `examples.json` has examples
    path_id: str = "Id of the listing. Any other value returns 404."  # the description of {id}
    path_name: str = ""  # an example, if {id} is the name of a picture


EXAMPLE_LISTING = {name: FIELD_DOCS[name].example for name in Record.__struct_fields__ if name not in INCLUDABLE_FIELDS}
"""The record in the examples."""

_PREFERENCES = ("X-Ignored-Fields", "Preference-Applied")
_FIND_ERRORS: tuple[Code, ...] = ("listing_not_found", "not_owner")
_WRITE_ERRORS: tuple[Code, ...] = ("invalid_request", "key_not_allowed")
_EDIT_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, *_FIND_ERRORS, "precondition_failed")
_BATCH_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, "idempotency_key_reused")
_NOT_MODIFIED = Success("Not modified since the ETag that you sent.", "", status=304, headers=("ETag",))
_UPDATED = Success(
    "The listing is updated; `ETag` is its new tag. With `dry_run=true` nothing is stored and no `ETag` sent.",
    "Confirmation",
    {"message": "listing updated"},
    headers=("ETag", *_PREFERENCES),
)

LIST = Operation(
    id="listListings",
    tag="Listings",
    responses=(
        Success(
            "The listings.",
            "Listings",
            {"listings": [EXAMPLE_LISTING]},
            headers=("ETag", "Link", "X-Next-Cursor", "X-Total-Count"),
        ),
        _NOT_MODIFIED,
    ),
    codes=("invalid_request",),
    parameters=params.LIST_PARAMETERS,
    headers=("Prefer", "If-None-Match"),
)

CREATE = Operation(
    id="createListing",
    tag="Listings",
    responses=(
        Success(
            "The listing is created; `Location` has its URL and `ETag` its tag.",
            "Created",
            status=201,
            headers=("ETag", "Location", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "account_full", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    undescribed=("dry_run",),
    headers=("Prefer", "Idempotency-Key"),
    later_headers=("X-Change-Group",),
    body="ListingCreate",
)

BATCH = Operation(
    id="runBatch",
    tag="Listings",
    responses=(
        Success(
            "One result per operation. Check the status of each.",
            "BatchResults",
            headers=("ETag", "Idempotent-Replayed", *_PREFERENCES),
        ),
    ),
    codes=(*_BATCH_ERRORS, "precondition_failed"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "Idempotency-Key", "If-Match"),
    later_headers=("X-Change-Group",),
    body="Batch",
)

GET = Operation(
    id="getListing",
    tag="Listings",
    responses=(Success("The listing.", "Listing", EXAMPLE_LISTING, headers=("ETag",)), _NOT_MODIFIED),
    codes=("invalid_request", *_FIND_ERRORS, "precondition_failed"),
    parameters=params.LISTING_PARAMETERS,
    headers=("Prefer", "If-None-Match", "If-Match"),
)

PATCH = Operation(
    id="updateListing",
    tag="Listings",
    responses=(_UPDATED,),
    codes=(*_EDIT_ERRORS, "account_full", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match", "If-None-Match"),
    later_headers=("X-Change-Group",),
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
    headers=("Prefer", "If-Match", "If-None-Match"),
    later_headers=("X-Change-Group",),
)

RESTORE = Operation(
    id="restoreListing",
    tag="Listings",
    responses=(
        Success(
            "The listing is restored; `ETag` is its new tag. With `dry_run=true` nothing is stored and no `ETag` sent.",
            "Confirmation",
            {"message": "listing restored"},
            headers=("ETag", "Preference-Applied"),
        ),
    ),
    codes=(*_EDIT_ERRORS, "account_full", "body_too_large", "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match", "If-None-Match"),
    later_headers=("X-Change-Group",),
)

_IMAGE_ERRORS: tuple[Code, ...] = (*_WRITE_ERRORS, "body_too_large")

IMAGES = Operation(
    id="listImages",
    tag="Images",
    responses=(Success("The pictures.", "Images", headers=("Link", "X-Next-Cursor")),),
    codes=("invalid_request",),
    parameters=params.IMAGE_PARAMETERS,
)

UPLOAD = Operation(
    id="uploadImage",
    tag="Images",
    responses=(
        Success("The picture is stored; `Location` has its URL, too.", "Image", status=201, headers=("Location",)),
        Success("The account had this picture already, which has the same URL.", "Image", headers=("Location",)),
    ),
    codes=(*_IMAGE_ERRORS, "invalid_image", "account_full", "unsupported_encoding"),
    parameters=params.WRITE_PARAMETERS,
    undescribed=("dry_run",),
)

DELETE_IMAGE = Operation(
    id="deleteImage",
    tag="Images",
    responses=(Success("The picture is deleted. `listings` has the ids of those that showed it.", "ImageDeletion"),),
    codes=(*_IMAGE_ERRORS, "image_not_found", "image_in_use"),
    parameters=params.IMAGE_DELETION_PARAMETERS,
    path_id="Name of the picture: the 32 characters before `.jpg` in its URL. Any other value returns 404.",
    path_name="0123456789abcdef0123456789abcdef",
)

CHANGES = Operation(
    id="listChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets"),),
    codes=("invalid_request", "changes_gone", "too_many_waits"),
    parameters=params.CHANGE_PARAMETERS,
)

HISTORY = Operation(
    id="listListingChanges",
    tag="Changes",
    responses=(Success("The change sets.", "ChangeSets"),),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.HISTORY_PARAMETERS,
)

CHANGE_GROUPS = Operation(
    id="listChangeGroups",
    tag="Changes",
    responses=(Success("The groups.", "ChangeGroups"),),
    codes=("invalid_request",),
    parameters=params.HISTORY_PARAMETERS,
)

REVERT = Operation(
    id="revertChanges",
    tag="Changes",
    responses=(
        Success("The revert is finished, or is a dry run.", "Revert", headers=("Idempotent-Replayed", *_PREFERENCES)),
        Success(
            "The revert continues in the background.",
            "Revert",
            read_examples().responses["Revert"] | {"status": "running", "progress": 0.25},
            status=202,
            headers=("Location", "Retry-After", "Idempotent-Replayed", *_PREFERENCES),
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
    path_id="Id of the revert. Any other value returns 404.",
)

KEY = Operation(id="getKey", tag="Key", responses=(Success("The key.", "KeyDetails"),))

RATE_LIMIT = Operation(
    id="getRateLimit", tag="Rate limit", responses=(Success("The rate limit.", "RateLimit"),), headers=()
)
