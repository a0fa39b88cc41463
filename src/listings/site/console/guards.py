"""What is around every page of the console: who may see it, its form's token, and where one goes after a form."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import TypeAlias
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from listings.domain.errors import Problem
from listings.domain.model import is_plan_active
from listings.service import Member
from listings.site import pages, security, session
from listings.site.console.listing_search import ACTIONS, many_done
from listings.site.context import site_of

Page: TypeAlias = Callable[[Request], Awaitable[Response]]
MemberPage: TypeAlias = Callable[[Request, Member], Awaitable[Response]]

_NO_STORE = {"Cache-Control": "no-store"}
_MOST_FIELDS = 300
_SEE_OTHER = 303
_LONGEST_ONCE = 40
_MANY = re.compile(r"([a-z]+)\.([0-9]+)")

DONE: Mapping[str, str] = {
    "signed-out": "You were signed out, and nothing is stored: sign in, and send it once more.",
    "signed-up": "Welcome. Your account is open.",
    "password": "Your password is changed, and all other sessions are ended.",
    "session": "The session is ended.",
    "sessions": "All other sessions are ended.",
    "revoked": "The key is revoked: whoever still uses it is answered 401.",
    "created": "The listing is created.",
    "saved": "The listing is saved.",
    "unchanged": "Nothing was changed.",
    "paused": "Paused: not on the market any more.",
    "resumed": "Resumed: on the market within a second or two.",
    "closed": "Closed. It can be restored from here.",
    "restored": "Restored. It is paused: resume it to show it on the market.",
}
"""What is told once on the page that one comes to, by its word; of many listings see `_notice`."""


def for_member(page: MemberPage) -> Page:
    """A page for who is signed in, others are asked to; a form is read, and has the session's token."""
    return _guarded(page, None)


def for_writer(again: MemberPage) -> Callable[[MemberPage], Page]:
    """The same for a form in which much is written: where its token is another session's, `again` answers.

    It stores nothing, and shows what was written in a form that can be sent.
    """
    return lambda page: _guarded(page, again)


def _guarded(page: MemberPage, again: MemberPage | None) -> Page:
    @wraps(page)
    async def guarded(request: Request) -> Response:
        member = await session.member_of(request)
        if member is None:
            return _to_sign_in(request)
        try:
            response = await _heeded(request, member, page, again)
        finally:
            await request.close()  # of files that were sent
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guarded


async def read_form(request: Request) -> FormData:
    """What was sent, bounded; it is read once, whoever asks."""
    most = site_of(request).options.most_body
    return await request.form(max_files=1, max_fields=_MOST_FIELDS, max_part_size=most)


def text_of(form: FormData, name: str) -> str:
    """What stands in a field; "" where there is none."""
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def once_of(form: FormData) -> str:
    """What a form is known by that is heeded once."""
    return text_of(form, "once")[:_LONGEST_ONCE]


def console_page(
    request: Request, template: str, *, problem: Problem | None = None, status: int | None = None, **context: object
) -> Response:
    """A page of the console, kept by nobody. `problem` is told on it, and gives it its status."""
    member: Member | None = getattr(request.state, "member", None)
    told = pages.status_of(problem) if problem is not None else 200
    word = session.word_of(request)
    response = pages.page(
        request,
        f"console/{template}",
        status=status or told,
        headers=_NO_STORE,
        problem=problem,
        notice=_notice(word) if problem is None else None,
        has_plan=member is not None and has_plan(request, member),
        now=site_of(request).service.clock(),
        **context,
    )
    return session.clear_flash(request, response) if word else response


def see(path: str, **parameters: str) -> Response:
    """To another page, after a form was heeded."""
    address = f"{path}?{urlencode(parameters)}" if parameters else path
    return RedirectResponse(address, _SEE_OTHER, _NO_STORE)


def see_done(request: Request, path: str, word: str) -> Response:
    """To another page, which tells once what was done: see `DONE`."""
    return session.tell_next(request, see(path), word)


def has_plan(request: Request, member: Member) -> bool:
    """Whether the member's plan holds now."""
    return is_plan_active(member.account.plan_expires_at, site_of(request).service.clock())


def require_plan(request: Request, member: Member) -> None:
    """Raises Problem("plan_expired"): what puts listings on the market needs a plan, here as by the API."""
    if not has_plan(request, member):
        raise Problem("plan_expired", "This needs a current Business plan: get or renew it under Plan")


def _notice(word: str) -> str | None:
    """What a word tells; "pause.3" is of three listings at once."""
    many = _MANY.fullmatch(word)
    if many is not None and many[1] in ACTIONS:
        return many_done(many[1], int(many[2]))
    return DONE.get(word)


async def _heeded(request: Request, member: Member, page: MemberPage, again: MemberPage | None) -> Response:
    """What the page answers, or what is answered to a form whose token is not the session's."""
    if request.method == "POST":
        try:
            security.require_form_token(member.csrf_secret, (await read_form(request)).get("token"))
        except Problem:
            if again is None:
                raise
            return await again(request, member)
    return await page(request, member)


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        page = pages.console_page_of(request)
        return session.tell_next(request, see("/sign-in", next=page), "signed-out") if page else see("/sign-in")
    query = f"?{request.url.query}" if request.url.query else ""
    return see("/sign-in", next=request.scope["path"] + query)
