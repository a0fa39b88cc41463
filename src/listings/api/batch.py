"""Batches: many writes in one request, parsed from the body, and reported with one result each."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

from listings.api import codec
from listings.api.codec import Response
from listings.contract.listings import BatchOutcome, Preview, Step, StepResult
from listings.domain import fields
from listings.domain.changes import format_values
from listings.domain.errors import STATUS, Problem
from listings.domain.fields import json_type, preview
from listings.domain.model import Caller, Listing, ListingChange
from listings.service import Services
from listings.service.listings.steps import Steps, WriteOptions

MAX_OPERATIONS = 100
MAX_REF_LENGTH = 255
MAX_TAGS_LENGTH = 4096
_SMALL_BODY_BYTES = 128 * 1024  # decoded and parsed in less than 2 ms
_LARGE_RESULT_BYTES = 32 * 1024  # a result of the largest listing takes 1 ms to encode
_OPERATIONS_PER_STEP = 20  # of a larger body: 2 MiB take 1 to 4 ms to decode, and then 1 to 2 ms a step

T = TypeVar("T")


class Operation(NamedTuple):
    """A parsed operation of a batch, with the function that builds its step."""

    verb: str  # the participle, for the messages
    step: Callable[[Services, Caller], Step]
    ignored: Sequence[str] = ()  # names of its unknown or read-only fields
    is_put: bool = False  # its result says what it did
    ref: object = None  # the client's name for it, None if absent


_Parser: TypeAlias = Callable[..., Operation]
"""Parses the content of an operation; `strict`: unknown fields are errors."""


class BatchRequest(NamedTuple):
    """The parsed body of a batch."""

    operations: Sequence[Operation]
    atomic: bool
    ignored: list[str]  # ignored fields of the batch and of its operations, without duplicates

    def encode(self, caller: Caller, outcome: BatchOutcome, *, dry_run: bool) -> Iterator[bytes]:
        """Encode the outcome for `build_response`, one result at a time."""
        results, edit_revision = outcome
        undone = _find_failure(results) if self.atomic else None
        if edit_revision is not None:
            yield f"{codec.format_state_tag(caller.account_id, edit_revision)}\n".encode()
        separator = b'{"results":['
        for operation, result in zip(self.operations, results, strict=True):
            shown = undone if undone is not None and not isinstance(result, Problem) else result
            yield separator
            yield codec.encode(_report(operation, shown, dry_run=dry_run))
            separator = b","
        yield b"]}"


async def join(pieces: Iterator[bytes]) -> bytes:
    """Join encoded results. Other requests run after each large one."""
    encoded = []
    for piece in pieces:
        encoded.append(piece)
        if len(piece) > _LARGE_RESULT_BYTES:
            await asyncio.sleep(0)
    return b"".join(encoded)


def build_response(encoded: bytes, headers: bytes) -> Response:
    """Return the response to a batch. Its tag, if it had an If-Match, and its body are lines of `encoded`."""
    tag, _, body = encoded.rpartition(b"\n")
    return Response(200, body, headers, tag=tag.decode())


def _find_failure(results: Sequence[StepResult]) -> Problem | None:
    """Return the result of the other operations if one failed."""
    failed = next((index for index, result in enumerate(results) if isinstance(result, Problem)), None)
    return None if failed is None else Problem("dependency_failed", f"Not applied: operations[{failed}] failed")


async def parse(body: bytes, *, strict: bool, must_be_atomic: bool = False) -> BatchRequest:
    """Parse the body of a batch. An invalid operation is reported in its own result.

    Other requests run between the steps of a large body. `must_be_atomic`: whether the batch has an If-Match, which
    applies to all of it (decision G48).

    Raises Problem: malformed_json, invalid_request.
    """
    is_large = len(body) > _SMALL_BODY_BYTES
    if is_large:
        await asyncio.sleep(0)  # reading and hashing the body took time already
    content = codec.decode_body(body)
    operations, atomic = _require(content, "operations"), content.get("atomic", must_be_atomic)
    if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_OPERATIONS:
        actual = len(operations) if isinstance(operations, list) else json_type(operations)
        raise Problem(
            "invalid_request", f"operations must be an array of 1 to {MAX_OPERATIONS} operations, got {actual}"
        )
    if not isinstance(atomic, bool):
        raise Problem("invalid_request", f"atomic must be true or false, got {preview(atomic)}")
    if must_be_atomic and not atomic:
        raise Problem("invalid_request", "atomic must be true or absent with If-Match")
    unknown = [name for name in content if name not in {"operations", "atomic"}]
    if strict and unknown:
        raise Problem("invalid_request", f"{preview(unknown[0])} is not a field of a batch")
    parsed = []
    for index, operation in enumerate(operations):
        if is_large and index % _OPERATIONS_PER_STEP == 0:
            await asyncio.sleep(0)
        parsed.append(_parse_operation(operation, strict=strict))
    ignored = dict.fromkeys(chain(unknown, *(operation.ignored for operation in parsed)))
    return BatchRequest(parsed, atomic, list(ignored))


def _parse_operation(content: object, *, strict: bool) -> Operation:
    if not isinstance(content, dict):
        return _invalid(None, f"An operation must be an object, got {json_type(content)}")
    ref = content.get("ref")
    if ref is not None and not _is_ref(ref):
        return _invalid(None, f"ref must be a string or an integer of at most {MAX_REF_LENGTH} characters")
    name = content.get("op")
    if not isinstance(name, str) or name not in _PARSERS:
        error = f"must be one of {', '.join(_PARSERS)}, got {preview(name)}" if "op" in content else "is required"
        return _invalid(ref, f"op {error}")
    parse_content, known = _PARSERS[name]
    unknown = [field for field in content if field not in {"op", "ref", *known}]
    if strict and unknown:
        return _invalid(ref, f"{preview(unknown[0])} is not a field of this operation")
    try:
        operation = parse_content(content, strict=strict)
        return operation._replace(ignored=[*unknown, *operation.ignored], ref=ref)
    except Problem as problem:
        return _failing(ref, problem)


def _is_ref(ref: object) -> bool:
    return isinstance(ref, str | int) and not isinstance(ref, bool) and len(str(ref)) <= MAX_REF_LENGTH


def _parse_create(content: Mapping[str, Any], *, strict: bool) -> Operation:
    new, ignored = fields.parse_new_listing(_parse_object(content, "listing"), strict=strict)
    return Operation("created", lambda services, _caller: services.listings.steps.create(new), ignored)


def _parse_update(content: Mapping[str, Any], *, strict: bool) -> Operation:
    listing_id, options = _parse_id(content), _parse_options(content)
    change, ignored = _parse_change(content, strict=strict)
    return Operation(
        "updated",
        lambda services, caller: services.listings.steps.update(caller, listing_id, change, options),
        ignored,
    )


def _parse_put(content: Mapping[str, Any], *, strict: bool) -> Operation:
    body, options = _parse_object(content, "listing"), _parse_options(content)
    external_id = _parse_external_id(body)
    new, ignored = _parse_fields(fields.parse_new_listing, body, strict=strict)
    change, ignored_by_update = _parse_fields(fields.parse_listing_change, body, strict=strict)
    if "if_match" in content:
        new = Problem("precondition_failed", f"No listing has the external_id {preview(external_id)}")
    return Operation(
        "updated",
        lambda services, caller: services.listings.steps.put(caller, external_id, new, change, options),
        ignored or ignored_by_update,
        is_put=True,
    )


def _build_parser(verb: str, build_step: Callable[[Steps, Caller, int, WriteOptions], Step]) -> _Parser:
    """Return the parser of an operation that has only an id."""

    def parse_content(content: Mapping[str, Any], **_strict: bool) -> Operation:
        listing_id, options = _parse_id(content), _parse_options(content)
        return Operation(
            verb, lambda services, caller: build_step(services.listings.steps, caller, listing_id, options)
        )

    return parse_content


_PARSERS: Mapping[str, tuple[_Parser, tuple[str, ...]]] = {
    "create": (_parse_create, ("listing",)),
    "update": (_parse_update, ("id", "changes", "if_match")),
    "put": (_parse_put, ("listing", "if_match")),
    "delete": (_build_parser("deleted", Steps.delete), ("id", "if_match")),
    "restore": (_build_parser("restored", Steps.restore), ("id", "if_match")),
}
"""The parser and the fields of each operation."""


def _parse_change(content: Mapping[str, Any], *, strict: bool) -> tuple[ListingChange | Problem, list[str]]:
    """Parse the changes. Errors are returned, because the listing is checked first (decision G21)."""
    try:
        body = _parse_object(content, "changes")
    except Problem as problem:
        return problem, []
    return _parse_fields(fields.parse_listing_change, body, strict=strict)


def _parse_fields(
    parse_body: Callable[..., tuple[T, list[str]]], body: Mapping[str, object], *, strict: bool
) -> tuple[T | Problem, list[str]]:
    """Parse the fields of a listing. Errors are returned."""
    try:
        return parse_body(body, strict=strict)
    except Problem as problem:
        return problem, []


def _parse_external_id(body: Mapping[str, object]) -> str:
    """Return the external id, which a put needs. Raises Problem("invalid_request")."""
    if body.get("external_id") is None:
        raise Problem("invalid_request", "listing.external_id is required")
    change, _ = fields.parse_listing_change({"external_id": body["external_id"]})
    return str(change["external_id"])


def _parse_object(content: Mapping[str, Any], name: str) -> Mapping[str, object]:
    value = _require(content, name)
    if not isinstance(value, dict):
        raise Problem("invalid_request", f"{name} must be an object, got {json_type(value)}")
    return value


def _parse_id(content: Mapping[str, Any]) -> int:
    number = _require(content, "id")
    if isinstance(number, bool) or not isinstance(number, int):
        advice = ": remove the quotes" if isinstance(number, str) and number.isdecimal() else ""
        raise Problem("invalid_request", f"id must be an integer, got {preview(number)}{advice}")
    return codec.parse_listing_id(str(number))


def _parse_options(content: Mapping[str, Any]) -> WriteOptions:
    tags = content.get("if_match", "*")
    if not isinstance(tags, str):
        raise Problem("invalid_request", f"if_match must be a string, got {json_type(tags)}")
    if len(tags) > MAX_TAGS_LENGTH:
        raise Problem("invalid_request", f"if_match must be at most {MAX_TAGS_LENGTH} characters, got {len(tags)}")
    return WriteOptions(codec.parse_if_match([tags], "if_match"))


def _require(content: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON value
    if name not in content:
        raise Problem("invalid_request", f"{name} is required")
    return content[name]


def _invalid(ref: object, message: str) -> Operation:
    return _failing(ref, Problem("invalid_request", message))


def _failing(ref: object, problem: Problem) -> Operation:
    return Operation("", lambda _services, _caller: problem, ref=ref)


def _report(operation: Operation, result: StepResult, *, dry_run: bool) -> dict[str, object]:
    """Build the result of one operation: the status, the code or entity tag, and the body of a single response."""
    report: dict[str, object] = {} if operation.ref is None else {"ref": operation.ref}
    if isinstance(result, Problem):
        return report | {"status": STATUS[result.code], "code": result.code, "body": {"error": result.message}}
    values: dict[str, object] = {}
    if isinstance(result, Preview):
        values, result = _report_preview(result), result.result
    if operation.is_put:
        report |= _report_put(result, dry_run=dry_run)
    if dry_run:
        verb = "created" if isinstance(result, int) else operation.verb
        return report | {"status": 200, "body": {"message": f"listing would be {verb}"}} | values
    if isinstance(result, int):
        return report | {"status": 201, "etag": codec.NEW_ETAG, "body": codec.build_created_body(result)}
    body = {"message": f"listing {operation.verb}"}
    return report | {"status": 200, "etag": codec.format_etag(result), "body": body}


def _report_preview(shown: Preview) -> dict[str, object]:
    """Return what an operation of a dry run would change."""
    before = None if shown.before is None else format_values(shown.before)
    return {"before": before, "after": format_values(shown.after)}


def _report_put(result: int | Listing, *, dry_run: bool) -> dict[str, object]:
    """Return what a put did, and the id of its listing."""
    if isinstance(result, int):
        return {"op": "create"} if dry_run else {"op": "create", "id": result}
    return {"op": "update", "id": result.id}
