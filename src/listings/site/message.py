"""The page on which a buyer writes to the seller of a listing."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem, Unavailable
from listings.service.mail.messages import MAX_LENGTH, BuyerMessage
from listings.site import cookies, security
from listings.site.console.guards import get_form_id, get_text, redirect_with_notice
from listings.site.context import site_of
from listings.site.market import id_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_PATH = "/listings/{id}/message"
_NOT_SENT = "Your message may not have been sent. Try again in a few minutes"
_TRAP = "subject"  # a field that people do not see, so only programs fill it
_SENT = "message-sent"  # the notice after which the page shows no form
_MAX_REMEMBERED = 1_000  # forms


class SentMessages:
    """The forms that sent messages recently, so that a double click sends one message. Each process has its own."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    async def send_once(self, digest: bytes, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send a message, unless a form with this digest has sent it or is sending it."""
        if digest not in self._tasks:
            while len(self._tasks) >= _MAX_REMEMBERED:
                del self._tasks[next(iter(self._tasks))]
            self._tasks[digest] = asyncio.create_task(send())
        try:
            await asyncio.shield(self._tasks[digest])
        except Exception:
            self._tasks.pop(digest, None)
            raise


async def show_form(request: Request) -> Response:
    """Show the form, with the name and email of a signed-in visitor, or that the message was sent."""
    member = await cookies.member_of(request)
    name, email = (member.account.name, member.account.email) if member is not None else ("", "")
    return await _show(request, BuyerMessage(name, email, ""))


async def send_message(request: Request) -> Response:
    """Send a message. A program that fills the trap gets the same response, and nothing is sent."""
    form = await read_visitor_form(request)
    await cookies.member_of(request)
    message = BuyerMessage(get_text(form, "name"), get_text(form, "email"), get_text(form, "text"))
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        if not get_text(form, _TRAP):
            await _send_once(request, message, get_form_id(form) or secrets.token_urlsafe(16))
    except Unavailable as problem:  # its text is for operators
        return await _show(request, message, Unavailable(_NOT_SENT, retry_after=problem.retry_after, for_visitors=True))
    except Problem as problem:
        return await _show(request, message, problem)
    return redirect_with_notice(request, request.scope["path"], _SENT)


ROUTES = [Route(_PATH, show_form), Route(_PATH, send_message, methods=["POST"])]


async def _send_once(request: Request, message: BuyerMessage, form_id: str) -> None:
    """Send a message. If the same form has sent the same text before, do nothing."""
    site, listing_id = site_of(request), id_of(request)
    digest = sha256(repr((form_id, listing_id, message)).encode("utf-8", "surrogatepass")).digest()
    send = site.services.messages.send
    await site.sent_messages.send_once(digest, lambda: send(listing_id, message, client_ip(request)))


async def _show(request: Request, message: BuyerMessage, problem: Problem | None = None) -> Response:
    listing, seller = await site_of(request).services.messages.find_recipient(id_of(request))
    return visitor_page(
        request,
        "message.html",
        problem,
        listing=listing,
        seller=seller,
        message=message,
        is_sent=problem is None and cookies.get_flash(request).name == _SENT,
        form_id=secrets.token_urlsafe(16),
        max_length=MAX_LENGTH,
        trap=_TRAP,
    )
