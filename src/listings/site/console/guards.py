"""Functions that all console pages use: access control, reading of forms, responses and redirects."""

import asyncio
import re
from binascii import a2b_qp
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from sys import getsizeof
from typing import TypeAlias
from urllib.parse import unquote_plus, urlencode

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from listings.domain.account_limits import AccountSize
from listings.domain.errors import Problem
from listings.domain.model import is_plan_active
from listings.http.large_bodies import LARGE_BODY_BYTES, ReceivedBody
from listings.service.listings.steps import WriteOptions
from listings.service.members.sessions import Member
from listings.site import cookies, pages, security, uploads
from listings.site.console.listings.actions import ACTIONS, PRICE, describe_bulk_change
from listings.site.context import site_of
from listings.site.visitor import measure_html, require_room

Page: TypeAlias = Callable[[Request], Awaitable[Response]]
MemberPage: TypeAlias = Callable[[Request, Member], Awaitable[Response]]

LISTINGS_PATH = "/console/listings"
ACTIVITY_PATH = "/console/activity"
UNDO_PATH = f"{ACTIVITY_PATH}/undo"

MAX_FIELDS = 300
"""The largest number of fields of a form."""

MAX_DRAFTS = 20
"""The paused listings that an account may have without a plan."""

_EXPORT_PATH, _IMPORT_PATH = "/console/export", "/console/import"
_NO_STORE = {"Cache-Control": "no-store"}
_SEE_OTHER = 303
_MAX_TEXT_LENGTH = 10_000
_MAX_FORM_ID_LENGTH = 40
_SESSION_ENDED = "session-ended"  # the notice that is a warning
_BULK_CHANGE = re.compile(r"([a-z]+)\.([0-9]+)\.([0-9]+)")

NOTICES: Mapping[str, str] = {
    _SESSION_ENDED: "You were signed out. Sign in, check whether your change was saved, and if not, submit the form "
    "again.",
    "signed-out": "You are signed out.",
    "signed-up": "Welcome! Your account is ready.",
    "signed-up-mail": "Welcome! Your account is ready. We sent a link to your email: open it and select "
    "“Confirm email”.",
    "password-set": "Password saved. All other devices were signed out.",
    "password-set-keys": "Password saved. All other devices were signed out. The active API keys still work: open any "
    "that you do not know, and revoke it.",
    "password-set-first": "Password saved. All other devices were signed out. Your email is confirmed now, so API keys "
    "that were created in the console before were revoked. Open any active one that you do not know, and revoke it.",
    "name": "Name saved.",
    "email": "Email saved.",
    "email-link": "A link was sent to that address. Open it within a day and select “Confirm email”.",
    "email-confirmed": "Your email is confirmed.",
    "account-closed": "Your account is closed. Your personal data will be erased within minutes.",
    "password": "Password changed. All other devices were signed out.",
    "contact": "Contact saved.",
    "about": "Saved. Buyers read it on your page.",
    "messages-on": "Buyers can now send you messages from your listings.",
    "messages-off": "Buyers can no longer send you messages.",
    "session": "The device was signed out.",
    "sessions": "All other devices were signed out.",
    "plan-requested": "Your request was sent. We will contact you at your account's email address.",
    "emptied": "Test mode is empty.",
    "revoked": "Key revoked. Requests using it now fail with 401.",
    "created": "Listing created. It will be on the market within seconds.",
    "created-draft": "Draft saved. Publish it when your plan has started.",
    "created-paused": "Listing created. It is paused: resume it to show it on the market.",
    "saved": "Listing saved.",
    "unchanged": "There were no changes to save.",
    "paused": "Listing paused. It is no longer on the market.",
    "resumed": "Listing resumed. It will be on the market within seconds.",
    "deleted": "Listing deleted. With an active plan, you can restore it from this page.",
    "operator": "You are signed in as an operator, for 12 hours in this browser.",
    "plan-started": "The plan is active.",
    "plan-declined": "The request is declined.",
    "report-closed": "The report is closed.",
    "taken-down": "The listing is taken down.",
    "lifted": "The listing is no longer taken down.",
    "restored": "Listing restored. It is paused: resume it to show it on the market.",
}
"""Texts that the next page shows once, by name. `_notice` has those of bulk changes."""


def for_member(page: MemberPage) -> Page:
    """Require a signed-in member, and the session's token in a form. Visitors are redirected to the sign-in page."""

    @wraps(page)
    async def checked(request: Request, member: Member) -> Response:
        if request.method == "POST":
            security.require_form_token(member.csrf_secret, (await read_form(request)).get("token"))
        return await page(request, member)

    return for_member_unchecked(checked)


