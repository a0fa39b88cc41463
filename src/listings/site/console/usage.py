"""Usage page: requests by key, hour, day and status, and the rejected requests."""

from http import HTTPStatus
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.service.members.sessions import Member
from listings.site import presentation
from listings.site.console.charts import build_chart
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_MICROSECOND = 1_000_000
_MINUTE = 60


@for_member
async def show_usage(request: Request, member: Member) -> Response:
    """Show the last hour, the last 24 hours and 30 days, responses by status, and rejected requests.

    The parameter `key` selects the requests of one key.
    """
    services = site_of(request).services
    usage = await services.usage.get(member.account)
    limit = services.limiter.limit if services.limiter is not None else 0
    chosen = next((one for one in usage.keys if str(one.key.id) == request.query_params.get("key")), None)
    counts = chosen.counts if chosen is not None else usage.total
    rejected = [one for one in usage.rejected_requests if chosen is None or one.key_id == chosen.key.id]
    return console_page(
        request,
        "usage.html",
        usage=usage,
        limit=limit,
        hours=[
            (one.key, limit - one.limit.left, _describe_limit(one.limit.left, limit, one.limit.reset))
            for one in reversed(usage.keys)
            if one.limit is not None and not services.keys.is_revoked_or_expired(one.key)
        ],
        chosen=chosen,
        by_hour=build_chart(counts.hours, presentation.format_hour, limit if chosen or len(usage.keys) == 1 else 0),
        by_day=build_chart(counts.days, presentation.format_utc_day),
        statuses=[(status, _phrase(status), count) for status, count in counts.by_status.items()],
        keys={one.key.id: one.key for one in usage.keys},
        rejected=[(one, one.moment // _MICROSECOND) for one in rejected],
    )


ROUTES = [Route("/console/usage", show_usage)]


def _describe_limit(left: int, limit: int, reset: float) -> str:
    """Return how many more requests are possible, or when."""
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
