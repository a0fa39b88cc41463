"""Checks of authentication and authorization: both headers, missing, unknown and expired keys, other accounts."""

from collections.abc import Callable

from listings.conform.context import UNKNOWN_ID, VOLATILE_FIELDS, Context
from listings.conform.session import Credential, Exchange
from listings.conform.suite import Suite, require
from listings.conform.verdicts import Blocked, Failed

SUITE = Suite()
_SECTION = "Authentication"
_MISSING_OR_INVALID = "A missing or invalid key gives 401."
_OF_A_LISTING = (
    "When a listing id does not exist, the response is 404; when the listing belongs to another account, it is 403."
)
_REQUIRED_WORDS = ("requir", "miss", "need", "must", "provide", "supply", "without", "no ")


@SUITE.add("auth-1", _SECTION, "Header `X-API-Key: <API_KEY>`")
def check_key_header(context: Context) -> None:
    """Require that every endpoint accepts the key in X-API-Key."""
    _require_accepted(context, context.session.by_header)


@SUITE.add("auth-2", _SECTION, "Header `Authorization: Bearer <API_KEY>`")
def check_bearer_token(context: Context) -> None:
    """Require that every endpoint accepts the key as a bearer token."""
    _require_accepted(context, context.session.by_bearer)


def _require_accepted(context: Context, by: Credential) -> None:
    require(context.call_each_endpoint(by), lambda response: response.status not in {401, 403}, "neither 401 nor 403")


@SUITE.add("auth-3", _SECTION, _MISSING_OR_INVALID)
def check_missing_key(context: Context) -> None:
    """Require 401 from every endpoint without a key."""
    require(context.without_key, _has_status(401), "401")


@SUITE.add("auth-4", _SECTION, _MISSING_OR_INVALID)
def check_unknown_key(context: Context) -> None:
    """Require 401 from every endpoint for an unknown key."""
    require(context.with_unknown_key, _has_status(401), "401")


@SUITE.add("auth-5", "Endpoints", "All endpoints require authentication (see Authentication).")
def check_no_success_without_key(context: Context) -> None:
    """Require that no request without a valid key succeeds; any error status is accepted."""
    require([*context.without_key, *context.with_unknown_key], lambda response: not response.succeeded, "an error")


@SUITE.add("auth-6", _SECTION, "An expired Business plan gives 403.")
def check_expired_plan(context: Context) -> None:
    """Require 403 from every endpoint."""
    require(context.call_each_endpoint(context.expired), _has_status(403), "403")


@SUITE.add(
    "owner-1",
    _SECTION,
    "A key can be used only on the caller's own listings; another account's listing gives 403.",
)
def check_other_account_has_no_access(context: Context) -> None:
    """Require that another account can neither read nor change a listing; any error status is accepted."""
    exchanges, before, after = context.foreign_access
    require(exchanges, lambda response: not response.succeeded, "an error for another account")
    if not after:
        raise Failed("after PUT, PATCH and DELETE by another account, the owner can't read the listing any more")
    changed = [name for name in before if name not in VOLATILE_FIELDS and after.get(name) != before[name]]
    if changed:
        raise Failed(f"PUT, PATCH and DELETE by another account changed {', '.join(changed)}")


@SUITE.add("owner-2", "Endpoints", _OF_A_LISTING)
def check_other_account_gets_403(context: Context) -> None:
    """Require 403 for each method."""
    require(context.foreign_access[0], _has_status(403), "403")


@SUITE.add("missing-1", "Endpoints", _OF_A_LISTING)
def check_unknown_listing(context: Context) -> None:
    """Require 404 for each method."""
    require(context.call_each_method(UNKNOWN_ID), _has_status(404), "404")


@SUITE.add(
    "auth-7",
    "Errors",
    "The error text for a missing key is a short message stating that an API key is required.",
)
def check_missing_key_text(context: Context) -> None:
    """Require the word "key" and a word that means "required"."""
    rejected = [response for response in context.without_key if not response.succeeded]
    if not rejected:
        raise Blocked("no request without a key was rejected")
    require(rejected, _says_key_is_required, "an error that says that an API key is required")


def _says_key_is_required(response: Exchange) -> bool:
    text = str(response.members.get("error", "")).lower()
    return "key" in text and any(word in text for word in _REQUIRED_WORDS)


def _has_status(status: int) -> Callable[[Exchange], bool]:
    return lambda response: response.status == status
