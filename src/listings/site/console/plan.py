"""The Business plan: until when it holds, how it is renewed, and what the payment provider tells."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.service import Member
from listings.service.payments.manual import MAX_MONTHS, MONTHLY_CENTS, NextStep
from listings.site import pages
from listings.site.console.guards import console_page, for_member, read_form, text_of
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_HERE = "/console/plan"


@for_member
async def show_plan(request: Request, member: Member) -> Response:
    """The plan; where the operator takes the money, how that is done."""
    service = site_of(request).service
    step = None
    if service.payments.name == "manual":
        step = await service.start_checkout(member.account, 1, base_url_of(request) + _HERE)
    return _page(request, step)


@for_member
async def renew_plan(request: Request, member: Member) -> Response:
    """To the provider's page, by a link: a form's answer must not lead to another site."""
    months = text_of(await read_form(request), "months")
    number = int(months) if months in map(str, range(1, MAX_MONTHS + 1)) else 0
    try:
        step = await site_of(request).service.start_checkout(member.account, number, base_url_of(request) + _HERE)
    except Problem as problem:
        return _page(request, None, problem)
    return _page(request, step)


async def receive_event(request: Request) -> Response:
    """What the payment provider tells, which its signature proves; no person sends this."""
    service = site_of(request).service
    if request.path_params["provider"] != service.payments.name:
        raise Problem("path_not_found", "There is no such payment provider here")
    try:
        await service.receive_payment(
            {name.lower(): value for name, value in request.headers.items()}, await request.body()
        )
    except Problem as problem:
        return PlainTextResponse(f"{problem.message}\n", pages.status_of(problem))
    return PlainTextResponse("received\n")


ROUTES = [
    Route(_HERE, show_plan),
    Route(_HERE, renew_plan, methods=["POST"]),
    Route("/payments/{provider}/webhook", receive_event, methods=["POST"]),
]


def _page(request: Request, step: NextStep | None, problem: Problem | None = None) -> Response:
    service = site_of(request).service
    return console_page(
        request,
        "plan.html",
        problem=problem,
        step=step,
        by_hand=service.payments.name == "manual",
        monthly_cents=MONTHLY_CENTS,
        months=[1, 3, 6, 12, 24],
    )
