"""Usage page: requests by key, hour, day and status, and the rejected requests."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.history import RejectedRequest
from listings.domain.rate_limiter import RateLimitDecision
from listings.domain.timestamps import HOUR_SECONDS, MICROSECONDS_PER_SECOND
from listings.service.members.sessions import Member
from listings.site import presentation
from listings.site.console.charts import build_chart
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_ID = re.compile(r"/[0-9]+(?=/|$)")


@for_member
async def _show_usage(request: Request, member: Member) -> Response:
    services = site_of(request).services
    usage = await services.usage.get(member.account)
    limiter = services.limiter
    limit, window = (limiter.limit, presentation.format_period(limiter.window)) if limiter is not None else (0, "hour")
    chosen = next((one for one in usage.keys if str(one.key.id) == request.query_params.get("key")), None)
    is_hourly = limiter is not None and limiter.window == HOUR_SECONDS
    is_one_key = chosen is not None or len(usage.keys) == 1
    counts = chosen.counts if chosen is not None else usage.total
    rejected = [one for one in usage.rejected_requests if chosen is None or one.key_id == chosen.key.id]
    return console_page(
        request,
        "usage.html",
        usage=usage,
        limit=limit,
        window=window,
        hours=[
            (one.key, limit - one.limit.remaining, _describe_limit(one.limit, limit, window))
            for one in reversed(usage.keys)
            if one.limit is not None and not services.keys.is_revoked_or_expired(one.key)
        ],
        chosen=chosen,
        by_hour=build_chart(counts.hours, presentation.format_hour, limit if is_hourly and is_one_key else 0),
        by_day=build_chart(counts.days, presentation.format_utc_day),
        statuses=[(status, _phrase(status), count) for status, count in counts.by_status.items()],
        keys={one.key.id: one.key for one in usage.keys},
        groups=_group(rejected),
    )


ROUTES = [Route("/console/usage", _show_usage)]


class _Group(NamedTuple):
    number: int
    last: RejectedRequest
    seconds: int


def _group(rejected: Sequence[RejectedRequest]) -> list[_Group]:
    groups = dict[tuple[object, ...], list[RejectedRequest]]()
    for one in rejected:
        path = _ID.sub("/{id}", one.path)  # requests with other ids are equal, too
        groups.setdefault((one.code, one.reason, one.method, path, one.key_id), []).append(one)
    return [_Group(len(it), it[0], it[0].microseconds // MICROSECONDS_PER_SECOND) for it in groups.values()]


def _describe_limit(now: RateLimitDecision, limit: int, window: str) -> str:
    if now.remaining == limit:
        return f"No requests in the last {window}."
    wait = presentation.format_wait(now.reset)
    if now.remaining <= 0:
        return f"Limit reached. Next request {wait}."
    return f"{now.remaining:,} remaining. The oldest request stops counting {wait}."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
