"""API key pages: create, rotate and revoke keys. A new key is shown once."""

from typing import NamedTuple

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.domain.fields import parse_id
from listings.domain.model import KeyAccess, is_plan_active
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS
from listings.service.keys import IssuedKey
from listings.service.members.sessions import Member
from listings.site import cookies, presentation
from listings.site.console.guards import (
    console_page,
    for_member,
    get_form_id,
    get_text,
    read_form,
    redirect_with_notice,
)
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_PATH = "/console/keys"
GRACES = {0: "Immediately", HOUR_SECONDS: "In 1 hour", DAY_SECONDS: "In 24 hours", 7 * DAY_SECONDS: "In 7 days"}
"""When a rotated key expires, by seconds."""

PYTHON_SAMPLE = """from listings_client import Client

with Client("{key}", "{base_url}") as client:
    for listing in client.list():
        print(listing.title, listing.price)"""
_SAME_NAME = "Another active key has the same name."


async def _show_keys(
    request: Request, member: Member, problem: Problem | None = None, values: dict[str, str] | None = None
) -> Response:
    services = site_of(request).services
    usages = (await services.usage.get(member.account)).keys[::-1]
    successors = await services.keys.list_successors(member.account)
    by_id = {usage.key.id: usage.key for usage in usages}
    test = await services.test_mode.find(member.account)
    test_keys = (await services.usage.get(test)).keys[::-1] if test is not None else []
    return console_page(
        request,
        "keys.html",
        problem=problem,
        usable=[usage for usage in usages if not services.keys.is_revoked_or_expired(usage.key)],
        ended=[usage for usage in usages if services.keys.is_revoked_or_expired(usage.key)],
        successors={old: by_id[new] for old, new in successors.items() if new in by_id},
        values=values or {"name": "", "expires": "", "access": "write", "mode": "live"},
        can_test=is_plan_active(await services.test_mode.find_plan_end(member.account), services.clock()),
        test_keys=[usage for usage in test_keys if not services.keys.is_revoked_or_expired(usage.key)],
        test_counts=await services.listings.count(test) if test is not None else None,
        is_confirmed=services.sessions.is_confirmed(member),
    )


@for_member
async def _create_key(request: Request, member: Member) -> Response:
    form = await read_form(request)  # one that is submitted twice creates one key
    services = site_of(request).services
    confirmation = await confirm(request, member, form)
    try:
        expires_at = presentation.parse_end_of_day(get_text(form, "expires"))
        name = get_text(form, "name").strip()
        access = _read_access(form)
        is_test = get_text(form, "mode") == "test"
        keys = await services.keys.list_active(member.account)  # before the create: an error would hide the new secret
        issued = await services.member_keys.create(
            confirmation.require(), name, expires_at, get_form_id(form), access=access, is_test=is_test
        )
    except Problem as problem:
        is_new = problem.code != "idempotency_key_reused"
        values = {name: get_text(form, name) for name in ("name", "expires", "access", "mode")} if is_new else None
        return await _show_keys(request, confirmation.member, problem, values)
    return _new_key_page(request, issued, _SAME_NAME if name in {key.name for key in keys} else "")


async def _show_key(
    request: Request, member: Member, problem: Problem | None = None, grace: int = DAY_SECONDS
) -> Response:
    services = site_of(request).services
    key_id, usages = _id_of(request), (await services.usage.get(member.account)).keys
    usage = next((usage for usage in usages if usage.key.id == key_id), None)
    if usage is None:
        raise Problem("key_not_found", "You don't have this key")
    successor_id = (await services.keys.list_successors(member.account)).get(key_id)
    return console_page(
        request,
        "key.html",
        problem=problem,
        usage=usage,
        successor=next((one.key for one in usages if one.key.id == successor_id), None),
        has_ended=services.keys.is_revoked_or_expired(usage.key),
        graces=GRACES,
        grace=grace,
        is_confirmed=services.sessions.is_confirmed(member),
    )


