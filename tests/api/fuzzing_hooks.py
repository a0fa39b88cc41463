"""What schemathesis can't know of the service: which listings there are, and where a description has no words.

Every failure that is let pass here is one of a single check and of a single cause; whatever else fails, fails.
"""

import re
from typing import Any

import schemathesis
from schemathesis import Case, GenerationMode, HookContext, Response
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.parameters import ParameterLocation
from schemathesis.openapi.checks import RejectedPositiveData, UseAfterFree

from listings.api.docs.headers import build_parameters

_IDEMPOTENCY_KEY = re.compile(build_parameters()["Idempotency-Key"]["schema"]["pattern"])
_PRICES = ("price", "price_min", "price_max")
_TEXTS = ("text/html", "text/css", "text/javascript")
_NOT_OF_THE_ANSWER = {"connection", "content-type"}  # of the connection; described by the media type

# A schema says how one value looks; these depend on what was done before.
_OF_BEFORE = {
    "precondition_failed",  # a well-formed If-Match that names no version of the listing
    "idempotency_key_reused",  # a well-formed Idempotency-Key that has stood for another body
}
# And these on what was asked for beside it, or on what Unicode calls a letter.
_BEYOND_SCHEMAS = re.compile(
    r".+ is not a field that can be set"  # all four only under handling=strict
    r"|.+ is not a known parameter"
    r"|.+ is not a field of a batch"
    r"|images\[\d+\] must be an absolute http or https URL, got .+"
    r"|q must have 1 to 10 words of letters or digits, and at most 200 characters"
    r"|and \d+ more",
    re.DOTALL,
)


@schemathesis.deserializer(*_TEXTS)
def text(_context: Any, response: Response) -> str:
    return response.text


@schemathesis.check
def headers_are_described(_context: Any, response: Response, case: Case[Any]) -> None:
    """No answer has a header that the description does not name for it."""
    described = case.operation.responses.find_by_status_code(response.status_code)
    if described is None:
        return  # status_code_conformance tells that
    names = {name.lower() for name, _ in described.headers.items()} | _NOT_OF_THE_ANSWER
    unknown = sorted(set(response.headers) - names)
    assert not unknown, f"{unknown} are not described"


@schemathesis.hook
def before_call(_context: HookContext, case: Case[Any], _kwargs: dict[str, Any]) -> None:
    """Lets what is well-formed reach further than to the refusal of an unknown cursor or a used key."""
    for name, value in case.headers.items():
        case.headers[name] = str(value)  # a link may carry a number into a header, which can't be sent
    if not _is_positive(case):
        return
    case.query, case.body = _in_cents(case.query), _in_cents(case.body)
    case.query.pop("cursor", None)  # no cursor but one that was given out is good
    if "Idempotency-Key" in case.headers and len(case.headers["Idempotency-Key"]) % 4:
        case.headers["Idempotency-Key"] = f'"{case.id}"'


def _in_cents(part: Any) -> Any:
    """Prices without a third decimal: no schema can ask for that, since a double holds hardly any cents exactly."""
    if isinstance(part, list):
        return [_in_cents(one) for one in part]
    if not isinstance(part, dict):
        return part
    prices = {name: round(part[name], 2) for name in _PRICES if isinstance(part.get(name), float)}
    return {name: _in_cents(value) for name, value in part.items()} | prices


_deleted: set[str] = set()


@schemathesis.hook
def after_call(_context: HookContext, case: Case[Any], response: Response) -> None:
    """Remembers what is deleted: to rehearse a deletion deletes nothing, and a restored listing is there again."""
    said = response.json().get("message") if response.status_code == 200 and case.path_parameters else None
    if said == "listing deleted":
        _deleted.add(str(case.path_parameters["id"]))
    elif said == "listing restored":
        _deleted.discard(str(case.path_parameters["id"]))


@schemathesis.hook
def filter_failure(_context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """Whether a failure is one."""
    if isinstance(failure, RejectedPositiveData):
        return not _is_rightly_refused(response)
    if isinstance(failure, AcceptedNegativeData):
        return not _is_rightly_accepted(case)
    if isinstance(failure, UseAfterFree):
        return str(case.path_parameters["id"]) in _deleted
    return True


def _is_positive(case: Case[Any]) -> bool:
    return case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE


def _is_rightly_refused(response: Response) -> bool:
    (code,) = response.headers.get("x-error-code", [""])
    if code in _OF_BEFORE:
        return True
    faults = response.json()["error"].split("; ")
    return code == "invalid_request" and all(_BEYOND_SCHEMAS.fullmatch(fault) for fault in faults)


def _is_rightly_accepted(case: Case[Any]) -> bool:
    """A wrong operation is refused in its own result, and the batch is carried out."""
    components = case.meta.components if case.meta is not None else {}
    wrong = {place for place, component in components.items() if component.mode is GenerationMode.NEGATIVE}
    if ParameterLocation.BODY not in wrong or not case.operation.path.endswith("/batch"):
        return False
    # All else that this operation heeds; unknown parameters are ignored, and so is a bearer token beside a key.
    rehearsal = str(case.query.get("dry_run", False)).lower()
    key = str(case.headers.get("Idempotency-Key", ""))
    return rehearsal in {"true", "false"} and _IDEMPOTENCY_KEY.search(key) is not None and _is_batch(case.body)


def _is_batch(body: object) -> bool:
    if not isinstance(body, dict) or not isinstance(body.get("atomic", False), bool):
        return False
    operations = body.get("operations")
    return isinstance(operations, list) and 1 <= len(operations) <= 100
