"""Batches: many writes in one request, parsed from the body, and reported with one result each."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from listings.api import codec
from listings.api.codec import Response
from listings.domain import fields
from listings.domain.changes import format_values
from listings.domain.errors import STATUS, Problem
from listings.domain.faults import (
    Fault,
    FaultCode,
    FieldError,
    InvalidFieldsError,
    find_misspelled,
    json_type,
    preview,
    raise_faults,
    reject,
)
from listings.domain.listings import BatchOutcome, ChangeStep, Preview, PutStep, Step, StepResult
from listings.domain.model import Caller, ListingChange, NewListing
from listings.service import Services
from listings.service.listings.steps import DEFAULT_WRITE_OPTIONS, WriteOptions

MAX_OPERATIONS = 100
MAX_REF_LENGTH = 255
MAX_TAGS_LENGTH = 4096
_SMALL_BODY_BYTES = 128 * 1024  # decoded and parsed in less than 2 ms
_LARGE_RESULT_BYTES = 32 * 1024  # a result of the largest listing takes 1 ms to encode
_OPERATIONS_PER_STEP = 20  # in a larger body: 2 MiB take 1 to 4 ms to decode, and then 1 to 2 ms a step

_ANY = "*"  # if_match of any version

T = TypeVar("T")
Ref: TypeAlias = str | int | None
"""The client's name for an operation, None if absent."""


class Operation(NamedTuple):
    """A parsed operation of a batch, with the function that builds its step."""

    verb: str  # the participle, for the messages
    step: Callable[[Services, Caller], Step]
    ignored: Sequence[str] = ()  # names of its unknown or read-only fields
    parent: str = ""  # precedes the names of its fields in errors
    ref: Ref = None
    is_put: bool = False  # its result has the field op


_Parser: TypeAlias = Callable[..., Operation]
"""Parses the content of an operation; `strict`: unknown fields are errors."""


_Locate: TypeAlias = Callable[[Callable[[int], ChangeStep]], Step]
"""Calls a function that builds a step with the listing's id."""


if TYPE_CHECKING:
    _TypedBody: TypeAlias = msgspec.Struct
else:
    _TypedBody = fields.build_typed_body()


class _Create(msgspec.Struct, tag_field="op", tag="create", forbid_unknown_fields=True, gc=False):
    listing: _TypedBody
    ref: Ref = None


class _Put(_Create, tag_field="op", tag="put", forbid_unknown_fields=True, gc=False):
    if_match: str | UnsetType = UNSET


class _Update(msgspec.Struct, tag_field="op", tag="update", forbid_unknown_fields=True, gc=False):
    id: int
    changes: _TypedBody
    ref: Ref = None
    if_match: str = _ANY


