"""Usage: what the keys have asked, and what was refused."""

from http import HTTPStatus
from math import ceil
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.service import Member, Service
from listings.service.usage import KeyUsage
from listings.site import presentation
from listings.site.console.charts import chart_of
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_MICROSECOND = 1_000_000
_MINUTE = 60


class Hour(NamedTuple):
    """How much of its limit a key has used in the hour up to now, and what comes next."""

    name: str
    hint: str
    used: int
    limit: int
    told: str


@for_member
async def show_usage(request: Request, member: Member) -> Response:
    """The last hour, day and 30 days, answers by status, and refused requests."""
    service = site_of(request).service
    usage = await service.get_usage(member.account)
    return console_page(
        request,
        "usage.html",
        usage=usage,
        is_limited=service.limiter is not None,
        hours=hours_of(service, usage.keys),
        by_hour=chart_of(usage.total.hours, presentation.hour_of),
        by_day=chart_of(usage.total.days, presentation.utc_day_of),
        statuses=[(status, _phrase(status), count) for status, count in usage.total.by_status.items()],
        keys={one.key.id: one.key for one in usage.keys},
        refusals=[(one, one.moment // _MICROSECOND) for one in usage.rejected_requests],
    )


ROUTES = [Route("/console/usage", show_usage)]


def hours_of(service: Service, keys: list[KeyUsage]) -> list[Hour]:
    """The keys that can be used, with what is left of their hour."""
    limit = service.limiter.limit if service.limiter is not None else 0
    return [
        Hour(one.key.name, one.key.hint, limit - one.limit.left, limit, _told(one.limit.left, limit, one.limit.reset))
        for one in reversed(keys)
        if one.limit is not None and not service.is_key_revoked_or_expired(one.key)
    ]


def _told(left: int, limit: int, reset: float) -> str:
    if left == limit:
        return "Nothing was asked in the last hour."
    minutes = ceil(reset / _MINUTE)
    soon = "in less than a minute" if minutes <= 1 else f"in {minutes} minutes"
    if left <= 0:
        return f"Used up: the next request is accepted {soon}."
    return f"{left:,} left; the first of those used is free again {soon}."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