def for_member_unchecked(page: MemberPage) -> Page:
    """Require a signed-in member, but leave the form's token to the page: see `require_current_session`."""

    @wraps(page)
    async def guarded(request: Request) -> Response:
        member = await cookies.member_of(request)
        try:
            if member is not None and request.method == "POST":
                await read_form(request)
                member = await cookies.reload_member(request)  # the session may have ended meanwhile
            if member is None:
                return _redirect_to_sign_in(request)
            response = await page(request, member)
        finally:
            await request.close()  # closes uploaded files
            request._form = None  # noqa: SLF001 - Starlette would keep the texts until the response is sent
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return guarded


def require_current_session(member: Member, form: FormData) -> None:
    """Raise Problem("cross_site") if the form's token belongs to another session, usually an earlier one."""
    try:
        security.require_form_token(member.csrf_secret, form.get("token"))
    except Problem:
        message = "You signed in again in the meantime, so nothing was saved. Save once more"
        raise Problem("cross_site", message) from None


async def read_form(request: Request) -> FormData:
    """Return the submitted form, limited in size. It is parsed only once.

    Raises Problem("malformed_request") for a multipart form with a charset: some codecs of Python take minutes.
    """
    if hasattr(request.state, "form"):
        form: FormData = request.state.form
        return form
    form = request.state.form = await _parse_body(request, request.headers.get("Content-Type", "").lower())
    size = sum(getsizeof(value) for _, value in form.multi_items() if isinstance(value, str))
    if hasattr(request.state, "body") and LARGE_BODY_BYTES < body_of(request).length < size:
        body_of(request).reserve(size - body_of(request).length)  # one emoji makes a text four times as large
    return form


async def _parse_body(request: Request, content_type: str) -> FormData:
    if content_type.startswith("multipart/") and "charset" in content_type:
        raise Problem("malformed_request", "A multipart form must be UTF-8: remove the charset from its Content-Type")
    is_upload = uploads.is_upload(request)
    if is_upload and getattr(request.state, "member", None) is not None:  # forms of visitors are small
        return await uploads.read_upload_form(request)
    max_files = uploads.MAX_FILES if is_upload else 1
    await request.state.collect_body()
    if body_of(request).length <= LARGE_BODY_BYTES:
        return await _decode_body(request, content_type, max_files)
    async with body_of(request).take_turn():
        return await _decode_body(request, content_type, max_files)


async def _decode_body(request: Request, content_type: str, max_files: int) -> FormData:
    if content_type.startswith("multipart/"):
        max_bytes = site_of(request).options.max_body_bytes
        return await request.form(max_files=max_files, max_fields=MAX_FIELDS, max_part_size=max_bytes)
    body = b"".join([piece async for piece in request.stream()])  # `request.body()` would keep it
    if len(body) <= LARGE_BODY_BYTES:
        return parse_form(body)
    return await asyncio.to_thread(parse_form, body)


def body_of(request: Request) -> ReceivedBody:
    """Return the received body of a form, for which memory can be reserved until the request is processed."""
    body: ReceivedBody = request.state.body
    return body


def parse_form(body: bytes) -> FormData:
    """Return the fields of a URL-encoded form.

    Raises Problem("malformed_request") if there are too many, or a large one has an invalid escape such as "%zz".
    """
    if body.count(b"&") >= MAX_FIELDS:
        raise Problem("malformed_request", f"A form must have at most {MAX_FIELDS} fields")
    pairs = [field.partition(b"=") for field in body.split(b"&") if field]
    fields: list[tuple[str, str | UploadFile]] = [(_unquote(name), _unquote(value)) for name, _, value in pairs]
    return FormData(fields)


def _unquote(value: bytes) -> str:
    # `unquote_plus` holds the interpreter lock for 450 ms with 2 MiB of escapes, and this for 20 ms. Quoted-printable
    # has the same escapes with "=" instead of "%", and each valid one makes the text two bytes shorter. It also has
    # an escape before a line break.
    quoted = value.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"=")
    plain = a2b_qp(quoted)
    if len(quoted) - len(plain) == 2 * quoted.count(b"=") and b"%\n" not in value and b"%\r" not in value:
        return plain.decode(errors="replace")
    if len(value) > LARGE_BODY_BYTES:
        raise Problem("malformed_request", "The form has a % that is not followed by two hexadecimal digits")
    return unquote_plus(value.decode(errors="replace"))


def get_text(form: FormData, name: str) -> str:
    """Return the value of a field, or "" if it is missing or a file.

    A value that is longer than any may be is cut, so that the page of its error is not large.
    """
    value = form.get(name, "")
    return value[:_MAX_TEXT_LENGTH] if isinstance(value, str) else ""


