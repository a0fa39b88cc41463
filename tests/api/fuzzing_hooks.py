"""Hooks for facts that the OpenAPI document cannot express: existing listings, and rules beyond a schema.

Each failure that is ignored here belongs to one check and has one cause; any other failure counts.
"""

import re
from typing import Any

import schemathesis
from schemathesis import Case, GenerationMode, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.openapi.checks import RejectedPositiveData, UseAfterFree

from listings.api.docs.headers import build_parameters
from tests.pictures import photo

_IDEMPOTENCY_KEY = re.compile(build_parameters()["Idempotency-Key"]["schema"]["pattern"])
_PRICES = ("price", "price_min", "price_max")
_NOT_DESCRIBED = {"connection", "content-type"}  # belongs to the connection; described by the media type

EXISTING_CHANGE, EXISTING_REVERT = 1, 2  # of alice, which `fuzzing` creates

# A schema describes one value; these codes depend on earlier requests.
_STATEFUL_CODES = {
    "changes_gone",  # an id that no change set has yet
    "precondition_failed",  # a well-formed If-Match that names no version of the listing
    "idempotency_key_reused",  # a well-formed Idempotency-Key of another body
}
# These messages depend on other parts of the request, or on the letters of Unicode.
_BEYOND_SCHEMAS = re.compile(
    # Under handling=strict, or because the name is almost a known one.
    r".+ is not (a known parameter|a field (that can be set|of a batch|of this (operation|revert)))(: .+)?"
    r"|atomic must be true or absent with If-Match"
    r"|Exactly one of change, import, revert, key is required"
    r"|since is required with key"
    r"|until must not be before since"
    r"|price_min must not be above price_max"
    r"|images\[\d+\] must be an absolute http or https URL, got .+"
    r"|q must have 1 to 10 words of letters or digits, and at most 200 characters"
    r"|and \d+ more"
    # Patterns know only ASCII.
    r"|(listing\.|changes\.)?external_id must not contain control characters, got .+"
    r"|images\[\d+\] must be a URL without spaces, control characters or backslashes, got .+"
    r"|(title|content) is required and must not be blank",
    re.DOTALL,
)


@schemathesis.check
def headers_are_described(_context: Any, response: Response, case: Case[Any]) -> None:
    described = case.operation.responses.find_by_status_code(response.status_code)
    if described is None:
        return  # status_code_conformance reports it
    names = {name.lower() for name, _ in described.headers.items()} | _NOT_DESCRIBED
    unknown = sorted(set(response.headers) - names)
    assert not unknown, f"{unknown} are not described"


@schemathesis.hook
def before_call(_context: HookContext, case: Case[Any], _kwargs: dict[str, Any]) -> None:
    """Remove unknown cursors, and used idempotency keys and external ids, which would all be rejected."""
    for name, value in case.headers.items():
        case.headers[name] = str(value)  # an OpenAPI link may set a number, which is not a valid header
    if not _is_positive(case):
        return
    case.query, case.body = _round_prices(case.query), _round_prices(case.body)
    case.query.pop("cursor", None)  # only cursors from a response are valid
    case.query.pop("timeout", None)  # the run would wait that long
    if case.operation.path.endswith("/images") and case.operation.method == "post":
        case.body = photo()  # other bytes are no picture
    if case.operation.path.endswith("/images/{id}") and _uploaded:
        case.path_parameters["id"] = _uploaded.pop()
    if case.operation.path.endswith("/changes/revert"):
        case.body = _name_one_subject(case.body)
    if case.operation.path.endswith("/changes/reverts/{id}"):
        case.path_parameters["id"] = EXISTING_REVERT
    if isinstance(case.body, dict) and len(str(case.body.get("external_id") or "")) % 4:
        case.body["external_id"] = case.id  # one that no other listing has
    if "Idempotency-Key" in case.headers and len(case.headers["Idempotency-Key"]) % 4:
        case.headers["Idempotency-Key"] = f'"{case.id}"'


def _name_one_subject(body: Any) -> Any:
    """Return the body of a revert with exactly one subject, which exists."""
    if not isinstance(body, dict):
        return body
    return {"change": EXISTING_CHANGE} | {name: value for name, value in body.items() if name == "overwrite"}


def _round_prices(part: Any) -> Any:
    """Round prices to two decimals: a schema cannot, because few amounts in cents are exact as a double."""
    if isinstance(part, list):
        return [_round_prices(one) for one in part]
    if not isinstance(part, dict):
        return part
    prices = {name: round(part[name], 2) for name in _PRICES if isinstance(part.get(name), float)}
    return {name: _round_prices(value) for name, value in part.items()} | prices


_deleted: set[str] = set()
_uploaded: list[str] = []  # names of pictures


@schemathesis.hook
def after_call(_context: HookContext, case: Case[Any], response: Response) -> None:
    """Record uploaded pictures, and deleted listings: a dry run deletes nothing, and a restored one exists again."""
    if case.operation.path.endswith("/images") and "location" in response.headers:
        _uploaded.append(response.json()["url"].rpartition("/")[2].removesuffix(".jpg"))
    message = response.json().get("message") if response.status_code == 200 and case.path_parameters else None
    if message == "listing deleted":
        _deleted.add(str(case.path_parameters["id"]))
    elif message == "listing restored":
        _deleted.discard(str(case.path_parameters["id"]))


@schemathesis.hook
def filter_failure(_context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    if isinstance(failure, RejectedPositiveData):
        return not _is_justly_rejected(response)
    if isinstance(failure, AcceptedNegativeData):
        return not _is_justly_accepted(case)
    if isinstance(failure, UseAfterFree):
        return str(case.path_parameters["id"]) in _deleted
    return True


def _is_positive(case: Case[Any]) -> bool:
    return case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE


def _is_justly_rejected(response: Response) -> bool:
    (code,) = response.headers.get("x-error-code", [""])
    if code in _STATEFUL_CODES:
        return True
    errors = response.json()["error"].split("; ")
    return code == "invalid_request" and all(_BEYOND_SCHEMAS.fullmatch(error) for error in errors)


def _is_justly_accepted(case: Case[Any]) -> bool:
    """Return whether the only invalid part is an operation of a batch, which fails alone, or bytes are a picture."""
    if case.operation.path.endswith("/images"):
        return True
    components = case.meta.components if case.meta is not None else {}
    invalid = {location for location, component in components.items() if component.mode is GenerationMode.NEGATIVE}
    if ParameterLocation.BODY not in invalid or not case.operation.path.endswith("/batch"):
        return False
    # The other parts that matter; unknown parameters are ignored, and so is a bearer token next to a key.
    dry_run = str(case.query.get("dry_run", False)).lower()
    key = str(case.headers.get("Idempotency-Key", ""))
    return dry_run in {"true", "false"} and _IDEMPOTENCY_KEY.search(key) is not None and _is_batch(case.body)


def _is_batch(body: object) -> bool:
    if not isinstance(body, dict) or not isinstance(body.get("atomic", False), bool):
        return False
    operations = body.get("operations")
    return isinstance(operations, list) and 1 <= len(operations) <= 100
