"""The console's first page: how things stand, and what to do next."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.service import Member
from listings.site import presentation
from listings.site.console.activity import told
from listings.site.console.charts import chart_of
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_LATEST = 8


@for_member
async def show_overview(request: Request, member: Member) -> Response:
    """Numbers, the last day as bars, what was done last; for a new account the steps to its first listing."""
    service, account = site_of(request).service, member.account
    usage = await service.get_usage(account)
    latest = await service.list_activity(account, count=_LATEST)
    return console_page(
        request,
        "overview.html",
        counts=await site_of(request).counts.of(service, member),
        usable_keys=sum(not service.is_key_revoked_or_expired(one.key) for one in usage.keys),
        requests=usage.total.last_day,
        by_hour=chart_of(usage.total.hours, presentation.hour_of),
        events=await told(service, account, latest),
    )


ROUTES = [Route("/console", show_overview)]
