"""Account page: account data, password and sessions."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service.sessions import Member
from listings.site import session
from listings.site.console.guards import (
    console_page,
    for_member,
    get_text,
    read_form,
    redirect,
    redirect_with_notice,
)
from listings.site.context import site_of

_PATH = "/console/account"


async def show_account(request: Request, member: Member, problem: Problem | None = None) -> Response:
    """Show the account and its sessions."""
    sessions = await site_of(request).services.sessions.list_active(member)
    return console_page(request, "account.html", problem=problem, sessions=sessions)


@for_member
async def set_public_contact(request: Request, member: Member) -> Response:
    """Set the contact that the market shows to buyers."""
    contact = get_text(await read_form(request), "contact")
    try:
        await site_of(request).services.accounts.set_public_contact(member.account, contact)
    except Problem as problem:
        return await show_account(request, member, problem)
    return redirect_with_notice(request, _PATH, "contact")


@for_member
async def change_password(request: Request, member: Member) -> Response:
    """Change the password. This session gets a new token, all other sessions end."""
    form = await read_form(request)
    services = site_of(request).services
    try:
        old, new, device = get_text(form, "old"), get_text(form, "new"), session.device_of(request)
        token = await services.sessions.change_password(member, old, new, device=device)
    except Problem as problem:
        return await show_account(request, member, problem)
    return session.begin(request, redirect_with_notice(request, _PATH, "password"), token)


@for_member
async def end_session(request: Request, member: Member) -> Response:
    """End one session. If it is the current one, sign out."""
    handle = get_text(await read_form(request), "session")
    await site_of(request).services.sessions.end(member, handle)
    if handle == member.session:
        return session.end(request, redirect("/"))
    return redirect_with_notice(request, _PATH, "session")


@for_member
async def end_other_sessions(request: Request, member: Member) -> Response:
    """End all sessions except the current one."""
    await site_of(request).services.sessions.end_others(member)
    return redirect_with_notice(request, _PATH, "sessions")


ROUTES = [
    Route(_PATH, for_member(show_account)),
    Route(f"{_PATH}/contact", set_public_contact, methods=["POST"]),
    Route(f"{_PATH}/password", change_password, methods=["POST"]),
    Route(f"{_PATH}/session", end_session, methods=["POST"]),
    Route(f"{_PATH}/sessions", end_other_sessions, methods=["POST"]),
]
