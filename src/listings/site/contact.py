"""The pages on which visitors write to the seller of a listing, or of a shop, or report a listing to the operator."""

import secrets
from functools import partial
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem, Unavailable
from listings.service.mail import listing_reports
from listings.service.mail.messages import MAX_LENGTH, BuyerMessage, Recipient, suggest_email
from listings.site import cookies, security
from listings.site.console.guards import get_form_id, get_text
from listings.site.context import site_of
from listings.site.market import id_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_NOT_SENT = "Your message may not have been sent. Try again in a few minutes"
_TRAP = "subject"  # a field that people do not see, so only programs fill it


async def _show_message_form(request: Request) -> Response:
    member = await cookies.member_of(request)
    name, email = (member.account.name, member.account.email) if member is not None else ("", "")
    return await _message_page(request, BuyerMessage(name, email, ""))


async def _send_message(request: Request) -> Response:
    form = await read_visitor_form(request)
    await cookies.member_of(request)
    message = BuyerMessage(get_text(form, "name"), get_text(form, "email"), get_text(form, "text"))
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        if not get_text(form, _TRAP):  # a program that fills it gets the same response
            await _send_once(request, message, get_form_id(form) or secrets.token_urlsafe(16), copy="copy" in form)
    except Unavailable as problem:  # its text is for operators
        failure = Unavailable(_NOT_SENT, retry_after=problem.retry_after, for_visitors=True)
        return await _message_page(request, message, failure)
    except Problem as problem:
        return await _message_page(request, message, problem)
    return await _message_page(request, message, is_sent=True)


async def _show_report_form(request: Request) -> Response:
    await cookies.member_of(request)
    return await _report_page(request)


async def _send_report(request: Request) -> Response:
    form = await read_visitor_form(request)
    await cookies.member_of(request)
    reason, text = get_text(form, "reason"), get_text(form, "text")
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await site_of(request).services.listing_reports.add(id_of(request), reason, text, client_ip(request))
    except Problem as problem:
        return await _report_page(request, problem, reason=reason, text=text)
    return await _report_page(request, is_sent=True)


ROUTES = [
    Route("/listings/{id}/message", _show_message_form),
    Route("/listings/{id}/message", _send_message, methods=["POST"]),
    Route("/sellers/{id}/message", _show_message_form),
    Route("/sellers/{id}/message", _send_message, methods=["POST"]),
    Route("/listings/{id}/report", _show_report_form),
    Route("/listings/{id}/report", _send_report, methods=["POST"]),
]


async def _find_recipient(request: Request) -> Recipient:
    messages = site_of(request).services.messages
    find = messages.find_seller if request.scope["path"].startswith("/sellers/") else messages.find_recipient
    return await find(id_of(request))


async def _send_once(request: Request, message: BuyerMessage, form_id: str, *, copy: bool) -> None:
    site, path = site_of(request), request.scope["path"]
    recipient = await _find_recipient(request)
    digest = sha256(repr((form_id, path, message)).encode("utf-8", "surrogatepass")).digest()
    address, browser = client_ip(request), cookies.form_secret(request)
    send = partial(site.services.messages.send, recipient, message, address, browser, copy=copy)
    await site.sent_messages.send_once(digest, send)


async def _message_page(
    request: Request, message: BuyerMessage, problem: Problem | None = None, *, is_sent: bool = False
) -> Response:
    listing, seller = await _find_recipient(request)
    return visitor_page(
        request,
        "message.html",
        problem,
        listing=listing,
        seller=seller,
        message=message,
        is_sent=is_sent,
        suggestion=suggest_email(message.email) if is_sent else "",
        form_id=secrets.token_urlsafe(16),
        max_length=MAX_LENGTH,
        trap=_TRAP,
    )


async def _report_page(
    request: Request, problem: Problem | None = None, *, reason: str = "", text: str = "", is_sent: bool = False
) -> Response:
    services = site_of(request).services
    if not services.listing_reports.is_on:
        raise Problem("path_not_found", "Listings can't be reported here")
    return visitor_page(
        request,
        "report.html",
        problem,
        listing=await services.market.get_listing(id_of(request)),
        reasons=listing_reports.REASONS,
        reason=reason,
        text=text,
        max_length=listing_reports.MAX_LENGTH,
        is_sent=is_sent,
    )