class _Batch(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    operations: list[_Create | _Update | _Put]
    atomic: bool | UnsetType = UNSET


_decode_typed = msgspec.json.Decoder(_Batch).decode


class BatchRequest(NamedTuple):
    """The parsed body of a batch."""

    operations: Sequence[Operation]
    atomic: bool
    ignored: list[str]  # ignored fields of the batch and of its operations, without duplicates

    def encode(
        self, caller: Caller, restore_id: str, outcome: BatchOutcome, *, dry_run: bool, detailed: bool
    ) -> Iterator[bytes]:
        """Encode the outcome for `build_response`, one result at a time."""
        results, edit_revision = outcome
        undone = None  # the result of the operations that did not fail
        if self.atomic:
            failed = next((index for index, result in enumerate(results) if isinstance(result, Problem)), None)
            if failed is not None:
                undone = Problem("dependency_failed", f"Not applied: operations[{failed}] failed")
        if edit_revision is not None:
            yield f"{codec.format_state_tag(caller.account_id, edit_revision, restore_id)}\n".encode()
        separator = b'{"results":['
        for operation, result in zip(self.operations, results, strict=True):
            shown = undone if undone is not None and not isinstance(result, Problem) else result
            yield separator
            yield codec.encode(_report(operation, shown, restore_id, dry_run=dry_run, detailed=detailed))
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


async def parse(body: bytes, *, strict: bool, must_be_atomic: bool = False) -> BatchRequest:
    """Parse the body of a batch. An invalid operation is reported in its own result.

    Other requests run between the steps of a large body. `must_be_atomic`: whether the batch has an If-Match, which
    applies to all of it (decision G48).

    Raises Problem: malformed_json, invalid_request.
    """
    is_large = len(body) > _SMALL_BODY_BYTES
    typed = None if is_large else _parse_typed(body, strict=strict, must_be_atomic=must_be_atomic)
    if typed is not None:
        return typed
    if is_large:
        await asyncio.sleep(0)  # reading and hashing the body took time already
    content = codec.decode_body(body)
    known = ("operations", "atomic")
    unknown = [name for name in content if name not in known]
    _check_unknown(unknown, known, content, "a field of a batch", strict=strict)
    operations, atomic = _require(content, "operations"), content.get("atomic", must_be_atomic)
    if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_OPERATIONS:
        actual = len(operations) if isinstance(operations, list) else json_type(operations)
        message = f"operations must be an array of 1 to {MAX_OPERATIONS} operations, got {actual}"
        reject("operations", "too_many" if isinstance(operations, list) and operations else "wrong_type", message)
    if not isinstance(atomic, bool):
        reject("atomic", "wrong_type", f"atomic must be true or false, got {preview(atomic)}")
    if must_be_atomic and not atomic:
        reject("atomic", "inconsistent", "atomic must be true or absent with If-Match")
    parsed = []
    for index, operation in enumerate(operations):
        if is_large and index % _OPERATIONS_PER_STEP == 0:
            await asyncio.sleep(0)
        parsed.append(_parse_operation(operation, strict=strict))
    ignored = dict.fromkeys(chain(unknown, *(operation.ignored for operation in parsed)))
    return BatchRequest(parsed, atomic, list(ignored))


def _parse_typed(body: bytes, *, strict: bool, must_be_atomic: bool) -> BatchRequest | None:
    # Creates, updates and puts take less than half the time. None: something needs a closer look.
    try:
        content = _decode_typed(body)
        parsed = [_build_operation(operation, strict=strict) for operation in content.operations]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError, Problem):
        return None
    atomic = must_be_atomic if isinstance(content.atomic, UnsetType) else content.atomic
    is_valid = 1 <= len(parsed) <= MAX_OPERATIONS and atomic >= must_be_atomic
    return BatchRequest(parsed, atomic, []) if is_valid else None


def _build_operation(content: _Create | _Update, *, strict: bool) -> Operation:
    # An exception: `_parse_operation` has to report something.
    if content.ref is not None and not _is_ref(content.ref):
        raise ValueError
    if isinstance(content, _Update):
        change = fields.read_typed(content.changes, strict=strict)
        locate = _locate(codec.parse_listing_id(str(content.id)))
        return _build_update(locate, change, (), _parse_options(content.if_match), content.ref)
    values = fields.read_typed(content.listing, strict=strict)
    missing = [fault.within("listing") for fault in fields.find_missing(values)]
    if isinstance(content, _Put):
        new = InvalidFieldsError(missing) if missing else NewListing(**cast("Mapping[str, Any]", values))
        return _build_put(str(values["external_id"]), new, values, content.if_match, (), content.ref)
    return _build_create(NewListing(**cast("Mapping[str, Any]", values)), (), content.ref)


def _parse_operation(content: object, *, strict: bool) -> Operation:
    if not isinstance(content, dict):
        return _invalid(None, "", f"An operation must be an object, got {json_type(content)}")
    ref = content.get("ref")
    if ref is not None and not _is_ref(ref):
        return _invalid(None, "ref", f"ref must be a string or an integer of at most {MAX_REF_LENGTH} characters")
    name = content.get("op")
    if not isinstance(name, str) or name not in _PARSERS:
        error = f"must be one of {', '.join(_PARSERS)}, got {preview(name)}" if "op" in content else "is required"
        return _invalid(ref, "op", f"op {error}", "not_allowed" if "op" in content else "required")
    parse_content, known = _PARSERS[name]
    known = ("op", "ref", *known)
    unknown = [field for field in content if field not in known]
    try:
        _check_unknown(unknown, known, content, "a field of this operation", strict=strict)
        operation = parse_content(content, strict=strict)
        return operation._replace(ignored=[*unknown, *operation.ignored], ref=ref)
    except Problem as problem:
        return _failing(ref, problem)


