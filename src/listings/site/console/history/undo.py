"""Undo a change set, an import or an earlier undo: preview, confirmation and result."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import get_args

import msgspec
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain import fields
from listings.domain.changes import Change
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE
from listings.domain.reverts import RevertConflict, RevertKind, RevertRequest
from listings.service import Services
from listings.service.members.sessions import Member
from listings.site.console.activity import describe_actor
from listings.site.console.costly import costly
from listings.site.console.guards import (
    ACTIVITY_PATH,
    UNDO_PATH,
    build_form_options,
    console_page,
    for_member,
    get_form_id,
    get_text,
    read_form,
    redirect,
    require_plan,
)
from listings.site.console.history.describe import ChangedListing, KeptListing, describe_change, describe_conflict
from listings.site.console.paging import turn_pages
from listings.site.context import site_of

_SHOWN = 50  # listings, and conflicts
_MISSING = {"change_not_found", "changes_gone"}
_SHOWN_WITH_PREVIEW = {"plan_expired", "revert_running"}


@costly("pages of changes")
async def _show_preview(request: Request, member: Member) -> Response:
    if not request.query_params:
        return redirect(ACTIVITY_PATH)
    return await _preview_page(request, member, _read(request.query_params))


@costly("pages of changes")
async def _undo(request: Request, member: Member) -> Response:
    form = await read_form(request)
    wanted = _read(form)
    if not get_text(form, "confirmed"):
        return await _preview_page(request, member, wanted, form_id=get_form_id(form))
    try:
        require_plan(request, member)
        options = build_form_options(get_form_id(form), hashlib.sha256(msgspec.json.encode(wanted)).digest())
        started, _ = await site_of(request).services.reverts.start(member.account.id, wanted, CONSOLE, options)
    except Problem as problem:
        if problem.code not in _SHOWN_WITH_PREVIEW:
            raise _explain(problem) from None
        return await _preview_page(request, member, wanted, _explain(problem))
    return redirect(f"{UNDO_PATH}/{started.key.id}")


@for_member
async def _show_result(request: Request, member: Member) -> Response:
    services = site_of(request).services
    revert_id = fields.parse_id(request.path_params["id"]) or 0
    after = fields.parse_id(request.query_params.get("after", "")) or 0
    try:
        revert = await services.reverts.get(member.account.id, revert_id)
    except Problem as problem:
        raise _explain(problem) from None
    conflicts = await services.reverts.list_conflicts(revert, after, _SHOWN)
    _, shown = await _describe(services, member, [], conflicts)
    last = conflicts[-1].number if conflicts else revert.counts.conflicts
    return console_page(
        request,
        "undo_result.html",
        revert=revert,
        conflicts=shown,
        after=after,
        turns=turn_pages(request, "after", str(last) if last < revert.counts.conflicts else ""),
    )


ROUTES = [
    Route(UNDO_PATH, _show_preview),
    Route(UNDO_PATH, _undo, methods=["POST"]),
    Route(f"{UNDO_PATH}/{{id}}", _show_result),
]


def _read(parameters: QueryParams | FormData) -> RevertRequest:
    for kind in get_args(RevertKind):
        text = str(parameters.get(kind, ""))
        subject = fields.parse_id(text.removeprefix("#"))
        if subject is not None and kind != "key":
            overwrite = bool(parameters.get("overwrite"))
            return RevertRequest(kind, f"#{subject}" if kind == "group" else subject, overwrite=overwrite)
    raise Problem("path_not_found", "There is no such change")


async def _preview_page(
    request: Request, member: Member, wanted: RevertRequest, problem: Problem | None = None, *, form_id: str = ""
) -> Response:
    services = site_of(request).services
    try:
        preview = await services.reverts.preview(member.account.id, wanted)
    except Problem as error:
        raise _explain(error) from None
    changes, conflicts = await _describe(services, member, preview.changes[:_SHOWN], preview.conflicts[:_SHOWN])
    return console_page(
        request,
        "undo.html",
        problem=problem,
        wanted=wanted,
        origin=await _find_origin(services, member, wanted),
        preview=preview,
        changes=changes,
        conflicts=conflicts,
        can_overwrite=wanted.overwrite or any(one.reason == "changed_later" for one in preview.conflicts),
        form_id=form_id,
    )


async def _find_origin(services: Services, member: Member, wanted: RevertRequest) -> tuple[str, int] | None:
    # Who wrote the first change set to undo, and when, or None if it has just been deleted.
    first, number = None, int(str(wanted.subject).removeprefix("#"))
    with suppress(Problem):
        if wanted.kind == "revert":
            number = (await services.reverts.get(member.account.id, number)).group_id or 0
        first = await services.changes.find_first(member.account.id, number) if number else None
    if first is None:
        return None
    keys = {key.id: key for key in await services.keys.list_of(member.account)}
    return describe_actor(first.actor, keys), first.moment


async def _describe(
    services: Services, member: Member, changes: Sequence[Change], conflicts: Sequence[RevertConflict]
) -> tuple[list[ChangedListing], list[KeptListing]]:
    ids = [change.listing_id for change in changes] + [conflict.listing_id for conflict in conflicts]
    titles = await services.listings.find_titles(member.caller, ids)
    kept = [describe_conflict(conflict, titles) for conflict in conflicts]
    return [describe_change(change, titles) for change in changes], kept


def _explain(problem: Problem) -> Problem:
    if problem.code in _MISSING:
        return Problem("path_not_found", "This change is no longer stored, so it can't be undone")
    if problem.code == "revert_running":
        message = "An undo is still running, and there can be only one at a time. Try again when it is finished"
        return Problem(problem.code, message)
    if problem.code == "idempotency_key_reused":
        return Problem(problem.code, "This form was already submitted. Start again from the activity")
    return problem
