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


async def _show_sign_in(request: Request) -> Response:
    next_page = request.query_params.get("next", "")
    if await cookies.member_of(request) is not None:
        return redirect(_choose_next(next_page))
    return visitor_page(request, "sign_in.html", next=next_page, email="")


async def _sign_in(request: Request) -> Response:
    form = await read_visitor_form(request)
    email, next_page = get_text(form, "email"), get_text(form, "next")
    password, sessions = get_text(form, "password"), site_of(request).services.sessions
    start_session = partial(sessions.sign_in, email, password, client_ip(request), **_browser(request))
    page = _choose_next(next_page)
    return await _enter(request, form, start_session, "sign_in.html", page, next=next_page, email=email)


async def _show_sign_up(request: Request) -> Response:
    if await cookies.member_of(request) is not None:
        return redirect("/console")
    if not site_of(request).services.sessions.sign_up_open:
        raise Problem("sign_up_closed", "Sign-up is closed. Ask the operator for an account")
    return visitor_page(request, "sign_up.html", name="", email="")


async def _sign_up(request: Request) -> Response:
    form = await read_visitor_form(request)
    name, email = get_text(form, "name"), get_text(form, "email")
    password, services = get_text(form, "password"), site_of(request).services
    start_session = partial(services.sessions.sign_up, name, email, password, client_ip(request), **_browser(request))
    notice = "signed-up-mail" if services.own_account.confirms_emails else "signed-up"
    return await _enter(request, form, start_session, "sign_up.html", "/console", notice, name=name, email=email)


async def _show_reset(request: Request) -> Response:
    return visitor_page(request, "reset.html", is_sent=False, can_reset=_can_reset(request), email="")


async def _request_reset(request: Request) -> Response:
    form = await read_visitor_form(request)
    email, is_sent, problem = get_text(form, "email"), True, None  # the same for an email without an account
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await site_of(request).services.sessions.request_reset(email, client_ip(request))
    except Problem as caught:
        is_sent, problem = False, caught
    return visitor_page(request, "reset.html", problem, is_sent=is_sent, can_reset=_can_reset(request), email=email)


async def _show_confirmation(request: Request) -> Response:
    # Opening the link is not enough to confirm an email, because mail scanners do that.
    account, email = await site_of(request).services.own_account.find_confirmation(request.path_params["token"])
    return visitor_page(request, "confirm_email.html", name=account.name, email=email)


async def _confirm_email(request: Request) -> Response:
    form = await read_visitor_form(request)
    own_account, token = site_of(request).services.own_account, request.path_params["token"]
    account, email = await own_account.find_confirmation(token)
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await own_account.confirm_email(token)
    except Problem as problem:
        return visitor_page(request, "confirm_email.html", problem, name=account.name, email=email)
    return redirect_with_notice(request, "/console/account", "email-confirmed")


async def _show_invitation(request: Request) -> Response:
    account = await site_of(request).services.invitations.find(request.path_params["token"])
    return visitor_page(request, "invitation.html", email=account.email)


async def _accept_invitation(request: Request) -> Response:
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
async def _sign_out(request: Request, member: Member) -> Response:  # noqa: ARG001 - the token identifies the session
    await site_of(request).services.sessions.sign_out(cookies.token_of(request))
    return cookies.end(request, redirect_with_notice(request, "/sign-in", "signed-out"))


ROUTES = [
    Route("/sign-in", _show_sign_in),
    Route("/sign-in", _sign_in, methods=["POST"]),
    Route("/sign-up", _show_sign_up),
    Route("/sign-up", _sign_up, methods=["POST"]),
    Route("/sign-out", _sign_out, methods=["POST"]),
    Route("/reset-password", _show_reset),
    Route("/reset-password", _request_reset, methods=["POST"]),
    Route("/confirm-email/{token}", _show_confirmation),
    Route("/confirm-email/{token}", _confirm_email, methods=["POST"]),
    Route("/invitations/{token}", _show_invitation),
    Route("/invitations/{token}", _accept_invitation, methods=["POST"]),
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
