"""Sign-up, sign-in and sign-out pages, and those that links in mail and invitations open."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service.members.sessions import Member
from listings.service.tokens import RESET
from listings.site import cookies, security
from listings.site.console.guards import for_member, get_text, redirect, redirect_with_notice
from listings.site.context import site_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_SIGNED_OUT_ONLY = {"sign_in.html", "sign_up.html"}  # of no use after signing in in another tab
_NEXT = re.compile(r"/(?:console|operator)(?:[/?][A-Za-z0-9/_?=&%.,+*~-]*)?")


async def show_sign_in(request: Request) -> Response:
    """Show the sign-in form, or redirect a signed-in member to the page after it."""
    next_page = request.query_params.get("next", "")
    if await cookies.member_of(request) is not None:
        return redirect(_choose_next(next_page))
    return visitor_page(request, "sign_in.html", next=next_page, email="")


async def sign_in(request: Request) -> Response:
    """Start a session. The browser's previous session ends."""
    form = await read_visitor_form(request)
    email, next_page = get_text(form, "email"), get_text(form, "next")
    password, sessions = get_text(form, "password"), site_of(request).services.sessions
    start_session = partial(sessions.sign_in, email, password, client_ip(request), **_browser(request))
    page = _choose_next(next_page)
    return await _enter(request, form, start_session, "sign_in.html", page, next=next_page, email=email)


async def show_sign_up(request: Request) -> Response:
    """Show the sign-up form if sign-up is open."""
    if await cookies.member_of(request) is not None:
        return redirect("/console")
    if not site_of(request).services.sessions.sign_up_open:
        raise Problem("sign_up_closed", "Sign-up is closed. Ask the operator for an account")
    return visitor_page(request, "sign_up.html", name="", email="")


async def sign_up(request: Request) -> Response:
    """Create an account and start a session."""
    form = await read_visitor_form(request)
    name, email = get_text(form, "name"), get_text(form, "email")
    password, services = get_text(form, "password"), site_of(request).services
    start_session = partial(services.sessions.sign_up, name, email, password, client_ip(request), **_browser(request))
    notice = "signed-up-mail" if services.own_account.confirms_emails else "signed-up"
    return await _enter(request, form, start_session, "sign_up.html", "/console", notice, name=name, email=email)


async def show_reset(request: Request) -> Response:
    """Show the form that requests a new password, or whom to ask if the service sends no mail."""
    return visitor_page(request, "reset.html", is_sent=False, can_reset=_can_reset(request), email="")


async def request_reset(request: Request) -> Response:
    """Send a link to set a new password. The response is the same whether an account has the email."""
    form = await read_visitor_form(request)
    email, is_sent, problem = get_text(form, "email"), True, None
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await site_of(request).services.sessions.request_reset(email, client_ip(request))
    except Problem as caught:
        is_sent, problem = False, caught
    return visitor_page(request, "reset.html", problem, is_sent=is_sent, can_reset=_can_reset(request), email=email)


async def show_confirmation(request: Request) -> Response:
    """Show the form that confirms an email address. Opening the link is not enough, because mail scanners do that."""
    account, email = await site_of(request).services.own_account.find_confirmation(request.path_params["token"])
    return visitor_page(request, "confirm_email.html", name=account.name, email=email)


async def confirm_email(request: Request) -> Response:
    """Confirm an email address."""
    form = await read_visitor_form(request)
    own_account, token = site_of(request).services.own_account, request.path_params["token"]
    account, email = await own_account.find_confirmation(token)
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await own_account.confirm_email(token)
    except Problem as problem:
        return visitor_page(request, "confirm_email.html", problem, name=account.name, email=email)
    return redirect_with_notice(request, "/console/account", "email-confirmed")


async def show_invitation(request: Request) -> Response:
    """Show the form in which an invited account owner sets the password."""
    account = await site_of(request).services.invitations.find(request.path_params["token"])
    return visitor_page(request, "invitation.html", email=account.email)


async def accept_invitation(request: Request) -> Response:
    """Set the password and start a session. If the account had active keys, the next page shows them."""
    form = await read_visitor_form(request)
    services, token = site_of(request).services, request.path_params["token"]
    account = await services.invitations.find(token)
    page, notice = "/console", "password-set"
    if await services.keys.list_active(account):
        is_first = token.startswith(RESET) and not await services.own_account.is_email_confirmed(account)
        page, notice = "/console/keys", "password-set-first" if is_first else "password-set-keys"
    start_session = partial(services.invitations.accept, token, get_text(form, "password"), **_browser(request))
    return await _enter(request, form, start_session, "invitation.html", page, notice, email=account.email)


@for_member
async def sign_out(request: Request, member: Member) -> Response:  # noqa: ARG001 - the token identifies the session
    """End the session."""
    await site_of(request).services.sessions.sign_out(cookies.token_of(request))
    return cookies.end(request, redirect_with_notice(request, "/sign-in", "signed-out"))


ROUTES = [
    Route("/sign-in", show_sign_in),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-up", show_sign_up),
    Route("/sign-up", sign_up, methods=["POST"]),
    Route("/sign-out", sign_out, methods=["POST"]),
    Route("/reset-password", show_reset),
    Route("/reset-password", request_reset, methods=["POST"]),
    Route("/confirm-email/{token}", show_confirmation),
    Route("/confirm-email/{token}", confirm_email, methods=["POST"]),
    Route("/invitations/{token}", show_invitation),
    Route("/invitations/{token}", accept_invitation, methods=["POST"]),
]


async def _enter(
    request: Request,
    form: FormData,
    start_session: Callable[[], Awaitable[str]],
    template: str,
    page: str,
    notice: str = "",
    **context: object,
) -> Response:
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        token = await start_session()
    except Problem as problem:
        if problem.code == "cross_site" and template in _SIGNED_OUT_ONLY and await cookies.member_of(request):
            return redirect(page)
        await asyncio.sleep(0)  # so that in a flood of wrong passwords, API requests get their turn before the page
        return visitor_page(request, template, problem=problem, **context)
    await site_of(request).services.sessions.sign_out(cookies.token_of(request))
    response = redirect_with_notice(request, page, notice) if notice else redirect(page)
    return cookies.begin(request, response, token)


def _choose_next(submitted: str) -> str:
    return submitted if _NEXT.fullmatch(submitted) else "/console"


def _can_reset(request: Request) -> bool:
    return site_of(request).services.sessions.can_reset_passwords


def _browser(request: Request) -> dict[str, str]:
    return {"agent": request.headers.get("user-agent", ""), "device": cookies.device_of(request)}
