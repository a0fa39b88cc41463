"""The seller's listings: found, made, edited, paused, closed, and come back."""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.contract.listings import ChangeStep, Step
from listings.domain import fields
from listings.domain.errors import Problem
from listings.domain.model import Listing, ListingChange
from listings.service import Member, Service, WriteOptions
from listings.site import presentation
from listings.site.console import listing_form
from listings.site.console.guards import (
    console_page,
    for_member,
    for_writer,
    once_of,
    read_form,
    require_plan,
    see_done,
    text_of,
)
from listings.site.console.listing_search import ACTIONS, SORTS, STATUSES, Search, many_done, read
from listings.site.context import site_of

_HERE = "/console/listings"
_ID = re.compile(r"[1-9][0-9]{0,18}")
_LARGEST_ID = 2**63 - 1
_MOST_AT_ONCE = 100
_PUBLIC = {"resume", "restore"}  # what brings a listing back needs a plan, as the API does


class _Changed(NamedTuple):
    """What became of the listings that were ticked: how many are as was wanted, and by name which are not, and why."""

    action: str
    number: int
    refused: Sequence[tuple[str, str]]

    @property
    def done(self) -> str:
        """Empty where nothing is."""
        return many_done(self.action, self.number) if self.number else ""

    @property
    def not_done(self) -> str:
        """Empty where all is done."""
        left = len(self.refused)
        return f"{presentation.count_of(left, 'listing')} could not be {ACTIONS[self.action]}" if left else ""


_RENEWED = Problem("cross_site", "You have signed in anew meanwhile, and nothing is stored: save once more")
_UNCHANGED = _Changed("", 0, ())


@for_member
async def show_listings(request: Request, member: Member) -> Response:
    """Those that a filter finds, a page at a time."""
    return await _table(request, member, read(request.query_params))


@for_member
async def change_many(request: Request, member: Member) -> Response:
    """Pause, resume, close or restore those that are ticked."""
    form = await read_form(request)
    action, search = text_of(form, "action"), read(form)
    ids = [int(text) for text in form.getlist("id") if isinstance(text, str) and _is_id(text)][:_MOST_AT_ONCE]
    if action not in ACTIONS or not ids:
        return await _table(request, member, search, Problem("invalid_request", "Tick the listings that you mean"))
    try:
        if action in _PUBLIC:
            require_plan(request, member)
        changed = await _change_many(site_of(request).service, member, action, ids)
    except Problem as problem:
        return await _table(request, member, search, problem)
    if changed.refused:
        return await _table(request, member, search, changed=changed)
    return see_done(request, search.address(search.after), f"{action}.{changed.number}")


@for_member
async def show_new(request: Request, member: Member) -> Response:  # noqa: ARG001 - it is the same for all
    """An empty form."""
    return _form_page(request, "listing_new.html", listing_form.EMPTY, once=secrets.token_urlsafe(16))


async def _new_again(request: Request, member: Member) -> Response:  # noqa: ARG001 - it is the same for all
    form = await read_form(request)
    return _form_page(request, "listing_new.html", listing_form.read(form), _RENEWED, once=once_of(form))


@for_writer(_new_again)
async def create_listing(request: Request, member: Member) -> Response:
    """A new listing; a form that is sent twice makes one."""
    form = await read_form(request)
    sent, once = listing_form.read(form), once_of(form)
    try:
        require_plan(request, member)
        added = await _create(site_of(request).service, member, sent, once)
    except Problem as problem:
        return _form_page(request, "listing_new.html", sent, problem, once=once)
    return see_done(request, f"{_HERE}/{added}", "created")


@for_member
async def show_listing(request: Request, member: Member) -> Response:
    """A listing as a form; one that is closed can be restored."""
    listing = await _own(request, member)
    return _form_page(request, "listing_edit.html", listing_form.texts_of(listing), listing=listing)


async def _edit_again(request: Request, member: Member) -> Response:
    form = await read_form(request)
    return await _refused(request, member, listing_form.read(form), _RENEWED, text_of(form, "version"))


@for_writer(_edit_again)
async def save_listing(request: Request, member: Member) -> Response:
    """Store what was changed, unless somebody else has changed the listing meanwhile."""
    form = await read_form(request)
    listing, sent = await _own(request, member), listing_form.read(form)
    try:
        require_plan(request, member)
        saved = await _save(site_of(request).service, member, listing, sent, text_of(form, "version"))
    except Problem as problem:
        return await _refused(request, member, sent, problem, text_of(form, "version"))
    done = "unchanged" if saved.version == listing.version else "saved"
    return see_done(request, f"{_HERE}/{listing.id}", done)


@for_member
async def change_state(request: Request, member: Member) -> Response:
    """Pause, resume, close or restore this one."""
    action = text_of(await read_form(request), "action")
    listing = await _own(request, member)
    if action not in ACTIONS:
        raise Problem("invalid_request", "There is no such action")
    try:
        if action in _PUBLIC:
            require_plan(request, member)
        if listing.deleted_at is not None:
            _require_state(listing, action)
        await _change(site_of(request).service, member, action, listing.id)
    except Problem as problem:
        return await _refused(request, member, listing_form.texts_of(listing), problem)
    return see_done(request, f"{_HERE}/{listing.id}", ACTIONS[action])


ROUTES = [
    Route(_HERE, show_listings),
    Route(_HERE, change_many, methods=["POST"]),
    Route(f"{_HERE}/new", show_new),
    Route(f"{_HERE}/new", create_listing, methods=["POST"]),
    Route(f"{_HERE}/{{id}}", show_listing),
    Route(f"{_HERE}/{{id}}", save_listing, methods=["POST"]),
    Route(f"{_HERE}/{{id}}/state", change_state, methods=["POST"]),
]


