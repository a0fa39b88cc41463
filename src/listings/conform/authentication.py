"""Who may call: the keys' two headers, keys that are missing, invalid or expired, and other accounts' listings."""

from collections.abc import Callable

from listings.conform.context import NOT_COMPARED, UNKNOWN_ID, Trial
from listings.conform.session import Credential, Exchange
from listings.conform.suite import Sheet, require
from listings.conform.verdicts import Broken, Prevented

SHEET = Sheet()
_SECTION = "Authentication"
_MISSING_OR_INVALID = "A missing or invalid key gives 401."
_OF_A_LISTING = (
    "When a listing id does not exist, the response is 404; when the listing belongs to another account, it is 403."
)
_REQUIRED = ("requir", "miss", "need", "must", "provide", "supply", "without", "no ")


@SHEET.add("auth-1", _SECTION, "Header `X-API-Key: <API_KEY>`")
def key_in_its_own_header(trial: Trial) -> None:
    """Every endpoint takes the key."""
    _require_taken(trial, trial.session.by_header)


@SHEET.add("auth-2", _SECTION, "Header `Authorization: Bearer <API_KEY>`")
def key_as_bearer_token(trial: Trial) -> None:
    """Every endpoint takes the key."""
    _require_taken(trial, trial.session.by_bearer)


def _require_taken(trial: Trial, by: Credential) -> None:
    require(trial.each_endpoint(by), lambda answer: answer.status not in {401, 403}, "neither 401 nor 403")


@SHEET.add("auth-3", _SECTION, _MISSING_OR_INVALID)
def missing_key(trial: Trial) -> None:
    """Every endpoint refuses with 401."""
    require(trial.keyless, _is(401), "401")


@SHEET.add("auth-4", _SECTION, _MISSING_OR_INVALID)
def invalid_key(trial: Trial) -> None:
    """Every endpoint refuses with 401."""
    require(trial.unknown_key, _is(401), "401")


@SHEET.add("auth-5", "Endpoints", "All endpoints require authentication (see Authentication).")
def nothing_without_a_key(trial: Trial) -> None:
    """No endpoint serves whoever has no good key, whatever it refuses with."""
    require([*trial.keyless, *trial.unknown_key], lambda answer: not answer.succeeded, "a refusal")


@SHEET.add("auth-6", _SECTION, "An expired Business plan gives 403.")
def expired_plan(trial: Trial) -> None:
    """Every endpoint refuses with 403."""
    require(trial.each_endpoint(trial.expired), _is(403), "403")


@SHEET.add(
    "owner-1",
    _SECTION,
    "A key can be used only on the caller's own listings; another account's listing gives 403.",
)
def others_reach_nothing(trial: Trial) -> None:
    """Another account can neither read nor change a listing, whatever it is refused with."""
    asked, before, after = trial.strangers
    require(asked, lambda answer: not answer.succeeded, "a refusal of another account")
    if not after:
        raise Broken("after PUT, PATCH and DELETE by another account the owner can't read the listing any more")
    changed = [name for name in before if name not in NOT_COMPARED and after.get(name) != before[name]]
    if changed:
        raise Broken(f"PUT, PATCH and DELETE by another account changed {', '.join(changed)}")


@SHEET.add("owner-2", "Endpoints", _OF_A_LISTING)
def others_get_403(trial: Trial) -> None:
    """Reading, changing and deleting another account's listing is 403."""
    require(trial.strangers[0], _is(403), "403")


@SHEET.add("missing-1", "Endpoints", _OF_A_LISTING)
def unknown_listing(trial: Trial) -> None:
    """Reading, changing and deleting what does not exist is 404."""
    require(trial.each_method(UNKNOWN_ID), _is(404), "404")


@SHEET.add(
    "auth-7",
    "Errors",
    "The error text for a missing key is a short message stating that an API key is required.",
)
def text_for_a_missing_key(trial: Trial) -> None:
    """The text has the word key, and one that says that it is required."""
    refused = [answer for answer in trial.keyless if not answer.succeeded]
    if not refused:
        raise Prevented("nothing was refused without a key")
    require(refused, _says_that_a_key_is_required, "an error that says that an API key is required")


def _says_that_a_key_is_required(answer: Exchange) -> bool:
    text = str(answer.members.get("error", "")).lower()
    return "key" in text and any(word in text for word in _REQUIRED)


def _is(status: int) -> Callable[[Exchange], bool]:
    return lambda answer: answer.status == status
