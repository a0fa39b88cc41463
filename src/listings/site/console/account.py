"""Account pages: name, email, password, sessions, and closing the account."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service import Services
from listings.service.accounts import MAX_ABOUT_LENGTH
from listings.service.members.sessions import Member
from listings.site import cookies
from listings.site.console.guards import Page, console_page, for_member, get_text, read_form, redirect_with_notice
from listings.site.context import site_of

_PATH = "/console/account"


async def _show_account(
    request: Request, member: Member, problem: Problem | None = None, failed: str = "", entered: str = ""
) -> Response:
    # `failed` is the field of a form that was rejected, and `entered` its value.
    services = site_of(request).services
    return console_page(
        request,
        "account.html",
        problem=problem,
        failed=failed,
        entered=entered,
        sessions=await services.sessions.list_active(member),
        max_about=MAX_ABOUT_LENGTH,
        can_get_messages=services.messages.is_on,
        confirms_emails=services.own_account.confirms_emails,
        is_confirmed=await services.own_account.is_email_confirmed(member.account),
    )


@for_member
async def _change_email(request: Request, member: Member) -> Response:
    form, own_account = await read_form(request), site_of(request).services.own_account
    email = get_text(form, "email")
    try:
        await own_account.change_email(member, email, get_text(form, "password"))
    except Problem as problem:
        failed = "email-password" if problem.code == "wrong_credentials" else "email"
        return await _show_account(request, member, problem, failed, email)
    return redirect_with_notice(request, _PATH, "email-link" if own_account.confirms_emails else "email")


@for_member
async def _send_confirmation(request: Request, member: Member) -> Response:
    try:
        await site_of(request).services.own_account.send_confirmation(member)
    except Problem as problem:
        return await _show_account(request, member, problem)
    return redirect_with_notice(request, _PATH, "email-link")


@for_member
async def _show_closing(request: Request, member: Member) -> Response:  # noqa: ARG001 - the template shows the member
    return console_page(request, "account_close.html", email="", wrong_field="")


@for_member
async def _close_account(request: Request, member: Member) -> Response:
    form = await read_form(request)
    email, password = get_text(form, "email"), get_text(form, "password")
    try:
        await site_of(request).services.own_account.close(member, email, password)
    except Problem as problem:
        wrong_field = "email" if problem.code == "invalid_request" else "password"
        return console_page(request, "account_close.html", problem=problem, email=email, wrong_field=wrong_field)
    return cookies.end(request, redirect_with_notice(request, "/sign-in", "account-closed"))


def _save_text(field: str, save: Callable[[Services, Member, str], Awaitable[None]]) -> Page:
    async def save_text(request: Request, member: Member) -> Response:
        text = get_text(await read_form(request), field)
        try:
            await save(site_of(request).services, member, text)
        except Problem as problem:
            return await _show_account(request, member, problem, field, text)
        return redirect_with_notice(request, _PATH, field)

    return for_member(save_text)


@for_member
async def _set_messages(request: Request, member: Member) -> Response:
    is_on = get_text(await read_form(request), "messages") == "on"
    await site_of(request).services.accounts.set_messages(member.account, is_on=is_on)
    return redirect_with_notice(request, _PATH, "messages-on" if is_on else "messages-off")


@for_member
async def _change_password(request: Request, member: Member) -> Response:
    form = await read_form(request)
    services = site_of(request).services
    try:
        old, new, device = get_text(form, "old"), get_text(form, "new"), cookies.device_of(request)
        token = await services.sessions.change_password(member, old, new, device=device)
    except Problem as problem:
        return await _show_account(request, member, problem, "new" if problem.code == "invalid_request" else "old")
    return cookies.begin(request, redirect_with_notice(request, _PATH, "password"), token)


@for_member
async def _end_session(request: Request, member: Member) -> Response:
    handle = get_text(await read_form(request), "session")
    await site_of(request).services.sessions.end(member.account, handle)
    if handle == member.session_handle:
        return cookies.end(request, redirect_with_notice(request, "/sign-in", "signed-out"))
    return redirect_with_notice(request, _PATH, "session")


@for_member
async def _end_other_sessions(request: Request, member: Member) -> Response:
    await site_of(request).services.sessions.end_others(member)
    return redirect_with_notice(request, _PATH, "sessions")


_set_name = _save_text("name", lambda services, member, text: services.own_account.change_name(member, text))
_set_contact = _save_text(
    "contact", lambda services, member, text: services.accounts.set_public_contact(member.account, text)
)
_set_about = _save_text("about", lambda services, member, text: services.accounts.set_about(member.account, text))
ROUTES = [
    Route(_PATH, for_member(_show_account)),
    Route(f"{_PATH}/contact", _set_contact, methods=["POST"]),
    Route(f"{_PATH}/about", _set_about, methods=["POST"]),
    Route(f"{_PATH}/messages", _set_messages, methods=["POST"]),
    Route(f"{_PATH}/name", _set_name, methods=["POST"]),
    Route(f"{_PATH}/email", _change_email, methods=["POST"]),
    Route(f"{_PATH}/email/confirm", _send_confirmation, methods=["POST"]),
    Route(f"{_PATH}/close", _show_closing),
    Route(f"{_PATH}/close", _close_account, methods=["POST"]),
    Route(f"{_PATH}/password", _change_password, methods=["POST"]),
    Route(f"{_PATH}/session", _end_session, methods=["POST"]),
    Route(f"{_PATH}/sessions", _end_other_sessions, methods=["POST"]),
]
