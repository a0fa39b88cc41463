"""The console's door: signing up, in and out, and invitations."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service import Member
from listings.site import security, session
from listings.site.console.guards import console_page, for_member, read_form, see, see_done, text_of
from listings.site.context import site_of
from listings.site.visitor import address_of

_FOR_STRANGERS = {"sign_in.html", "sign_up.html"}  # who has signed in in another tab needs them no more
_NEXT = re.compile(r"/console(?:[/?][A-Za-z0-9/_?=&%.,+-]*)?")


async def show_sign_in(request: Request) -> Response:
    """The form, or the console for who is signed in already."""
    if await session.member_of(request) is not None:
        return see("/console")
    return _door(request, "sign_in.html", next=request.query_params.get("next", ""), email="")


async def sign_in(request: Request) -> Response:
    """Begin a session; one that the browser has had is over."""
    form = await _form(request)
    email, wanted = text_of(form, "email"), text_of(form, "next")
    service = site_of(request).service

    async def enter() -> str:
        return await service.sign_in(email, text_of(form, "password"), address_of(request), _agent(request))

    return await _entered(request, form, enter, "sign_in.html", next=wanted, email=email)


async def show_sign_up(request: Request) -> Response:
    """The form, where sign-up is open."""
    if await session.member_of(request) is not None:
        return see("/console")
    if not site_of(request).service.sign_up_open:
        raise Problem("sign_up_closed", "Sign-up is closed: ask the operator for an account")
    return _door(request, "sign_up.html", name="", email="")


async def sign_up(request: Request) -> Response:
    """Open an account, and begin a session."""
    form = await _form(request)
    name, email = text_of(form, "name"), text_of(form, "email")
    service = site_of(request).service

    async def enter() -> str:
        return await service.sign_up(name, email, text_of(form, "password"), address_of(request), _agent(request))

    return await _entered(request, form, enter, "sign_up.html", name=name, email=email)


async def show_invitation(request: Request) -> Response:
    """The form by which an invited owner of an account sets the password."""
    account = await site_of(request).service.find_invitation(request.path_params["token"])
    return _door(request, "invitation.html", email=account.email)


async def accept_invitation(request: Request) -> Response:
    """Set the password, and begin a session."""
    form = await _form(request)
    service, token = site_of(request).service, request.path_params["token"]
    account = await service.find_invitation(token)

    async def enter() -> str:
        return await service.accept_invitation(token, text_of(form, "password"), _agent(request))

    return await _entered(request, form, enter, "invitation.html", email=account.email)


@for_member
async def sign_out(request: Request, member: Member) -> Response:  # noqa: ARG001 - whose session it is, its token tells
    """End the session."""
    await site_of(request).service.sign_out(session.token_of(request))
    return session.end(request, see("/"))


ROUTES = [
    Route("/sign-in", show_sign_in),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-up", show_sign_up),
    Route("/sign-up", sign_up, methods=["POST"]),
    Route("/sign-out", sign_out, methods=["POST"]),
    Route("/invitations/{token}", show_invitation),
    Route("/invitations/{token}", accept_invitation, methods=["POST"]),
]


async def _form(request: Request) -> FormData:
    """What was sent, where nobody else can read it. Raises Problem("insecure_connection")."""
    session.require_private(request)
    form = await read_form(request)
    await request.close()  # of files that nobody has asked for
    return form


async def _entered(
    request: Request, form: FormData, enter: Callable[[], Awaitable[str]], template: str, **context: object
) -> Response:
    """The console, with a new session, or the form again; only a form that this browser was given is heeded."""
    wanted = text_of(form, "next")
    where = wanted if _NEXT.fullmatch(wanted) else "/console"
    try:
        security.require_form_token(session.form_secret(request), form.get("token"))
        token = await enter()
    except Problem as problem:
        if problem.code == "cross_site" and template in _FOR_STRANGERS and await session.member_of(request):
            return see(where)
        return _door(request, template, problem=problem, **context)
    await site_of(request).service.sign_out(session.token_of(request))
    response = see_done(request, where, "signed-up") if template == "sign_up.html" else see(where)
    return session.begin(request, response, token)


def _door(request: Request, template: str, problem: Problem | None = None, **context: object) -> Response:
    session.require_private(request)
    secret = session.form_secret(request)
    shown: dict[str, Any] = {**context, "token": security.form_token(secret)}
    return session.keep_form_secret(request, console_page(request, template, problem=problem, **shown), secret)


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "")
