"""Overview page of the console: key figures, recent activity and the next steps."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.account_limits import none_if_unlimited
from listings.domain.model import ApiKey
from listings.service import Services
from listings.service.history.usage import KeyUsage
from listings.service.members.sessions import Member
from listings.site import presentation
from listings.site.console.activity import describe_events
from listings.site.console.charts import build_chart
from listings.site.console.guards import console_page, for_member, has_plan
from listings.site.console.plan import find_request
from listings.site.context import site_of

_RECENT_EVENTS = 8


@for_member
async def show_overview(request: Request, member: Member) -> Response:
    """Show counts, the requests of the last 24 hours, recent activity and, for a new account, the first steps."""
    services, account = site_of(request).services, member.account
    usage = await services.usage.get(account)
    recent = await services.activity.list_page(account, count=_RECENT_EVENTS)
    return console_page(
        request,
        "overview.html",
        counts=await site_of(request).counts.get(services, member),
        max_listings=none_if_unlimited(services.listings.account_limits.listings),
        max_text_bytes=none_if_unlimited(services.listings.account_limits.text_bytes),
        usable_keys=sum(not services.keys.is_revoked_or_expired(one.key) for one in usage.keys),
        requests=usage.total.last_day,
        request_limit=presentation.format_request_limit(services.limiter),
        exhausted=_list_exhausted(services, usage.keys) if has_plan(request, member) else [],
        by_hour=build_chart(usage.total.hours, presentation.format_hour),
        requested_at=None if has_plan(request, member) else await find_request(request, member),
        events=await describe_events(services, member, recent),
    )


ROUTES = [Route("/console", show_overview)]


def _list_exhausted(services: Services, usages: Sequence[KeyUsage]) -> list[tuple[ApiKey, str]]:
    """Return the active keys that have reached the rate limit, and when each can be used again."""
    return [
        (one.key, presentation.format_wait(one.limit.reset))
        for one in usages
        if one.limit is not None and one.limit.remaining <= 0 and not services.keys.is_revoked_or_expired(one.key)
    ]
