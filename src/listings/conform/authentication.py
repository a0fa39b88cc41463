"""Checks of authentication and authorization: both headers, missing, unknown and expired keys, other accounts."""

from listings.conform.context import UNKNOWN_ID, VOLATILE_FIELDS, Context
from listings.conform.session import Credential, Exchange
from listings.conform.suite import Check, require, require_status
from listings.conform.verdicts import Blocked, Failed

_SECTION = "Authentication"
_KEY_HEADER = "Header `X-API-Key: <API_KEY>`"
_BEARER = "Header `Authorization: Bearer <API_KEY>`"
_ALL_ENDPOINTS = "All endpoints require authentication (see Authentication)."
_EXPIRED = "An expired Business plan gives 403."
_MISSING_OR_INVALID = "A missing or invalid key gives 401."
_KEY_TEXT = "The error text for a missing key is a short message stating that an API key is required."
_OWN_LISTINGS = "A key can be used only on the caller's own listings; another account's listing gives 403."
_OF_A_LISTING = (
    "When a listing id does not exist, the response is 404; when the listing belongs to another account, it is 403."
)
_REQUIRED_WORDS = ("requir", "miss", "need", "must", "provide", "supply", "without", "no ")


def _require_accepted(context: Context, by: Credential) -> None:
    require(context.call_each_endpoint(by), lambda response: response.status not in {401, 403}, "neither 401 nor 403")


def _check_no_success_without_key(context: Context) -> None:
    """Require that no request without a valid key succeeds; any error status is accepted."""
    require([*context.without_key, *context.with_unknown_key], lambda response: not response.succeeded, "an error")


def _check_expired_plan(context: Context) -> None:
    require_status(context.call_each_endpoint(context.expired), 403)


def _check_unknown_listing(context: Context) -> None:
    require_status(context.call_each_method(UNKNOWN_ID), 404)


def _check_other_account_has_no_access(context: Context) -> None:
    """Require that another account can neither read nor change a listing; any error status is accepted."""
    exchanges, before, after = context.foreign_access
    require(exchanges, lambda response: not response.succeeded, "an error for another account")
    if not after:
        raise Failed("after PUT, PATCH and DELETE by another account, the owner can't read the listing any more")
    changed = [name for name in before if name not in VOLATILE_FIELDS and after.get(name) != before[name]]
    if changed:
        raise Failed(f"PUT, PATCH and DELETE by another account changed {', '.join(changed)}")


def _check_missing_key_text(context: Context) -> None:
    """Require the word "key" and a word that means "required"."""
    rejected = [response for response in context.without_key if not response.succeeded]
    if not rejected:
        raise Blocked("no request without a key was rejected")
    require(rejected, _says_key_is_required, "an error that says that an API key is required")


def _says_key_is_required(response: Exchange) -> bool:
    text = str(response.members.get("error", "")).lower()
    return "key" in text and any(word in text for word in _REQUIRED_WORDS)


CHECKS = (
    Check("auth-1", _SECTION, _KEY_HEADER, lambda context: _require_accepted(context, context.session.by_header)),
    Check("auth-2", _SECTION, _BEARER, lambda context: _require_accepted(context, context.session.by_bearer)),
    Check("auth-3", _SECTION, _MISSING_OR_INVALID, lambda context: require_status(context.without_key, 401)),
    Check("auth-4", _SECTION, _MISSING_OR_INVALID, lambda context: require_status(context.with_unknown_key, 401)),
    Check("auth-5", "Endpoints", _ALL_ENDPOINTS, _check_no_success_without_key),
    Check("auth-6", _SECTION, _EXPIRED, _check_expired_plan),
    Check("owner-1", _SECTION, _OWN_LISTINGS, _check_other_account_has_no_access),
    Check("owner-2", "Endpoints", _OF_A_LISTING, lambda context: require_status(context.foreign_access[0], 403)),
    Check("missing-1", "Endpoints", _OF_A_LISTING, _check_unknown_listing),
    Check("auth-7", "Errors", _KEY_TEXT, _check_missing_key_text),
)
