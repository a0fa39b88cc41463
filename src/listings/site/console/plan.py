"""Plan page: the state of the Business plan and its payment, and the webhook of the payment provider."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service.payments.provider import MAX_MONTHS, NextStep
from listings.service.sessions import Member
from listings.site import pages
from listings.site.console.guards import console_page, for_member, get_text, read_form
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_PATH = "/console/plan"


@for_member
async def show_plan(request: Request, member: Member) -> Response:
    """Show the plan and, if the operator takes payments, how to pay."""
    services = site_of(request).services
    step = None
    if services.payments.provider_name == "manual":
        step = await services.payments.start_checkout(member.account, 1, base_url_of(request) + _PATH)
    return _page(request, step)


@for_member
async def renew_plan(request: Request, member: Member) -> Response:
    """Show a link to the payment page.

    The policy `form-action 'self'` does not allow a redirect to the payment provider after a form.
    """
    months = get_text(await read_form(request), "months")
    count = int(months) if months in map(str, range(1, MAX_MONTHS + 1)) else 0
    try:
        step = await site_of(request).services.payments.start_checkout(
            member.account, count, base_url_of(request) + _PATH
        )
    except Problem as problem:
        return _page(request, None, problem)
    return _page(request, step)


async def receive_event(request: Request) -> Response:
    """Process an event of the payment provider, which is authenticated by its signature."""
    services = site_of(request).services
    if request.path_params["provider"] != services.payments.provider_name:
        raise Problem("path_not_found", "This payment provider is not configured")
    try:
        await services.payments.receive(
            {name.lower(): value for name, value in request.headers.items()}, await request.body()
        )
    except Problem as problem:
        return PlainTextResponse(f"{problem.message}\n", pages.status_of(problem))
    return PlainTextResponse("received\n")


ROUTES = [
    Route(_PATH, show_plan),
    Route(_PATH, renew_plan, methods=["POST"]),
    Route("/payments/{provider}/webhook", receive_event, methods=["POST"]),
]


def _page(request: Request, step: NextStep | None, problem: Problem | None = None) -> Response:
    services = site_of(request).services
    return console_page(
        request,
        "plan.html",
        problem=problem,
        step=step,
        is_manual=services.payments.provider_name == "manual",
        months=[1, 3, 6, 12, 24],
    )