@for_member
async def _rotate_key(request: Request, member: Member) -> Response:
    form = await read_form(request)
    confirmation = await confirm(request, member, form)
    services, key_id, seconds = site_of(request).services, _id_of(request), DAY_SECONDS
    try:
        seconds = _read_grace(form)
        issued = await services.member_keys.rotate(confirmation.require(), key_id, seconds, get_form_id(form))
    except Problem as problem:
        return await _show_key(request, confirmation.member, problem, seconds)
    return _new_key_page(request, issued, _describe_end(seconds, issued.key.expires_at, services.clock()))


@for_member
async def _revoke_key(request: Request, member: Member) -> Response:
    await site_of(request).services.member_keys.revoke(member, _id_of(request))
    return redirect_with_notice(request, _PATH, "revoked")


@for_member
async def _empty_test_mode(request: Request, member: Member) -> Response:
    services = site_of(request).services
    test = await services.test_mode.find(member.account)
    if test is not None:
        await services.test_mode.empty(test)
    return redirect_with_notice(request, _PATH, "emptied")


ROUTES = [
    Route(_PATH, for_member(_show_keys)),
    Route(_PATH, _create_key, methods=["POST"]),
    Route("/console/test-mode", _empty_test_mode, methods=["POST"]),
    Route(f"{_PATH}/{{id}}", for_member(_show_key)),
    Route(f"{_PATH}/{{id}}/rotate", _rotate_key, methods=["POST"]),
    Route(f"{_PATH}/{{id}}/revoke", _revoke_key, methods=["POST"]),
]


class Confirmation(NamedTuple):
    """The outcome of a password confirmation: the member, and why it failed."""

    member: Member
    problem: Problem | None = None

    def require(self) -> Member:
        """Return the member. Raises Problem if the password was wrong."""
        if self.problem is not None:
            raise self.problem
        return self.member


async def confirm(request: Request, member: Member, form: FormData) -> Confirmation:
    """Check the password in a form, if there is one and it is needed. The session then gets a new token."""
    services, password = site_of(request).services, get_text(form, "password")
    if not password or services.sessions.is_confirmed(member):
        return Confirmation(member)
    try:
        token = await services.sessions.confirm_password(member, password)
    except Problem as problem:
        return Confirmation(member, problem)
    cookies.renew(request, token)
    request.state.member = await services.sessions.find_member(token) or member
    return Confirmation(request.state.member)


def _new_key_page(request: Request, issued: IssuedKey, note: str = "") -> Response:
    base_url = base_url_of(request)
    samples = {
        "curl": f"curl {base_url}/api/v1/listings -H 'X-API-Key: {issued.secret}'",
        "lst": f"pip install listings-client\nlst login --url {base_url}\nlst list",
        "Python": PYTHON_SAMPLE.format(key=issued.secret, base_url=base_url),
    }
    return console_page(request, "key_created.html", issued=issued, samples=samples, note=note, status=201)


def _describe_end(grace_seconds: int, expires_at: int | None, now: float) -> str:
    if not grace_seconds:
        return "The old key no longer works."
    if expires_at is not None and expires_at < now + grace_seconds:
        return f"The old key stops working on {presentation.format_moment(expires_at)}, when it expires."
    return f"The old key stops working {GRACES[grace_seconds].lower()}."


def _read_access(form: FormData) -> KeyAccess:
    text = get_text(form, "access") or "write"
    access = next((access for access in presentation.KEY_ACCESS if access == text), None)
    if access is None:
        raise Problem("invalid_request", "Choose what the key may do")
    return access


def _read_grace(form: FormData) -> int:
    text = get_text(form, "grace")
    if text not in map(str, GRACES):
        raise Problem("invalid_request", "Choose when the old key stops working")
    return int(text)


def _id_of(request: Request) -> int:
    return parse_id(request.path_params["id"]) or 0