def get_form_id(form: FormData) -> str:
    """Return the id with which a form takes effect only once."""
    return get_text(form, "form_id")[:_MAX_FORM_ID_LENGTH]


def build_form_options(form_id: str, digest: bytes, part: str = "") -> WriteOptions:
    """Return the options with which a form takes effect only once. `part` names one of several writes of a form."""
    return WriteOptions(idempotency_key=f"console {form_id}{part}" if form_id else None, digest=digest)


def console_page(
    request: Request, template: str, *, problem: Problem | None = None, status: int = 200, **context: object
) -> Response:
    """Render a console page, which is never cached. A `problem` is shown on it and determines the status."""
    if hasattr(request.state, "form"):  # which the page may show again
        require_room(request, sum(map(measure_html, request.state.form.values())))
    member: Member | None = getattr(request.state, "member", None)
    notice, change = cookies.get_flash(request)
    response = pages.page(
        request,
        f"console/{template}",
        status=pages.status_of(problem) if problem is not None else status,
        headers={**_NO_STORE, **pages.retry_header(problem)},
        problem=pages.replace_message(problem) if problem is not None else None,
        notice=_notice(notice) if problem is None else None,
        is_warning=notice == _SESSION_ENDED,
        undo_url=build_undo_url(change, is_bulk="." in notice),
        has_plan=member is not None and has_plan(request, member),
        now=site_of(request).services.clock(),
        **context,
    )
    return cookies.clear_flash(request, response) if notice else response


def redirect(path: str, **parameters: str) -> Response:
    """Redirect to a page after a form was processed."""
    url = f"{path}?{urlencode(parameters)}" if parameters else path
    return RedirectResponse(url, _SEE_OTHER, _NO_STORE)


def redirect_with_notice(request: Request, path: str, notice: str, change: int | None = None) -> Response:
    """Redirect to a page that shows a notice once: a name of `NOTICES`, or a bulk change such as "pause.3.0".

    The notice offers to undo a change set, or the bulk change with this first change set.
    """
    return cookies.set_flash(request, redirect(path), notice, change)


def build_undo_url(change: int | None, *, is_bulk: bool) -> str:
    """Return the URL that undoes a change set, or the bulk change with this first change set, or "" for None."""
    subject = f"group=%23{change}" if is_bulk else f"change={change}"
    return "" if change is None else f"{UNDO_PATH}?{subject}"


def has_plan(request: Request, member: Member) -> bool:
    """Return whether the member's plan is active."""
    return is_plan_active(member.account.plan_expires_at, site_of(request).services.clock())


def require_plan(request: Request, member: Member) -> None:
    """Raise Problem("plan_expired") without an active plan. Like the API, the console needs one to publish listings."""
    if not has_plan(request, member):
        raise Problem("plan_expired", "This needs an active Business plan. Subscribe or renew it under Plan")


async def measure_account(request: Request, member: Member) -> AccountSize:
    """Return the size of the member's account, which other requests may be changing."""
    counts = await site_of(request).counts.get(site_of(request).services, member)
    return AccountSize(counts.active + counts.inactive, counts.text_bytes)


def require_draft_room(size: AccountSize) -> None:
    """Raise Problem("plan_expired") if a further listing of an account of this size needs a plan."""
    if size.listings >= MAX_DRAFTS:
        message = f"Without a Business plan, you can have {MAX_DRAFTS} listings. Subscribe or renew it under Plan"
        raise Problem("plan_expired", message)


def _notice(name: str) -> str | None:
    bulk_change = _BULK_CHANGE.fullmatch(name)  # such as pause.3.1: three were paused, and one already was
    if bulk_change is not None and bulk_change[1] in {*ACTIONS, PRICE}:
        return describe_bulk_change(bulk_change[1], int(bulk_change[2]), int(bulk_change[3]))
    return NOTICES.get(name)


def _redirect_to_sign_in(request: Request) -> Response:
    if request.method not in {"GET", "HEAD"}:
        page = pages.find_console_page(request)
        if not page:
            return redirect("/sign-in")
        return redirect_with_notice(request, f"/sign-in?{urlencode({'next': page})}", _SESSION_ENDED)
    if request.scope["path"] == _EXPORT_PATH:  # a download, which would leave the browser on the sign-in page
        return redirect("/sign-in", next=_IMPORT_PATH)
    query = f"?{request.url.query}" if request.url.query else ""
    return redirect("/sign-in", next=request.scope["path"] + query)
