"""Descriptions of every operation and parameter, which the OpenAPI document needs.

Those of fields are in `listings.domain.fields` and `schemas`, those of error codes in `error_docs`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.api.docs.schemas import FIELD_DOCS
from listings.domain.errors import Code
from listings.domain.fields import FIELDS
from listings.domain.listing_json import INCLUDED_FIELDS, Record

Tag: TypeAlias = Literal["Listings", "Changes", "Rate limit"]

TAGS: Mapping[Tag, str] = {
    "Listings": "List, create, read, update, delete and restore your own listings.",
    "Changes": "What changed in your listings, when, and by whom.",
    "Rate limit": "How many requests your key has left.",
}


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
    summary: str
    description: str
    responses: tuple[Success, ...]
    codes: tuple[Code, ...] = ()  # from its handler; the connection and the common checks add more
    parameters: Mapping[str, Any] = {}  # query parameters with their rules
    parameter_texts: Mapping[str, str] = {}  # descriptions that differ from PARAMETER_DESCRIPTIONS
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
    summary="List your listings",
    description=(
        "Returns all your active listings, newest first. Parameters filter, sort and page the list. With `limit`, "
        "`Link` has the URL of the next page and `X-Next-Cursor` its cursor. Pagination is keyset-based: creating or "
        "deleting other listings meanwhile does not make pages skip or repeat one. Unknown parameters are ignored and "
        "named in `X-Ignored-Parameters`."
    ),
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
    summary="Create a listing",
    description=(
        "Only `title` and `content` are required. Unknown and read-only fields are ignored and named in "
        "`X-Ignored-Fields`. With an `Idempotency-Key` you can repeat the request for 24 hours without creating a "
        "second listing. With `Prefer: return=representation` the response is the whole record as it is now, or `id` "
        "and `message` if the listing has been deleted since the first request with this key. "
        "With `dry_run=true` a valid request returns 200 instead of 201, with "
        '`{"message": "listing would be created"}`: there is no id, because nothing is stored.'
    ),
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
    summary="Run a batch of writes",
    description=(
        "Runs up to 100 operations in the order sent, and counts as one request towards the rate limit. Each result "
        "has the status and body of the single request, the listing's `etag` or the error's `code`, and your `ref`. If "
        "an operation fails, the others still apply. With `atomic`, all are undone instead; those that did not fail "
        "get status 424, and their error names the first one that failed. `put` updates the listing with your "
        "`external_id`, or creates it if there is none; `op` in its result says which. With `If-Match` and the ETag of "
        "a list, the batch is atomic, and is rejected if any of your listings has been edited since; `ETag` is the new "
        "tag for the next batch. With `dry_run=true`, `before` and `after` of a result have the fields that would "
        "change."
    ),
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
    summary="Get a listing",
    description="Returns one of your own listings, unless it is deleted.",
    responses=(Success("The listing.", "Listing", EXAMPLE_LISTING, headers=_ETAG), _NOT_MODIFIED),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.LISTING_PARAMETERS,
    headers=("Prefer", *_CONDITIONAL),
)

PATCH = Operation(
    id="updateListing",
    tag="Listings",
    summary="Update a listing",
    description=(
        "Updates only the fields that you send; `{}` changes nothing. null resets an optional field to its default. "
        "If one field is invalid, nothing is updated. With `If-Match` the update is rejected if the listing has "
        "changed since you read it. With `Prefer: return=representation` the response is the whole record."
    ),
    responses=(_UPDATED,),
    codes=(*_EDIT_ERRORS, "external_id_taken"),
    parameters=params.WRITE_PARAMETERS,
    headers=("Prefer", "If-Match"),
    body="ListingUpdate",
    examples=_CHANGES,
)

PUT = PATCH._replace(
    id="updateListingByPut",
    summary="Update a listing (same as PATCH)",
    description="Does the same as PATCH: fields that you do not send stay as they are.",
)

DELETE = Operation(
    id="deleteListing",
    tag="Listings",
    summary="Delete a listing",
    description="Deletes the listing. You can't read or update it until you restore it.",
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
    summary="Restore a deleted listing",
    description=(
        "Restores the listing as inactive. A listing that is not deleted stays as it is. A body is ignored. With "
        "`Prefer: return=representation` the response is the whole record."
    ),
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
    summary="List the changes of your listings",
    description=(
        "Returns what was written after the change set `after`, oldest first. A change set is one write: a create, an "
        "update, a deletion, a restore, a batch, or a step of an import or a revert. `before` and `after` have the "
        "changed fields. A create has `before: null`, and in `after` the fields as they are at the time of the "
        "request. Views are not changes. To keep a copy, request `limit=0` and remember `last`, then read the list "
        "with `status=all`. From then on, request the changes after `last`, and set the fields in `after` in your "
        "copy. An `after` that is too old returns 410: begin again with the list. With `timeout`, the response waits "
        "for a change if there is none."
    ),
    responses=(Success("The change sets.", "ChangeSets", _EXAMPLE_CHANGE_SETS),),
    codes=("invalid_request", "changes_gone", "too_many_waits"),
    parameters=params.CHANGE_PARAMETERS,
    parameter_texts={
        "limit": (
            "Maximum number of change sets. Default: 100. There may be fewer, with `more: true`, if they are large. 0 "
            "returns only the id of the last one."
        )
    },
    headers=("Prefer",),
)

HISTORY = Operation(
    id="listListingChanges",
    tag="Changes",
    summary="List the changes of one listing",
    description=(
        "Returns the change sets of one of your listings, deleted or not, newest first, each with only the changes of "
        "this listing. To read on, request those before `last` while `more` is true."
    ),
    responses=(Success("The change sets.", "ChangeSets", _EXAMPLE_CHANGE_SETS),),
    codes=("invalid_request", *_FIND_ERRORS),
    parameters=params.HISTORY_PARAMETERS,
    parameter_texts={"limit": "Maximum number of change sets. Default: 100. There may be fewer if they are large."},
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
    summary="Undo changes",
    description=(
        "Undoes a change set, an import, an earlier revert, or what a key wrote from `since` to `until`. Each "
        "field gets its earlier value, created listings are deleted, and deleted ones come back as they were. A field "
        "that another change set changed later is a conflict: it stays as it is, unless you set `overwrite`. Up to "
        "200 listings are reverted before the response. For more, the response is 202 and the rest follows in the "
        "background: request the URL in `Location` until `status` is `finished`. With `dry_run=true` nothing is "
        "stored: `status` is `planned`, `id` is null, and `changes` has what would be written to the first 100 "
        "listings. A dry run reads up to 1,000 listings; if there are more, its `progress` is 0. With an "
        "`Idempotency-Key` you can repeat the request for 24 hours, and get the current state of the first one."
    ),
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
    summary="Get a revert",
    description="Returns the progress of a revert and its conflicts. To read on, request those after `last`.",
    responses=(Success("The revert.", "Revert", _EXAMPLE_REVERT),),
    codes=("invalid_request", "change_not_found"),
    parameters=params.CONFLICT_PARAMETERS,
    parameter_texts={
        "after": "The `last` of the conflicts that you have, 0 for none. Default: 0.",
        "limit": "Maximum number of conflicts. Default: 100.",
    },
    headers=("Prefer",),
    path_id="Id of the revert. Any other value returns 404.",
)

RATE_LIMIT = Operation(
    id="getRateLimit",
    tag="Rate limit",
    summary="Get the rate limit status",
    description=(
        "Returns the rate limit of your key. The request does not count towards the limit, and works even when the "
        "limit is reached. All values are null if the operator has disabled the limit."
    ),
    responses=(
        Success("The rate limit.", "RateLimit", {"limit": 1000, "window": 3600, "remaining": 995, "reset": 1795247675}),
    ),
)


_ALL_EXTRAS = f"{', '.join(params.EXTRAS[:-1])} and {params.EXTRAS[-1]}"
PARAMETER_DESCRIPTIONS: Mapping[str, str] = {
    "limit": "Maximum number of listings per page. Without it, all listings are returned.",
    "cursor": (
        "Start of the page: an opaque string from `X-Next-Cursor`, or from the URL in `Link`, of the previous page. It "
        "works only with the same filters and sort order. Cursors never expire."
    ),
    "status": (
        "State of the listings; `inactive` means drafts and paused ones, and `all` includes deleted ones. Default: "
        "`active`."
    ),
    "type": "Only listings of this type.",
    "category": "Only listings with exactly this category.",
    "region": "Only listings with exactly this region.",
    "q": (
        "Search terms: 1 to 10 whole words, each of which must appear in the title or the content. Case and accents do "
        "not matter."
    ),
    "price_min": "Minimum price (inclusive), with at most two decimals.",
    "price_max": "Maximum price (inclusive), with at most two decimals.",
    "updated_since": (
        "Only listings updated at or after this time, in UTC. To keep a copy in sync, including deletions, use it "
        "with `status=all` and `include=deleted_at`."
    ),
    "external_id": (
        "Only the listing with this external id. Repeat the parameter to find several listings, as many as fit in the "
        "URL (8,192 bytes, unless the operator has set another limit). With `status=all`, deleted listings that had "
        "the external id are included."
    ),
    "sort": "Sort key; a leading - means descending. Default: newest first.",
    "ids": (
        f"Only the listings with these ids: at most {params.MAX_IDS}, separated by commas. Those of other accounts and "
        "those that do not exist are left out."
    ),
    "count": "Whether to return the number of listings on all pages in `X-Total-Count`.",
    "include": (
        f"Additional fields, separated by commas. `all` means only {_ALL_EXTRAS}: name the others as well, as in "
        "`all,external_id`. `etag` is the tag of each listing, for `If-Match` and `if_match`."
    ),
    "after": "Id of the last change set that you have, 0 for none. Default: 0.",
    "before": "Only change sets with lower ids.",
    "timeout": (
        "Seconds to wait for a change set if there is none after `after`. Without one, the response is then empty. "
        "Default: 0. A response with `limit=0` does not wait."
    ),
    "gather": (
        "Seconds to wait for further change sets once there is one, until there are `limit` or the `timeout` is over. "
        "Default: 0. Without `timeout`, it has no effect."
    ),
    "dry_run": "Check everything but store nothing. Returns what would happen, or the error.",
}
"""Every query parameter."""
