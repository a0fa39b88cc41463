"""The operator's page: requests for the plan, reports of listings, unsent mail and takedowns."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import NamedTuple

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.audience import ListingReport, Takedown
from listings.domain.errors import Problem
from listings.domain.fields import parse_id
from listings.domain.model import Account
from listings.service import Services
from listings.service.accounts import MAX_REASON_LENGTH
from listings.service.mail.listing_reports import REASONS
from listings.service.members.sessions import Member
from listings.service.payments.provider import MAX_MONTHS
from listings.site.console.guards import Page, console_page, for_member, get_text, read_form, redirect_with_notice
from listings.site.console.keys import confirm
from listings.site.context import site_of
from listings.telemetry.logs import bind_operator

_log = logging.getLogger(__name__)

_PATH = "/operator"
_SHOWN = 50  # reports, and takedowns
_ANSWERED = "This request is already answered"


class _Subject(NamedTuple):
    found: ListingReport | Takedown
    account: Account
    title: str  # of the listing, or "" if that was removed


async def show_inbox(request: Request, member: Member, problem: Problem | None = None) -> Response:  # noqa: ARG001 - as others
    """Show what needs an operator, the oldest first."""
    services = site_of(request).services
    reports, takedowns = await services.listing_reports.list_open(), await services.moderation.list_takedowns()
    return console_page(
        request,
        "operator.html",
        problem=problem,
        plan_requests=await services.plan_requests.list_open(),
        reports=[await _describe(services, one) for one in reports[:_SHOWN]],
        report_count=len(reports),
        unsent=await services.mailer.list_given_up(),
        takedowns=[await _describe(services, one) for one in takedowns[:_SHOWN]],
        takedown_count=len(takedowns),
        hidden={one.listing_id for one in takedowns},
        reasons=REASONS,
        max_shown=_SHOWN,
        max_months=MAX_MONTHS,
        max_reason_length=MAX_REASON_LENGTH,
    )


async def _enter_code(request: Request, member: Member) -> Response:
    operators, form = site_of(request).services.operators, await read_form(request)
    await operators.has_session(member)  # others get the same page as for an unknown path
    confirmation = await confirm(request, member, form)
    try:
        with bind_operator(member.account.email):
            await operators.sign_in(confirmation.require(), get_text(form, "code"))
    except Problem as problem:
        return await _show_code_form(request, confirmation.member, problem)
    return redirect_with_notice(request, _PATH, "operator")


async def answer_request(services: Services, form: FormData, operator: str) -> str:  # noqa: ARG001 - as others
    """Start the plan of an account, or decline its request. A form that is sent twice has no request left to answer."""
    number, months = get_text(form, "account"), get_text(form, "months")
    requests = await services.plan_requests.list_open()
    account = next((one.account for one in requests if str(one.account.id) == number), None)
    if account is None:
        raise Problem("invalid_request", _ANSWERED)
    if get_text(form, "action") == "decline":
        if not await services.plan_requests.decline(account, get_text(form, "reason")):
            raise Problem("invalid_request", _ANSWERED)
        return "plan-declined"
    if months not in map(str, range(1, MAX_MONTHS + 1)):
        raise Problem("invalid_request", f"Enter a number of months from 1 to {MAX_MONTHS}")
    await services.accounts.extend_plan(str(account.id), int(months), account)
    _log.info("Extended the plan of account %d by months: %s", account.id, months)
    return "plan-started"


async def _close_report(services: Services, form: FormData, operator: str) -> str:  # noqa: ARG001 - as others
    await services.listing_reports.close(get_text(form, "report"))
    _log.info("Closed a report")
    return "report-closed"


async def _take_down(services: Services, form: FormData, operator: str) -> str:
    listing_id = parse_id(get_text(form, "listing")) or 0
    try:
        await services.moderation.take_down(listing_id, get_text(form, "reason"), operator)
    except Problem:
        if not form.get("report") or await services.moderation.find_takedown(listing_id) is None:
            raise  # unless it was taken down meanwhile
    if form.get("report"):
        with suppress(Problem):  # another operator may have closed it
            await services.listing_reports.close(get_text(form, "report"))
    return "taken-down"


async def _lift(services: Services, form: FormData, operator: str) -> str:  # noqa: ARG001 - as others
    await services.moderation.lift(parse_id(get_text(form, "listing")) or 0)
    return "lifted"


def _for_operator(act: Callable[[Services, FormData, str], Awaitable[str]] | None) -> Page:
    # For operators who have entered a code. An action returns the name of a notice. The log names the operator.

    @wraps(act or show_inbox)
    async def page(request: Request, member: Member) -> Response:
        services, operator = site_of(request).services, member.account.email
        if not await services.operators.has_session(member):
            return await _show_code_form(request, member)
        if act is None:
            return await show_inbox(request, member)
        with bind_operator(operator):
            try:
                return redirect_with_notice(request, _PATH, await act(services, await read_form(request), operator))
            except Problem as problem:
                return await show_inbox(request, member, problem)

    return for_member(page)


ROUTES = [
    Route(_PATH, _for_operator(None)),
    Route(f"{_PATH}/code", for_member(_enter_code), methods=["POST"]),
    Route(f"{_PATH}/plan", _for_operator(answer_request), methods=["POST"]),
    Route(f"{_PATH}/report", _for_operator(_close_report), methods=["POST"]),
    Route(f"{_PATH}/takedown", _for_operator(_take_down), methods=["POST"]),
    Route(f"{_PATH}/lift", _for_operator(_lift), methods=["POST"]),
]


async def _show_code_form(request: Request, member: Member, problem: Problem | None = None) -> Response:
    is_confirmed = site_of(request).services.sessions.is_confirmed(member)
    return console_page(request, "operator_code.html", problem=problem, is_confirmed=is_confirmed)


async def _describe(services: Services, found: ListingReport | Takedown) -> _Subject:
    title = ""
    with suppress(Problem):
        title = (await services.moderation.get(found.listing_id)).title
    return _Subject(found, await services.accounts.find(str(found.account_id)), title)
