"""Descriptions of the error codes: when they occur, an example, and what to do about them."""

from collections.abc import Mapping
from typing import NamedTuple

from listings.domain.errors import Code
from listings.service.feed.waits import MAX_WAITS


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