def _check_unknown(
    unknown: list[str], known: Sequence[str], given: Mapping[str, Any], kind: str, *, strict: bool
) -> None:
    if not unknown:
        return
    raise_faults(find_misspelled(unknown, known, given, kind))
    if strict:
        reject(unknown[0], "unknown", f"{preview(unknown[0])} is not {kind}")


def _is_ref(ref: object) -> bool:
    return isinstance(ref, str | int) and not isinstance(ref, bool) and len(str(ref)) <= MAX_REF_LENGTH


def _parse_create(content: Mapping[str, Any], *, strict: bool) -> Operation:
    return _build_create(*_parse_fields(fields.parse_new_listing, content, "listing", strict=strict))


def _build_create(new: NewListing, ignored: Sequence[str], ref: Ref = None) -> Operation:
    return Operation("created", lambda services, _: services.listings.steps.create(new), ignored, "listing", ref)


def _parse_update(content: Mapping[str, Any], *, strict: bool) -> Operation:
    locate, options = _parse_target(content), _parse_options(content.get("if_match", _ANY))
    return _build_update(locate, *_try_fields(fields.parse_listing_change, content, "changes", strict=strict), options)


def _build_update(
    locate: _Locate, change: ListingChange | Problem, ignored: Sequence[str], options: WriteOptions, ref: Ref = None
) -> Operation:
    def build_step(services: Services, caller: Caller) -> Step:
        return locate(partial(services.listings.steps.update, caller, change=change, options=options))

    return Operation("updated", build_step, ignored, "changes", ref)


def _parse_delete(content: Mapping[str, Any], **_strict: bool) -> Operation:
    locate, options = _parse_target(content), _parse_options(content.get("if_match", _ANY))
    return Operation(
        "deleted", lambda services, caller: locate(partial(services.listings.steps.delete, caller, options=options))
    )


def _parse_put(content: Mapping[str, Any], *, strict: bool) -> Operation:
    body = _parse_object(content, "listing")
    _parse_options(content.get("if_match", _ANY))
    new, ignored = _try_fields(fields.parse_new_listing, content, "listing", strict=strict)
    if isinstance(new, NewListing) and new.external_id is not None and None not in body.values():
        return _build_put(new.external_id, new, fields.list_given(body, new), content.get("if_match", UNSET), ignored)
    if body.get("external_id") is None:
        reject("listing.external_id", "required", "listing.external_id is required")
    given = {"listing": {"external_id": body["external_id"]}}
    checked, _ = _parse_fields(fields.parse_listing_change, given, "listing", strict=False)
    external_id = str(checked["external_id"])
    change, ignored_by_update = _try_fields(fields.parse_listing_change, content, "listing", strict=strict)
    return _build_put(external_id, new, change, content.get("if_match", UNSET), ignored or ignored_by_update)


def _build_put(
    external_id: str,
    new: NewListing | Problem,
    change: ListingChange | Problem,
    if_match: object,  # UNSET if absent
    ignored: Sequence[str],
    ref: Ref = None,
) -> Operation:
    if if_match is not UNSET:
        new = Problem("precondition_failed", _describe_absence(external_id))
    elif isinstance(new, InvalidFieldsError) and any(fault.code == "required" for fault in new.faults):
        new = InvalidFieldsError(new.faults, f"{_describe_absence(external_id)}: ")
    options = _parse_options(_ANY if if_match is UNSET else if_match)

    def build_step(services: Services, caller: Caller) -> Step:
        return services.listings.steps.put(caller, external_id, new, change, options)

    return Operation("updated", build_step, ignored, "listing", ref, is_put=True)


def _parse_restore(content: Mapping[str, Any], **_strict: bool) -> Operation:
    listing_id, options = _parse_id(content), _parse_options(content.get("if_match", _ANY))
    return Operation("restored", lambda services, caller: services.listings.steps.restore(caller, listing_id, options))


_PARSERS: Mapping[str, tuple[_Parser, tuple[str, ...]]] = {
    "create": (_parse_create, ("listing",)),
    "update": (_parse_update, ("id", "external_id", "changes", "if_match")),
    "put": (_parse_put, ("listing", "if_match")),
    "delete": (_parse_delete, ("id", "external_id", "if_match")),
    "restore": (_parse_restore, ("id", "if_match")),
}
"""The parser and the fields of each operation."""


