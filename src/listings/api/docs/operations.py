"""Descriptions of every endpoint for listings, error and parameter: the texts that the OpenAPI document needs.

Those of fields are in `listings.domain.fields` and `schemas`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from listings.api import params
from listings.api.docs.schemas import FIELD_DOCS
from listings.domain.errors import Code
from listings.domain.fields import FIELDS
from listings.domain.listing_json import INCLUDED_FIELDS, Record
from listings.service.feed.waits import MAX_WAITS

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


class ErrorDoc(NamedTuple):
    """The documentation of an error code."""

    when: str
    example: str  # an error message
    cure: str


ERROR_DOCS: Mapping[Code, ErrorDoc] = {
    "invalid_request": ErrorDoc(
        "A field or parameter is missing or invalid.",
        "title is required; content is required",
        "Fix what the message names: it lists all errors of the body. Do not repeat the request unchanged.",
    ),
    "account_full": ErrorDoc(
        "The account would have more listings, or more text in them, than the operator permits.",
        "An account can have at most 100,000 listings: delete some first",
        (
            "Delete listings that you no longer need, or shorten their texts. By default, an account can have 100,000 "
            "listings that are not deleted, with 1 GiB of text."
        ),
    ),
    "malformed_json": ErrorDoc(
        "The body is not a JSON object.",
        "The body must be a JSON object, but it is empty",
        "Send one JSON object in UTF-8. The message names the byte at which the error is.",
    ),
    "malformed_request": ErrorDoc(
        "The request is not valid HTTP/1.1. The connection is closed.",
        "The request is not valid HTTP",
        "Use an HTTP library. Common causes are a missing `Host`, an unknown method, and line breaks in a header.",
    ),
    "api_key_required": ErrorDoc(
        "No API key was sent.",
        "API key is required",
        "Send the key in `X-API-Key`, or in `Authorization` after the word Bearer.",
    ),
    "invalid_api_key": ErrorDoc(
        "The key is unknown, malformed, revoked or expired.",
        "Invalid API key",
        "Copy the key again, without spaces, quotes or `Bearer`. If it was revoked or has expired, create another one.",
    ),
    "not_owner": ErrorDoc(
        "The listing belongs to another account.",
        "This listing belongs to another account",
        "Check the id, and that you use the key of the right account.",
    ),
    "plan_expired": ErrorDoc(
        "The account has no active Business plan.",
        "Business plan expired on 2026-08-21; renew at /console/plan",
        "Renew the plan; the message says where. The same key works again immediately.",
    ),
    "account_disabled": ErrorDoc(
        "The operator has disabled the account.", "This account is disabled", "Ask the operator for the reason."
    ),
    "listing_not_found": ErrorDoc(
        "The listing does not exist or is deleted.",
        "Listing not found",
        "Check the id. Restore the listing if you have deleted it.",
    ),
    "path_not_found": ErrorDoc(
        "The path does not exist.", "Path not found: /docs lists all paths", "Compare the path with the API reference."
    ),
    "key_not_allowed": ErrorDoc(
        "The key is read-only: it can send GET and HEAD only, and no dry runs.",
        "This key is read-only: send GET or HEAD, or use a key with write access",
        "Use a key with write access. The access of a key cannot be changed; create another key.",
    ),
    "method_not_allowed": ErrorDoc(
        "The path does not support the method. `Allow` lists the methods it supports.",
        "POST is not allowed here; use GET, HEAD",
        "Use a method that `Allow` lists.",
    ),
    "request_timeout": ErrorDoc(
        "The request took too long to arrive.",
        "The request body took longer than 30 seconds",
        "Send the headers within 10 seconds and the body within 30, or split a large batch.",
    ),
    "change_not_found": ErrorDoc(
        "There is no such change set, import, revert or key.",
        "There is no change set with the id 1201",
        "Check the id: the ids of change sets are in `GET /api/v1/changes`, that of an import is in its `actor`.",
    ),
    "changes_gone": ErrorDoc(
        "The changes after this id, or those to be reverted, are no longer stored.",
        "Some changes after 17 are not stored: request limit=0, then the list of all listings, and continue with the "
        "last of the first response",
        (
            "To keep a copy, begin again: request `limit=0`, then the list with `status=all`, then the changes after "
            "`last`. To revert, choose newer changes."
        ),
    ),
    "external_id_taken": ErrorDoc(
        "Another listing has the `external_id`.",
        'external_id "sku-17" belongs to listing 2049: use another one, or change listing 2049 first',
        "Update the listing that the text names, or send a `put` in a batch, which does so.",
    ),
    "precondition_failed": ErrorDoc(
        "The listing's current version does not match `If-Match`, or your listings do not match that of a batch.",
        "The listing does not match If-Match: read it again and send its current ETag, including the quotes",
        "Read the listing again, decide again, and send its current `ETag`.",
    ),
    "body_too_large": ErrorDoc(
        "The body is larger than the operator allows.",
        "The body must be at most 2097152 bytes",
        "Split the batch, or shorten the texts. The default limit is 2 MiB.",
    ),
    "uri_too_long": ErrorDoc(
        "The URL is longer than the operator allows.",
        "The URL must be at most 8192 bytes",
        "Shorten the query. The limit is 8 KiB.",
    ),
    "unsupported_encoding": ErrorDoc(
        "The body is compressed.",
        "Content-Encoding must be identity: send the body uncompressed",
        "Send the body uncompressed, without `Content-Encoding`.",
    ),
    "idempotency_key_reused": ErrorDoc(
        "The `Idempotency-Key` was already used for a different request.",
        "This Idempotency-Key was sent with another request before",
        "Use a new key for each write, and the same one only to repeat the same write.",
    ),
    "dependency_failed": ErrorDoc(
        "Another operation of an atomic batch failed, so this one was not applied.",
        "Not applied: operations[1] failed",
        "Fix the operation that the message names, and send the batch again.",
    ),
    "rate_limited": ErrorDoc(
        "The key has reached its rate limit. `Retry-After` says when to try again.",
        "Rate limit of 1000 requests per hour exceeded: try again in 1800 seconds",
        "Wait for the seconds in `Retry-After`, then send the request again.",
    ),
    "too_many_waits": ErrorDoc(
        "Too many requests of the key wait for changes.",
        f"This key already has {MAX_WAITS} requests that wait for changes: let one of them end first",
        f"Wait with one request, and pass the changes on to your other programs. A key may have {MAX_WAITS} that wait.",
    ),
    "header_too_large": ErrorDoc(
        "There are more headers than the operator allows, or they are too large.",
        "The request may have at most 100 headers, of at most 16384 bytes in total",
        "Send fewer or shorter headers: at most 100, with 16 KiB in total. Often the cause is a cookie.",
    ),
    "internal_error": ErrorDoc(
        "The server failed. Report the `X-Request-Id` to the operator.",
        "Something went wrong on our side",
        "Try again later. If it happens again, report the `X-Request-Id` to the operator.",
    ),
    "unavailable": ErrorDoc(
        "The service is temporarily unavailable. Try again after `Retry-After`; a write may have been applied.",
        "Too many connections",
        (
            "Wait for the seconds in `Retry-After`, then repeat the request. Repeat a create or a batch with its "
            "`Idempotency-Key`."
        ),
    ),
    "version_not_supported": ErrorDoc(
        "The HTTP version is neither 1.0 nor 1.1.", "Only HTTP/1.0 and HTTP/1.1 are supported", "Use HTTP/1.1."
    ),
}
"""Every error code of the API."""

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
