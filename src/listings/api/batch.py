"""Many writes in one request: what stands in the body, and what each came to."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from listings.api import codec
from listings.contract.listings import Step, StepResult
from listings.domain import fields
from listings.domain.errors import Problem
from listings.domain.fields import json_type, preview
from listings.domain.model import Caller, ListingChange
from listings.service import Service

MOST_OPERATIONS = 100
LONGEST_REF = 255
_FAILED_BESIDE = Problem("dependency_failed", "Not done, because another operation of the batch failed")


class Operation(NamedTuple):
    """One operation: how its step is made, and what its success is called."""

    ref: object  # what the client calls it; absent: None
    done: str
    dry_run_result: str
    step: Callable[[Service, Caller], Step]
    ignored: Sequence[str] = ()  # keys of it that mean nothing


class AskedBatch(NamedTuple):
    """All that the body of a batch asks for."""

    operations: Sequence[Operation]
    atomic: bool
    ignored: list[str]  # keys that mean nothing, of the whole and of its operations, each once

    def recorder(self, *, dry_run: bool) -> Callable[[Sequence[StepResult]], str]:
        """Makes the body of the answer out of what the steps came to."""

        def record(results: Sequence[StepResult]) -> str:
            failed = self.atomic and any(isinstance(result, Problem) for result in results)
            told = [
                _told(operation, _FAILED_BESIDE if failed and not isinstance(result, Problem) else result, dry_run)
                for operation, result in zip(self.operations, results, strict=True)
            ]
            return codec.encode({"results": told}).decode()

        return record


def read(body: bytes, *, strict: bool) -> AskedBatch:
    """What a body asks for. Raises Problem: malformed_json, invalid_request; an operation's own faults are its own."""
    content = codec.decode_body(body)
    operations, atomic = content.get("operations"), content.get("atomic", False)
    if not isinstance(operations, list) or not 1 <= len(operations) <= MOST_OPERATIONS:
        raise Problem("invalid_request", f"operations must be a list of 1 to {MOST_OPERATIONS} operations")
    if not isinstance(atomic, bool):
        raise Problem("invalid_request", f"atomic must be true or false, got {preview(atomic)}")
    unknown = [name for name in content if name not in {"operations", "atomic"}]
    if strict and unknown:
        raise Problem("invalid_request", f"{preview(unknown[0])} is not part of a batch")
    read_ones = [_operation(operation, strict=strict) for operation in operations]
    ignored = dict.fromkeys(chain(unknown, *(one.ignored for one in read_ones)))
    return AskedBatch(read_ones, atomic, list(ignored))


def _operation(content: object, *, strict: bool) -> Operation:
    if not isinstance(content, dict):
        return _refused(None, f"An operation must be an object, got {json_type(content)}")
    ref = content.get("ref")
    if ref is not None and not _is_reference(ref):
        return _refused(None, f"ref must be text or a whole number of at most {LONGEST_REF} characters")
    kind = content.get("op")
    if not isinstance(kind, str) or kind not in _KINDS:
        return _refused(ref, f"op must be one of {', '.join(_KINDS)}, got {preview(kind)}")
    read_kind, parts = _KINDS[kind]
    unknown = [name for name in content if name not in {"op", "ref", *parts}]
    if strict and unknown:
        return _refused(ref, f"{preview(unknown[0])} is not part of this operation")
    try:
        operation = read_kind(ref, content, strict)
        return operation._replace(ignored=[*unknown, *operation.ignored])
    except Problem as problem:
        return _failing(ref, problem)


def _is_reference(ref: object) -> bool:
    return isinstance(ref, str | int) and not isinstance(ref, bool) and len(str(ref)) <= LONGEST_REF


def _create(ref: object, content: Mapping[str, Any], strict: bool) -> Operation:  # noqa: FBT001 - one of a table
    body = _object(content, "listing")
    new, ignored = fields.parse_new_listing(body, strict=strict)
    return Operation(
        ref,
        "listing created",
        "listing would be created",
        lambda service, _caller: service.build_create_step(new),
        ignored,
    )


def _update(ref: object, content: Mapping[str, Any], strict: bool) -> Operation:  # noqa: FBT001 - one of a table
    listing_id = _listing_id(content)
    change, ignored = _change(content, strict=strict)
    return Operation(
        ref,
        "listing updated",
        "listing would be updated",
        lambda service, caller: service.build_update_step(caller, listing_id, change),
        ignored,
    )


def _delete(ref: object, content: Mapping[str, Any], strict: bool) -> Operation:  # noqa: ARG001, FBT001 - one of a table
    listing_id = _listing_id(content)
    return Operation(
        ref,
        "listing deleted",
        "listing would be deleted",
        lambda service, caller: service.build_delete_step(caller, listing_id),
    )


_KINDS: Mapping[str, tuple[Callable[[object, Mapping[str, Any], bool], Operation], tuple[str, ...]]] = {
    "create": (_create, ("listing",)),
    "update": (_update, ("id", "changes")),
    "delete": (_delete, ("id",)),
}


def _change(content: Mapping[str, Any], *, strict: bool) -> tuple[ListingChange | Problem, list[str]]:
    """Its faults are carried along, since the listing is judged first (decision G21)."""
    try:
        return fields.parse_listing_change(_object(content, "changes"), strict=strict)
    except Problem as problem:
        return problem, []


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, object]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise Problem("invalid_request", f"{name} must be an object, got {json_type(value)}")
    return value


def _listing_id(content: Mapping[str, Any]) -> int:
    number = content.get("id")
    if isinstance(number, bool) or not isinstance(number, int):
        raise Problem("invalid_request", f"id must be an integer, got {preview(number)}")
    return codec.listing_id(str(number))


def _refused(ref: object, sentence: str) -> Operation:
    return _failing(ref, Problem("invalid_request", sentence))


def _failing(ref: object, problem: Problem) -> Operation:
    return Operation(ref, "", "", lambda _service, _caller: problem)


def _told(operation: Operation, result: StepResult, dry_run: bool) -> dict[str, object]:  # noqa: FBT001 - of one caller
    """What one operation is answered, as the single request would have been."""
    told: dict[str, object] = {} if operation.ref is None else {"ref": operation.ref}
    if isinstance(result, Problem):
        return told | {"status": codec.STATUS[result.code], "body": {"error": result.message}}
    if dry_run:
        return told | {"status": 200, "body": {"message": operation.dry_run_result}}
    if isinstance(result, int):
        return told | {"status": 201, "body": codec.created_body(result)}
    return told | {"status": 200, "body": {"message": operation.done}}
