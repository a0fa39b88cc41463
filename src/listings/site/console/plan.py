"""Plan page: the state of the Business plan and its payment, and the webhook of the payment provider."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from listings.domain.accounts import PlanRequestState
from listings.domain.errors import Problem
from listings.service import Services
from listings.service.members.sessions import Member
from listings.service.payments.provider import MAX_MONTHS, ManualPayments
from listings.site import pages, presentation
from listings.site.console.guards import console_page, for_member, get_text, read_form, redirect_with_notice
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_PATH = "/console/plan"


async def _show_plan(
    request: Request, member: Member, payment_url: str = "", *, problem: Problem | None = None
) -> Response:
    services = site_of(request).services
    return console_page(
        request,
        "plan.html",
        problem=problem,
        payment_url=payment_url,
        is_manual=_is_manual(services),
        request_limit=presentation.format_request_limit(services.limiter),
        requested=await find_request(request, member),
        invoices=await services.payments.list_invoiced(member.account),
        months=[1, 3, 6, 12, 24],
    )


@for_member
async def _renew_plan(request: Request, member: Member) -> Response:
    months = get_text(await read_form(request), "months")
    count = int(months) if months in map(str, range(1, MAX_MONTHS + 1)) else 0
    try:
        payments = site_of(request).services.payments
        url = await payments.start_checkout(member.account, count, base_url_of(request) + _PATH)
    except Problem as problem:
        return await _show_plan(request, member, problem=problem)
    # The policy `form-action 'self'` does not allow a redirect to the payment provider after a form.
    return await _show_plan(request, member, url)


@for_member
async def _show_invoice(request: Request, member: Member) -> Response:
    payments = site_of(request).services.payments
    return RedirectResponse(await payments.find_invoice(member.account, request.path_params["id"]), 303)


@for_member
async def _request_plan(request: Request, member: Member) -> Response:
    services = site_of(request).services
    if not _is_manual(services):
        raise Problem("path_not_found", "Pay for the plan on its page")
    await services.plan_requests.add(member.account)
    return redirect_with_notice(request, _PATH, "plan-requested")


async def _receive_event(request: Request) -> Response:
    services = site_of(request).services
    if request.path_params["provider"] != services.payments.provider_name:
        raise Problem("path_not_found", "This payment provider is not configured")
    try:
        await services.payments.receive(request.headers, request.body)  # checks the signature
    except Problem as problem:
        return PlainTextResponse(f"{problem.message}\n", pages.status_of(problem))
    return PlainTextResponse("received\n")


ROUTES = [
    Route(_PATH, for_member(_show_plan)),
    Route(_PATH, _renew_plan, methods=["POST"]),
    Route(f"{_PATH}/invoices/{{id}}", _show_invoice),
    Route(f"{_PATH}/request", _request_plan, methods=["POST"]),
    Route("/payments/{provider}/webhook", _receive_event, methods=["POST"]),
]


async def find_request(request: Request, member: Member) -> PlanRequestState | None:
    """Return the member's request for the plan, which is open or declined, or None."""
    services = site_of(request).services
    return await services.plan_requests.find(member.account) if _is_manual(services) else None


def _is_manual(services: Services) -> bool:
    return services.payments.provider_name == ManualPayments.name
