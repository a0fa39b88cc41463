"""The form of a listing, new or stored, and the buttons to pause, resume, delete and restore it."""

import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain import fields, timestamps
from listings.domain.account_limits import AccountSize
from listings.domain.errors import Problem, Unavailable
from listings.domain.faults import Fault, InvalidFieldsError
from listings.domain.history import CONSOLE
from listings.domain.model import MAX_ID, Listing
from listings.domain.number_text import format_count
from listings.service import Services
from listings.service.listings.steps import Version, WriteOptions, find_changes
from listings.service.members.sessions import Member
from listings.site import market, security
from listings.site.console.guards import (
    LISTINGS_PATH,
    MAX_DRAFTS,
    build_form_options,
    console_page,
    for_member,
    for_member_unchecked,
    get_form_id,
    get_text,
    has_plan,
    measure_account,
    read_form,
    redirect_with_notice,
    require_current_session,
    require_draft_room,
    require_plan,
)
from listings.site.console.listings import form as listing_form
from listings.site.console.listings.actions import ACTIONS, NEEDS_PLAN, require_state
from listings.site.console.pictures import add_pictures, append_lines, has_pictures
from listings.site.context import site_of
from listings.site.pictures import sources
from listings.site.visitor import base_url_of, measure_html, require_room
from listings.site.visitor_forms import preserve_form

_MAX_PICTURES = 50  # which the script shows, too


@for_member
async def _show_new(request: Request, member: Member) -> Response:
    values, copied = listing_form.EMPTY, fields.parse_id(request.query_params.get("from", ""))
    if copied is not None:
        listing = await site_of(request).services.listings.find_own(member.caller, copied)
        values = listing_form.copy_values(listing, base_url_of(request)) if listing is not None else values
    is_open = has_plan(request, member) or (await measure_account(request, member)).listings < MAX_DRAFTS
    form_id = secrets.token_urlsafe(16)
    return await _form_page(request, "listing_new.html", values, form_id=form_id, is_open=is_open)


@preserve_form
@for_member_unchecked
async def _create_listing(request: Request, member: Member) -> Response:
    form = await read_form(request)
    sent, form_id = listing_form.read(form), get_form_id(form)
    is_draft = not has_plan(request, member)
    if is_draft:
        sent = {**sent, "is_active": ""}
    try:
        require_current_session(member, form)
        if is_draft and has_pictures(form):
            require_draft_room(await measure_account(request, member))  # before pictures are stored
        paths, failure = await add_pictures(request, member, form)
        sent = append_lines(sent, paths)
        if failure is not None:
            raise failure
        require_room = require_draft_room if is_draft else None
        listing_id = await _create(site_of(request).services, member, sent, form_id, require_room)
    except Problem as problem:
        return await _form_page(request, "listing_new.html", sent, problem, form_id=form_id)
    notice = "created" if sent["is_active"] else "created-draft" if is_draft else "created-paused"
    return redirect_with_notice(request, f"{LISTINGS_PATH}/{listing_id}", notice)


@for_member
async def _show_listing(request: Request, member: Member) -> Response:
    listing = await get_own_listing(request, member)
    takedown = await site_of(request).services.moderation.find_takedown(listing.id)
    can_edit = await _can_edit(request, member, listing)
    shown: dict[str, Any] = {"listing": listing, "takedown": takedown, "is_open": can_edit}
    return await _form_page(request, "listing_edit.html", listing_form.form_values(listing), **shown)


@preserve_form
@for_member_unchecked
async def _save_listing(request: Request, member: Member) -> Response:
    form = await read_form(request)
    listing, sent = await get_own_listing(request, member), listing_form.read(form)
    try:
        require_current_session(member, form)
        if not has_plan(request, member):
            sent = {**sent, "is_active": ""}
            if not await _can_edit(request, member, listing):
                require_plan(request, member)
        paths, failure = await add_pictures(request, member, form)
        sent = append_lines(sent, paths)
        if failure is not None:
            raise failure
        saved = await _save(site_of(request).services, member, listing, sent, get_text(form, "version"))
    except Problem as problem:
        return await _edit_error_page(request, member, sent, problem, get_text(form, "version"))
    notice = "unchanged" if saved.version == listing.version else "saved"
    return redirect_with_notice(request, f"{LISTINGS_PATH}/{listing.id}", notice)


@for_member
async def _preview_listing(request: Request, member: Member) -> Response:
    form = await read_form(request)
    stored = await get_own_listing(request, member) if "id" in request.path_params else None
    paths, _ = await add_pictures(request, member, form)
    sent, account_id = append_lines(listing_form.read(form), paths), member.account.id
    now = timestamps.format_timestamp(site_of(request).services.clock())
    try:
        listing = listing_form.build_preview(sent, stored, account_id, now)
    except InvalidFieldsError as error:
        if stored is not None:
            return await _edit_error_page(request, member, sent, error, get_text(form, "version"))
        return await _form_page(request, "listing_new.html", sent, error, form_id=get_form_id(form))
    return await market.build_listing_page(request, listing, account_id, is_preview=True)


