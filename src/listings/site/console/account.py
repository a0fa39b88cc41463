"""The account: its password, and where it is signed in."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service import Member
from listings.site import session
from listings.site.console.guards import console_page, for_member, read_form, see, see_done, text_of
from listings.site.context import site_of

_HERE = "/console/account"


@for_member
async def show_account(request: Request, member: Member) -> Response:
    """The account and its sessions."""
    return await _page(request, member)


@for_member
async def change_password(request: Request, member: Member) -> Response:
    """Another password; all other sessions end, and this one gets a new token."""
    form = await read_form(request)
    service = site_of(request).service
    try:
        token = await service.change_password(member, text_of(form, "old"), text_of(form, "new"))
    except Problem as problem:
        return await _page(request, member, problem)
    return session.begin(request, see_done(request, _HERE, "password"), token)


@for_member
async def end_session(request: Request, member: Member) -> Response:
    """End one session; where it is this one, one is signed out."""
    handle = text_of(await read_form(request), "session")
    await site_of(request).service.end_session(member, handle)
    if handle == member.session:
        return session.end(request, see("/"))
    return see_done(request, _HERE, "session")


@for_member
async def end_other_sessions(request: Request, member: Member) -> Response:
    """End all sessions but this one."""
    await site_of(request).service.end_other_sessions(member)
    return see_done(request, _HERE, "sessions")


ROUTES = [
    Route(_HERE, show_account),
    Route(f"{_HERE}/password", change_password, methods=["POST"]),
    Route(f"{_HERE}/session", end_session, methods=["POST"]),
    Route(f"{_HERE}/sessions", end_other_sessions, methods=["POST"]),
]


async def _page(request: Request, member: Member, problem: Problem | None = None) -> Response:
    sessions = await site_of(request).service.list_sessions(member)
    return console_page(request, "account.html", problem=problem, sessions=sessions)