# Use


async def _create(service: Service, member: Member, sent: listing_form.Texts, once: str) -> int:
    new, _ = fields.parse_new_listing(listing_form.new_body(sent), strict=True)
    digest = hashlib.sha256(msgspec.json.encode(sent)).digest()
    terms = WriteOptions(idempotency_key=f"console {once}" if once else None, digest=digest)
    try:
        return (await service.create_listing(member.caller, new, terms)).listing_id
    except Problem as problem:
        if problem.code != "idempotency_key_reused":
            raise
        told = "This form was sent before, and its listing is created: begin a new one"
        raise Problem("idempotency_key_reused", told) from None


async def _save(service: Service, member: Member, listing: Listing, sent: listing_form.Texts, version: str) -> Listing:
    """Raises Problem("precondition_failed") where the form was made of another version."""
    versions = frozenset({int(version)} if _is_id(version) else ())
    change: ListingChange = {}
    if listing.version in versions:
        change, _ = fields.parse_listing_change(listing_form.changed_body(sent, listing), strict=True)
    return await service.update_listing(member.caller, listing.id, change, WriteOptions(versions=versions))


async def _change(service: Service, member: Member, action: str, listing_id: int) -> None:
    if action == "close":
        await service.delete_listing(member.caller, listing_id)
    elif action == "restore":
        await service.restore_listing(member.caller, listing_id)
    else:
        await service.update_listing(member.caller, listing_id, {"is_active": action == "resume"})


async def _change_many(service: Service, member: Member, action: str, ids: list[int]) -> _Changed:
    """All in one transaction; what is refused holds up no other."""
    steps = [_step(service, member, action, listing_id) for listing_id in ids]
    results = await service.run_batch(member.caller, steps, str, WriteOptions(), atomic=False)
    refused = [
        (await _name_of(service, member, listing_id), result.message)
        for listing_id, result in zip(ids, results, strict=True)
        if isinstance(result, Problem)
    ]
    return _Changed(action, len(ids) - len(refused), refused)


def _step(service: Service, member: Member, action: str, listing_id: int) -> Step:
    """What is done to one of many; what its state doesn't let be done is refused in the console's words."""
    step = _plain_step(service, member, action, listing_id)

    def decide(listing: Listing | None) -> ListingChange:
        if listing is not None and listing.account_id == member.account.id:
            _require_state(listing, action)
        return step.decide(listing)

    return ChangeStep(listing_id, decide)


def _require_state(listing: Listing, action: str) -> None:
    is_closed = listing.deleted_at is not None
    if action == "restore" and not is_closed:
        raise Problem("invalid_request", "It is not closed")
    if action != "restore" and is_closed:
        told = "It is closed already" if action == "close" else "It is closed: restore it first"
        raise Problem("listing_not_found", told)


def _plain_step(service: Service, member: Member, action: str, listing_id: int) -> ChangeStep:
    if action == "close":
        return service.build_delete_step(member.caller, listing_id)
    if action == "restore":
        return service.build_restore_step(member.caller, listing_id)
    return service.build_update_step(member.caller, listing_id, {"is_active": action == "resume"})


async def _name_of(service: Service, member: Member, listing_id: int) -> str:
    """The title of one's own; of others only the number, which was sent, is told."""
    listing = await service.find_own_listing(member.caller, listing_id)
    return listing.title if listing is not None else f"Number {listing_id}"


# Pages


async def _table(
    request: Request, member: Member, search: Search, problem: Problem | None = None, changed: _Changed = _UNCHANGED
) -> Response:
    service = site_of(request).service
    query, faults = search.query()
    page = await service.find_listings(member.caller, query)
    return console_page(
        request,
        "listings.html",
        problem=problem,
        changed=changed,
        search=search,
        faults=faults,
        listings=page.listings,
        counts=await site_of(request).counts.of(service, member),
        next_address=search.address(page.next_cursor) if page.next_cursor is not None else "",
        statuses=STATUSES,
        orders=SORTS,
    )


def _form_page(
    request: Request, template: str, sent: listing_form.Texts, problem: Problem | None = None, **context: object
) -> Response:
    faults: Mapping[str, str] = listing_form.faults_of(problem)
    told = Problem("invalid_request", "Some fields need another look") if faults else problem
    shown: dict[str, Any] = {"listing": None, "version": "", "once": "", "differences": [], **context}
    rules = {name: field.rule for name, field in fields.FIELDS.items()}
    shown |= {"rules": rules, "price_types": listing_form.PRICE_TYPES}
    return console_page(request, template, problem=told, values=sent, faults=faults, **shown)


async def _refused(
    request: Request, member: Member, sent: listing_form.Texts, problem: Problem, version: str = ""
) -> Response:
    """The form again; what somebody else has changed meanwhile stands beside what was to be stored.

    `version`: of what the form was made of.
    """
    listing = await _own(request, member)
    if problem.code != "precondition_failed":
        return _form_page(request, "listing_edit.html", sent, problem, listing=listing, version=version)
    told = Problem("precondition_failed", "The listing was changed elsewhere since you opened this form")
    other = listing_form.differences(sent, listing)
    return _form_page(request, "listing_edit.html", sent, told, listing=listing, differences=other)


async def _own(request: Request, member: Member) -> Listing:
    """The member's listing, even a closed one. Raises Problem("listing_not_found"), whoever else has it."""
    text = request.path_params["id"]
    listing = await site_of(request).service.find_own_listing(member.caller, int(text) if _is_id(text) else 0)
    if listing is not None:
        return listing
    raise Problem("listing_not_found", "You have no such listing")


def _is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text)) and int(text) <= _LARGEST_ID
