"""The pages on which a buyer writes to the seller of a listing, or of a shop."""

import secrets
from functools import partial
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem, Unavailable
from listings.service.mail.messages import MAX_LENGTH, BuyerMessage, Recipient, suggest_email
from listings.site import cookies, security
from listings.site.console.guards import get_form_id, get_text
from listings.site.context import site_of
from listings.site.market import id_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_PATH = "/listings/{id}/message"
_SELLER_PATH = "/sellers/{id}/message"
_NOT_SENT = "Your message may not have been sent. Try again in a few minutes"
_TRAP = "subject"  # a field that people do not see, so only programs fill it


async def show_form(request: Request) -> Response:
    """Show the form, with the name and email of a signed-in visitor."""
    member = await cookies.member_of(request)
    name, email = (member.account.name, member.account.email) if member is not None else ("", "")
    return await _show(request, BuyerMessage(name, email, ""))


async def send_message(request: Request) -> Response:
    """Send a message, and show its address, which the sender may correct.

    A program that fills the trap gets the same response, and nothing is sent.
    """
    form = await read_visitor_form(request)
    await cookies.member_of(request)
    message = BuyerMessage(get_text(form, "name"), get_text(form, "email"), get_text(form, "text"))
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        if not get_text(form, _TRAP):
            await _send_once(request, message, get_form_id(form) or secrets.token_urlsafe(16), copy="copy" in form)
    except Unavailable as problem:  # its text is for operators
        return await _show(request, message, Unavailable(_NOT_SENT, retry_after=problem.retry_after, for_visitors=True))
    except Problem as problem:
        return await _show(request, message, problem)
    return await _show(request, message, is_sent=True)


ROUTES = [
    *(Route(path, show_form) for path in (_PATH, _SELLER_PATH)),
    *(Route(path, send_message, methods=["POST"]) for path in (_PATH, _SELLER_PATH)),
]


async def _find_recipient(request: Request) -> Recipient:
    messages = site_of(request).services.messages
    find = messages.find_seller if request.scope["path"].startswith("/sellers/") else messages.find_recipient
    return await find(id_of(request))


async def _send_once(request: Request, message: BuyerMessage, form_id: str, *, copy: bool) -> None:
    """Send a message. If the same form has sent the same text before, do nothing."""
    site, path = site_of(request), request.scope["path"]
    recipient = await _find_recipient(request)
    digest = sha256(repr((form_id, path, message)).encode("utf-8", "surrogatepass")).digest()
    address, browser = client_ip(request), cookies.form_secret(request)
    send = partial(site.services.messages.send, recipient, message, address, browser, copy=copy)
    await site.sent_messages.send_once(digest, send)


async def _show(
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
