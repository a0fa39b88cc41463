"""API keys: made, shown once, rotated and revoked."""

import secrets
from typing import NamedTuple

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service import IssuedKey, Member
from listings.service.usage import KeyUsage
from listings.site import presentation, session
from listings.site.console.guards import console_page, for_member, once_of, read_form, see_done, text_of
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_HERE = "/console/keys"
_HOUR = 3600
_DAY = 24 * _HOUR
_MOST_DIGITS = 15
GRACES = {0: "At once", _HOUR: "In 1 hour", _DAY: "In 24 hours", 7 * _DAY: "In 7 days"}
"""When a key ends that another takes the place of, by seconds."""


@for_member
async def show_keys(request: Request, member: Member) -> Response:
    """All keys, and the form for another one."""
    return await _page(request, member)


@for_member
async def create_key(request: Request, member: Member) -> Response:
    """A new key, shown this once; a form that is sent twice makes one."""
    form = await read_form(request)
    service = site_of(request).service
    confirmed = await _confirmed(request, member, form)
    try:
        expires_at = presentation.end_of_day(text_of(form, "expires"))
        name = text_of(form, "name").strip()
        issued = await service.create_key(confirmed.require(), name, expires_at, once_of(form))
    except Problem as problem:
        is_new = problem.code != "idempotency_key_reused"
        values = {name: text_of(form, name) if is_new else "" for name in ("name", "expires")}
        return confirmed.answer(request, await _page(request, confirmed.member, problem, values))
    return confirmed.answer(request, _issued(request, issued))


@for_member
async def show_key(request: Request, member: Member) -> Response:
    """One key, and how to rotate or revoke it."""
    return await _key_page(request, member)


@for_member
async def rotate_key(request: Request, member: Member) -> Response:
    """A new key in place of another, which goes on for a while; a form that is sent twice makes one."""
    form = await read_form(request)
    confirmed = await _confirmed(request, member, form)
    grace = text_of(form, "grace")
    seconds = int(grace) if grace in map(str, GRACES) else 0
    try:
        service, key_id = site_of(request).service, _id_of(request)
        issued = await service.rotate_own_key(confirmed.require(), key_id, seconds, once_of(form))
    except Problem as problem:
        return confirmed.answer(request, await _key_page(request, confirmed.member, problem, seconds))
    ends = f"ends {GRACES[seconds].lower()}" if seconds else "has ended"
    return confirmed.answer(request, _issued(request, issued, f"The key before it {ends}."))


@for_member
async def revoke_key(request: Request, member: Member) -> Response:
    """End a key at once."""
    await site_of(request).service.revoke_own_key(member, _id_of(request))
    return see_done(request, _HERE, "revoked")


ROUTES = [
    Route(_HERE, show_keys),
    Route(_HERE, create_key, methods=["POST"]),
    Route(f"{_HERE}/{{id}}", show_key),
    Route(f"{_HERE}/{{id}}/rotate", rotate_key, methods=["POST"]),
    Route(f"{_HERE}/{{id}}/revoke", revoke_key, methods=["POST"]),
]


class _Confirmed(NamedTuple):
    """The member after the password was given once more, the session's new token, or why it was not taken."""

    member: Member
    token: str = ""
    problem: Problem | None = None

    def require(self) -> Member:
        """Raises Problem where the password was wrong."""
        if self.problem is not None:
            raise self.problem
        return self.member

    def answer(self, request: Request, response: Response) -> Response:
        """With the new token, where there is one."""
        return session.begin(request, response, self.token) if self.token else response


async def _confirmed(request: Request, member: Member, form: FormData) -> _Confirmed:
    service, password = site_of(request).service, text_of(form, "password")
    if not password or service.is_confirmed(member):
        return _Confirmed(member)
    try:
        token = await service.confirm_password(member, password)
    except Problem as problem:
        return _Confirmed(member, problem=problem)
    request.state.member = await service.find_member(token) or member
    return _Confirmed(request.state.member, token)


async def _page(
    request: Request, member: Member, problem: Problem | None = None, values: dict[str, str] | None = None
) -> Response:
    service = site_of(request).service
    usages = (await service.get_usage(member.account)).keys[::-1]
    return console_page(
        request,
        "keys.html",
        problem=problem,
        usable=[usage for usage in usages if not service.is_key_revoked_or_expired(usage.key)],
        ended=[usage for usage in usages if service.is_key_revoked_or_expired(usage.key)],
        values=values or {"name": "", "expires": ""},
        once=secrets.token_urlsafe(16),
        is_confirmed=service.is_confirmed(member),
    )


async def _key_page(request: Request, member: Member, problem: Problem | None = None, grace: int = _DAY) -> Response:
    service = site_of(request).service
    usage = _usage_of((await service.get_usage(member.account)).keys, _id_of(request))
    return console_page(
        request,
        "key.html",
        problem=problem,
        usage=usage,
        has_ended=service.is_key_revoked_or_expired(usage.key),
        graces=GRACES,
        grace=grace,
        once=secrets.token_urlsafe(16),
        is_confirmed=service.is_confirmed(member),
    )


def _issued(request: Request, issued: IssuedKey, before: str = "") -> Response:
    address = f"{base_url_of(request)}/api/v1/listings"
    curl = f"curl {address} -H 'X-API-Key: {issued.secret}'"
    return console_page(request, "key_issued.html", issued=issued, curl=curl, before=before, status=201)


def _usage_of(usages: list[KeyUsage], key_id: int) -> KeyUsage:
    for usage in usages:
        if usage.key.id == key_id:
            return usage
    raise Problem("key_not_found", "You have no such key")


def _id_of(request: Request) -> int:
    text = request.path_params["id"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
