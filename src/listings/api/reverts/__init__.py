"""Reverts: parse what to revert, and report a revert and its conflicts."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from listings.api import codec, params
from listings.api.codec import REVERTS_PATH, Response
from listings.api.handlers import parse_options
from listings.api.request import Request
from listings.domain import timestamps
from listings.domain.changes import build_record, get_name
from listings.domain.errors import Problem
from listings.domain.faults import FieldError, InvalidFieldsError, find_misspelled, preview, raise_faults, reject
from listings.domain.fields import parse_id
from listings.domain.model import MAX_ID
from listings.domain.reverts import Revert, RevertConflict, RevertCounts, RevertKind, RevertPreview, RevertRequest
from listings.http.asgi import ASKING_BYTES
from listings.service import Services

SUBJECTS: Sequence[RevertKind] = ("change", "import", "revert", "group", "key")
"""The fields of which a body has exactly one: what to revert, by its id."""

_TIMES = ("since", "until")
_SELF = "self"  # as a key: that of the caller
_GROUP = re.compile(rf"{codec.CHANGE_GROUP.pattern}|#[1-9][0-9]{{0,17}}")


async def start_revert(services: Services, request: Request) -> Response:
    """POST /api/v1/changes/revert."""
    options = parse_options(request, idempotent=True)
    wanted, ignored = parse(codec.decode_body(request.body), request.caller.key_id, strict=request.strict)
    headers = codec.build_preference_headers(ignored, strict=request.strict)
    caller = request.caller
    if options.dry_run:
        request.require_room(ASKING_BYTES)
        earlier = await services.reverts.find_earlier(caller.account_id, options)
        if earlier is not None:
            return await _report_start(services, earlier, headers + codec.REPLAYED)
        closed = asyncio.ensure_future(request.wait_for_close())
        try:
            preview = await services.reverts.preview(caller.account_id, wanted, closed.done)
        finally:
            closed.cancel()
        return Response(200, _encode_preview(preview), headers)
    revert, replayed = await services.reverts.start(caller.account_id, wanted, caller.key_id, options)
    return await _report_start(services, revert, headers + (codec.REPLAYED if replayed else b""))


async def get_revert(services: Services, request: Request) -> Response:
    """GET /api/v1/changes/reverts/{id}."""
    wanted = params.parse(request.query, params.CONFLICT_PARAMETERS, strict=request.strict)
    revert_id = parse_id(request.segment)
    if revert_id is None:
        raise Problem("change_not_found", f"There is no revert with the id {preview(request.segment)}")
    revert = await services.reverts.get(request.caller.account_id, revert_id)
    response = await _report(services, revert, wanted.get("after", 0), wanted.get("limit", params.DEFAULT_CONFLICTS))
    return replace(response, status=200)


def parse(body: Mapping[str, object], key_id: int, *, strict: bool) -> tuple[RevertRequest, list[str]]:
    """Return what to revert, and the names of the ignored fields. Raises Problem("invalid_request").

    `key_id` is the caller's key.
    """
    subjects = [name for name in SUBJECTS if name in body]
    if len(subjects) != 1:
        reject("", "required" if not subjects else "inconsistent", f"Exactly one of {', '.join(SUBJECTS)} is required")
    known = (subjects[0], "overwrite", *_TIMES)
    ignored = [name for name in body if name not in known]
    raise_faults(find_misspelled(ignored, known, body, "a field of this revert"))
    misplaced = [name for name in _TIMES if name in body and subjects[0] != "key"]
    if misplaced:
        reject(misplaced[0], "inconsistent", f"{misplaced[0]} is only for key, not for {subjects[0]}")
    if strict and ignored:
        reject(ignored[0], "unknown", f"{preview(ignored[0])} is not a field of this revert")
    overwrite = body.get("overwrite", False)
    if not isinstance(overwrite, bool):
        reject("overwrite", "wrong_type", f"overwrite must be true or false, got {preview(overwrite)}")
    wanted = RevertRequest(subjects[0], _parse_subject(body, subjects[0], key_id), overwrite=overwrite)
    if wanted.kind == "key":
        if "since" not in body:
            reject("since", "required", "since is required with key")
        since, until = _parse_time(body, "since"), _parse_time(body, "until") if "until" in body else None
        if until is not None and until < since:
            reject("until", "inconsistent", "until must not be before since")
        wanted = wanted._replace(since=since, until=until)
    return wanted, ignored


def _parse_subject(body: Mapping[str, object], name: str, key_id: int) -> int | str:
    number = body[name]
    if name == "group":
        if not isinstance(number, str) or not _GROUP.fullmatch(number):
            message = f"group must be a name of X-Change-Group, or # and an id, got {preview(number)}"
            reject("group", "invalid_format", message)
        return number
    if name == "key" and number == _SELF:
        return key_id
    if type(number) is not int or not 1 <= number <= MAX_ID:
        reject(name, "wrong_type", f"{name} must be an id, got {preview(number)}")
    return number


def _parse_time(body: Mapping[str, object], name: str) -> int:
    text = body[name]
    if not isinstance(text, str):
        reject(name, "wrong_type", f"{name} must be a time like 2026-11-21 06:54:32, got {preview(text)}")
    try:
        return timestamps.parse_timestamp(params.parse_timestamp(text))
    except FieldError as error:
        raise InvalidFieldsError([error.locate(name)]) from None


async def _report_start(services: Services, revert: Revert, headers: bytes) -> Response:
    if revert.finished_at is None:
        headers += f"location: {services.about.base_url}{REVERTS_PATH}/{revert.key.id}\r\nretry-after: 1\r\n".encode()
    return await _report(services, revert, 0, params.DEFAULT_CONFLICTS, headers)


async def _report(services: Services, revert: Revert, after: int, count: int, headers: bytes = b"") -> Response:
    conflicts = await services.reverts.list_conflicts(revert, after, count) if count else []
    is_finished = revert.finished_at is not None
    head = {"id": revert.key.id, "status": "finished" if is_finished else "running", "progress": revert.progress}
    last = conflicts[-1].number if conflicts else after
    body = head | _build_counts(revert.counts, conflicts, last)
    return Response(200 if is_finished else 202, codec.encode(body | {"changes": []}), headers)


def _encode_preview(found: RevertPreview) -> bytes:
    changes = [build_record(change) for change in found.changes]
    status: dict[str, Any] = {"id": None, "status": "planned", "progress": 1.0}
    if found.times is not None:
        status |= zip(_TIMES, map(timestamps.format_timestamp, found.times), strict=True)
    return codec.encode(
        status | _build_counts(found.counts, found.conflicts, len(found.conflicts)) | {"changes": changes}
    )


def _build_counts(counts: RevertCounts, conflicts: Sequence[RevertConflict], last: int) -> dict[str, Any]:
    records = [
        {
            "id": conflict.listing_id,
            "external_id": conflict.external_id,
            "reason": conflict.reason,
            "fields": [get_name(name) for name in conflict.fields],
            "change": conflict.subject if conflict.reason == "changed_later" else None,
            "holder": conflict.subject if conflict.reason == "external_id_taken" else None,
        }
        for conflict in conflicts
    ]
    return {"counts": counts, "conflicts": records, "last": last, "more": last < counts.conflicts}
