"""The page on which a visitor reports a listing to the operator."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service.mail.listing_reports import MAX_LENGTH, REASONS
from listings.site import cookies, security
from listings.site.console.guards import get_text
from listings.site.context import site_of
from listings.site.market import id_of
from listings.site.visitor import client_ip
from listings.site.visitor_forms import read_visitor_form, visitor_page

_PATH = "/listings/{id}/report"


async def show_form(request: Request) -> Response:
    """Show the form."""
    await cookies.member_of(request)
    return await _show(request)


async def send_report(request: Request) -> Response:
    """Report the listing."""
    form = await read_visitor_form(request)
    await cookies.member_of(request)
    reason, text = get_text(form, "reason"), get_text(form, "text")
    try:
        security.require_form_token(cookies.form_secret(request), form.get("token"))
        await site_of(request).services.listing_reports.add(id_of(request), reason, text, client_ip(request))
    except Problem as problem:
        return await _show(request, problem, reason=reason, text=text)
    return await _show(request, is_sent=True)


ROUTES = [Route(_PATH, show_form), Route(_PATH, send_report, methods=["POST"])]


async def _show(
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
        reasons=REASONS,
        reason=reason,
        text=text,
        max_length=MAX_LENGTH,
        is_sent=is_sent,
    )
