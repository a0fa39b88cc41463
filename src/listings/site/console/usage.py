"""Usage page: requests by key, hour, day and status, and the rejected requests."""

from http import HTTPStatus
from math import ceil
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.service import Services
from listings.service.sessions import Member
from listings.service.usage import KeyUsage
from listings.site import presentation
from listings.site.console.charts import build_chart
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_MICROSECOND = 1_000_000
_MINUTE = 60


class HourlyUsage(NamedTuple):
    """A key's requests in the last hour, and when more are possible."""

    name: str
    hint: str
    used: int
    limit: int
    note: str


@for_member
async def show_usage(request: Request, member: Member) -> Response:
    """Show the last hour, the last 24 hours and 30 days, responses by status, and rejected requests."""
    services = site_of(request).services
    usage = await services.usage.get(member.account)
    return console_page(
        request,
        "usage.html",
        usage=usage,
        is_limited=services.limiter is not None,
        hours=_hourly_usages(services, usage.keys),
        by_hour=build_chart(usage.total.hours, presentation.format_hour),
        by_day=build_chart(usage.total.days, presentation.format_utc_day),
        statuses=[(status, _phrase(status), count) for status, count in usage.total.by_status.items()],
        keys={one.key.id: one.key for one in usage.keys},
        rejected=[(one, one.moment // _MICROSECOND) for one in usage.rejected_requests],
    )


ROUTES = [Route("/console/usage", show_usage)]


def _hourly_usages(services: Services, keys: list[KeyUsage]) -> list[HourlyUsage]:
    """Return the usage of each active key, newest key first."""
    limit = services.limiter.limit if services.limiter is not None else 0
    return [
        HourlyUsage(
            one.key.name,
            one.key.hint,
            limit - one.limit.left,
            limit,
            _limit_note(one.limit.left, limit, one.limit.reset),
        )
        for one in reversed(keys)
        if one.limit is not None and not services.keys.is_revoked_or_expired(one.key)
    ]


def _limit_note(left: int, limit: int, reset: float) -> str:
    if left == limit:
        return "No requests in the last hour."
    minutes = ceil(reset / _MINUTE)
    wait = "in less than a minute" if minutes <= 1 else f"in {minutes} minutes"
    if left <= 0:
        return f"Limit reached. Next request {wait}."
    return f"{left:,} remaining. The oldest request stops counting {wait}."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
