"""The page on which a buyer writes to the seller of a listing."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem, Unavailable
from listings.service.mail.messages import MAX_LENGTH, BuyerMessage
from listings.site import cookies, security
from listings.site.console.guards import get_text
from listings.site.context import site_of
from listings.site.market import id_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_PATH = "/listings/{id}/message"
_NOT_SENT = "Your message may not have been sent. Try again in a few minutes"
_TRAP = "subject"  # a field that people do not see, so only programs fill it


async def show_form(request: Request) -> Response:
    """Show the form, with the name and email of a signed-in visitor."""
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
            await site_of(request).services.messages.send(id_of(request), message, client_ip(request))
    except Unavailable as problem:  # its text is for operators
        return await _show(request, message, Unavailable(_NOT_SENT, retry_after=problem.retry_after))
    except Problem as problem:
        return await _show(request, message, problem)
    return await _show(request, message, is_sent=True)


ROUTES = [Route(_PATH, show_form), Route(_PATH, send_message, methods=["POST"])]


async def _show(
    request: Request, message: BuyerMessage, problem: Problem | None = None, *, is_sent: bool = False
) -> Response:
    listing, seller = await site_of(request).services.messages.find_recipient(id_of(request))
    return visitor_page(
        request,
        "message.html",
        problem,
        listing=listing,
        seller=seller,
        message=message,
        is_sent=is_sent,
        max_length=MAX_LENGTH,
        trap=_TRAP,
    )