def _parse_fields(
    parse_body: Callable[..., tuple[T, list[str]]], content: Mapping[str, Any], name: str, *, strict: bool
) -> tuple[T, list[str]]:
    body = _parse_object(content, name)
    try:
        return parse_body(body, strict=strict)
    except InvalidFieldsError as error:
        raise InvalidFieldsError([fault.within(name) for fault in error.faults]) from None


def _try_fields(
    parse_body: Callable[..., tuple[T, list[str]]], content: Mapping[str, Any], name: str, *, strict: bool
) -> tuple[T | Problem, list[str]]:
    try:
        return _parse_fields(parse_body, content, name, strict=strict)
    except Problem as problem:  # returned, because the listing is checked first (decision G21)
        return problem, []


def _parse_object(content: Mapping[str, Any], name: str) -> Mapping[str, object]:
    value = _require(content, name)
    if not isinstance(value, dict):
        reject(name, "wrong_type", f"{name} must be an object, got {json_type(value)}")
    return value


def _locate(listing_id: int) -> _Locate:
    return lambda build: build(listing_id)


def _parse_target(content: Mapping[str, Any]) -> _Locate:
    if "external_id" not in content:
        return _locate(_parse_id(content))
    if "id" in content:
        reject("external_id", "inconsistent", "Send either id or external_id, not both")
    try:
        external_id = str(fields.FIELDS["external_id"].rule(content["external_id"]))
    except FieldError as error:
        raise InvalidFieldsError([error.locate("external_id")]) from None
    missing = Problem("listing_not_found", _describe_absence(external_id))
    return lambda build: PutStep(external_id, missing, build(0).decide)


def _describe_absence(external_id: str) -> str:
    return f"No listing has the external_id {preview(external_id)}"


def _parse_id(content: Mapping[str, Any]) -> int:
    number = _require(content, "id")
    if isinstance(number, bool) or not isinstance(number, int):
        advice = ": remove the quotes" if isinstance(number, str) and number.isdecimal() else ""
        reject("id", "wrong_type", f"id must be an integer, got {preview(number)}{advice}")
    return codec.parse_listing_id(str(number))


def _parse_options(tags: object) -> WriteOptions:
    if tags == _ANY:
        return DEFAULT_WRITE_OPTIONS
    if not isinstance(tags, str):
        reject("if_match", "wrong_type", f"if_match must be a string, got {json_type(tags)}")
    if len(tags) > MAX_TAGS_LENGTH:
        reject("if_match", "too_long", f"if_match must be at most {MAX_TAGS_LENGTH} characters, got {len(tags)}")
    return WriteOptions(codec.parse_if_match([tags], "if_match"))


def _require(content: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any JSON value
    if name not in content:
        reject(name, "required", f"{name} is required")
    return content[name]


def _invalid(ref: Ref, field: str, message: str, code: FaultCode = "wrong_type") -> Operation:
    return _failing(ref, InvalidFieldsError([Fault(field, code, message)]))


def _failing(ref: Ref, problem: Problem) -> Operation:
    return Operation("", lambda _services, _caller: problem, ref=ref)


def _report(
    operation: Operation, result: StepResult, restore_id: str, *, dry_run: bool, detailed: bool
) -> dict[str, object]:
    report: dict[str, object] = {} if operation.ref is None else {"ref": operation.ref}
    if isinstance(result, Problem):
        parent = f"{operation.parent}." if operation.parent and result.code == "external_id_taken" else ""
        body = codec.build_error_body(result, detailed=detailed, parent=parent)
        return report | {"status": STATUS[result.code], "code": result.code, "body": body}
    values: dict[str, object] = {}
    if isinstance(result, Preview):
        before = None if result.before is None else format_values(result.before)
        values, result = {"before": before, "after": format_values(result.after)}, result.result
    if operation.is_put and not isinstance(result, int):
        report |= {"op": "update", "id": result.id}
    elif operation.is_put:
        report |= {"op": "create"} if dry_run else {"op": "create", "id": result}
    if dry_run:
        verb = "created" if isinstance(result, int) else operation.verb
        return report | {"status": 200, "body": {"message": f"listing would be {verb}"}} | values
    if isinstance(result, int):
        return report | {
            "status": 201,
            "etag": codec.format_new_etag(restore_id),
            "body": codec.build_created_body(result),
        }
    body = {"message": f"listing {operation.verb}"}
    return report | {"status": 200, "etag": codec.format_etag(result, restore_id), "body": body}