@for_member
async def _change_state(request: Request, member: Member) -> Response:
    action = get_text(await read_form(request), "action")
    listing, listings = await get_own_listing(request, member), site_of(request).services.listings
    if action not in ACTIONS:
        raise Problem("invalid_request", "Unknown action")
    try:
        if action in NEEDS_PLAN:
            require_plan(request, member)
        require_state(listing, action)
        if action == "delete":
            await listings.delete(member.caller, listing.id)
        elif action == "restore":
            await listings.restore(member.caller, listing.id)
        else:
            await listings.update(member.caller, listing.id, {"is_active": action == "resume"})
    except Problem as problem:
        return await _edit_error_page(
            request, member, listing_form.form_values(listing), listing_form.label_problem(problem)
        )
    change = None
    if (await get_own_listing(request, member)).version != listing.version:
        page = await site_of(request).services.changes.read_of_listing(listing.id, MAX_ID, 1)
        last = next(iter(page.changes), None)
        change = last.edit_revision if last is not None and last.actor == CONSOLE else None
    return redirect_with_notice(request, f"{LISTINGS_PATH}/{listing.id}", ACTIONS[action], change)


ROUTES = [
    Route(f"{LISTINGS_PATH}/new", _show_new),
    Route(f"{LISTINGS_PATH}/new", _create_listing, methods=["POST"]),
    Route(f"{LISTINGS_PATH}/new/preview", _preview_listing, methods=["POST"]),
    Route(f"{LISTINGS_PATH}/{{id}}", _show_listing),
    Route(f"{LISTINGS_PATH}/{{id}}", _save_listing, methods=["POST"]),
    Route(f"{LISTINGS_PATH}/{{id}}/preview", _preview_listing, methods=["POST"]),
    Route(f"{LISTINGS_PATH}/{{id}}/state", _change_state, methods=["POST"]),
]


async def _can_edit(request: Request, member: Member, listing: Listing) -> bool:
    is_draft = not listing.is_active and (await measure_account(request, member)).listings <= MAX_DRAFTS
    return is_draft or has_plan(request, member)


async def _create(
    services: Services,
    member: Member,
    sent: listing_form.FormValues,
    form_id: str,
    require_room: Callable[[AccountSize], None] | None,
) -> int:
    new, _ = fields.parse_new_listing(listing_form.new_body(sent), strict=True)
    options = build_form_options(form_id, hashlib.sha256(msgspec.json.encode(sent)).digest())
    try:
        return (await services.listings.create(member.caller, new, options, require_room)).listing_id
    except Problem as problem:
        if problem.code != "idempotency_key_reused":
            raise _place_error(problem) from None
        message = "This form was already submitted and its listing was created. Start a new one"
        raise Problem("idempotency_key_reused", message) from None


async def _save(
    services: Services, member: Member, listing: Listing, sent: listing_form.FormValues, version: str
) -> Listing:
    change, _ = fields.parse_listing_change(listing_form.changed_body(sent, listing), strict=True)
    restore_id, _, number = version.rpartition("v")
    shown, current = Version(restore_id, fields.parse_id(number) or 0), Version(services.restore_id, listing.version)
    if shown != current and listing.deleted_at is None and not find_changes(listing, change, ""):
        return listing  # the same form was sent twice
    options = WriteOptions(versions=frozenset({shown}))
    try:
        return await services.listings.update(member.caller, listing.id, change, options)
    except Problem as problem:
        raise _place_error(problem) from None


def _place_error(problem: Problem) -> Problem:
    if problem.code != "external_id_taken":
        return problem
    return InvalidFieldsError([Fault("external_id", "taken", problem.message)])


async def _form_page(
    request: Request, template: str, sent: listing_form.FormValues, problem: Problem | None = None, **context: object
) -> Response:
    security.allow_previews(request)
    values = listing_form.shorten(sent)
    require_room(request, sum(map(measure_html, values.values())))
    errors = listing_form.field_errors(problem, sent)
    if errors:
        problem = Problem("invalid_request", f"Please fix {format_count(len(errors), 'field')}")
    shown: dict[str, Any] = {"listing": None, "version": "", "form_id": "", "differences": [], "takedown": None}
    shown |= {"is_open": True, "hidden_pictures": [], **context}
    with suppress(Unavailable):  # which must not lose what the seller wrote
        urls = values["images"].split("\n")[:_MAX_PICTURES]
        shown["hidden_pictures"] = sources.list_hidden(urls, await sources.find_sizes(request, urls))
    account = request.state.member.account
    shown["is_reachable"] = bool(account.public_contact) or site_of(request).services.messages.reaches(account)
    listing = shown["listing"]
    if listing is not None and not shown["version"]:
        shown["version"] = f"{site_of(request).services.restore_id}v{listing.version}"
    shown["is_unsaved"] = problem is not None and (listing is None or sent != listing_form.form_values(listing))
    return console_page(request, template, problem=problem, values=values, errors=errors, **shown)


async def _edit_error_page(
    request: Request, member: Member, sent: listing_form.FormValues, problem: Problem, version: str = ""
) -> Response:
    # `version` is the version that the form was opened with.
    listing = await get_own_listing(request, member)
    if problem.code != "precondition_failed":
        return await _form_page(request, "listing_edit.html", sent, problem, listing=listing, version=version)
    conflict = Problem("precondition_failed", "The listing was changed elsewhere since you opened this form")
    differences = listing_form.differences(sent, listing)
    return await _form_page(request, "listing_edit.html", sent, conflict, listing=listing, differences=differences)


async def get_own_listing(request: Request, member: Member) -> Listing:
    """Return the member's listing, deleted or not.

    Raises Problem("listing_not_found"), also if the listing belongs to another account.
    """
    listing_id = fields.parse_id(request.path_params["id"]) or 0
    listing = await site_of(request).services.listings.find_own(member.caller, listing_id)
    if listing is None:
        raise Problem("listing_not_found", "You don't have this listing")
    return listing
