"""Overview page of the console: what buyers did, recent activity and the next steps."""

from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Unavailable
from listings.domain.imports import ImportProgress
from listings.domain.listings import MAX_COUNTED
from listings.domain.model import ApiKey, ListingCounts
from listings.domain.number_text import format_count
from listings.domain.timestamps import DAY_SECONDS, HOUR_SECONDS
from listings.service import Services
from listings.service.history.usage import KeyUsage, Period
from listings.service.members.sessions import Member
from listings.site import presentation
from listings.site.console.activity import describe_events
from listings.site.console.charts import build_chart
from listings.site.console.guards import console_page, for_member, has_plan
from listings.site.console.listings.search import SHOWN, Search
from listings.site.console.plan import find_request
from listings.site.context import site_of

_RECENT_EVENTS = 8
_RECENT_IMPORTS = 5
_MAX_READ = 10_000
_CHART_DAYS, _WEEK_DAYS = 30, 7
_NEAR_LIMIT = 0.8  # from which share on a limit is shown


@for_member
async def _show_overview(request: Request, member: Member) -> Response:
    services, account = site_of(request).services, member.account
    usage = await services.usage.get(account)
    limits = await services.listings.get_limits(account)
    counts = await site_of(request).counts.get(services, member)
    picture_bytes, max_picture_bytes = await services.pictures.measure(account.id)
    days = await services.messages.list_days(account, _CHART_DAYS)
    views = [Period(one.day * DAY_SECONDS, {HTTPStatus.OK: one.views}) for one in days]
    recent = await services.activity.list_page(account, count=_RECENT_EVENTS)
    return console_page(
        request,
        "overview.html",
        counts=counts,
        days=days,
        by_day=build_chart(views, presentation.format_utc_day, unit="view"),
        attention=await _list_attention(services, member, counts),
        drafts=await _count(services, member, counts, "drafts") if has_plan(request, member) else 0,
        max_listings=_show_if_near(counts.active + counts.inactive, limits.listings),
        max_text_bytes=_show_if_near(counts.text_bytes, limits.text_bytes),
        picture_bytes=picture_bytes,
        max_picture_bytes=_show_if_near(picture_bytes, max_picture_bytes),
        usable_keys=sum(not services.keys.is_revoked_or_expired(one.key) for one in usage.keys),
        requests=usage.total.last_day,
        request_limit=presentation.format_request_limit(services.limiter),
        exhausted=_list_exhausted(services, usage.keys) if has_plan(request, member) else [],
        requested=None if has_plan(request, member) else await find_request(request, member),
        events=await describe_events(services, member, recent),
    )


ROUTES = [Route("/console", _show_overview)]


async def _list_attention(services: Services, member: Member, counts: ListingCounts) -> list[tuple[str, str]]:
    found = []
    for show, (label, status) in SHOWN.items():
        number = await _count(services, member, counts, show) if status == "active" else 0
        if number:
            counted = presentation.format_bounded_count(number, "listing", MAX_COUNTED)
            found.append((f"{counted} {label[0].lower()}{label[1:]}", Search(show=show).url()))
    imports = await services.transfer.list_imports(member.account, _RECENT_IMPORTS)
    return found + [(text, "/console/import") for one in imports if (text := _describe_failure(one, services.clock()))]


def _describe_failure(one: ImportProgress, now: float) -> str:
    name = one.name or "an import"
    if one.started_at < now - _WEEK_DAYS * DAY_SECONDS:
        return ""
    if one.finished_at is None:
        return f"The import of {name} was interrupted" if one.started_at < now - HOUR_SECONDS else ""
    return f"{format_count(one.rejected, 'row')} of {name} rejected" if one.rejected else ""


async def _count(services: Services, member: Member, counts: ListingCounts, show: str) -> int:
    status = SHOWN[show][1]  # many listings are not counted, because that may read all of them
    if not 0 < (counts.active if status == "active" else counts.inactive) <= _MAX_READ:
        return 0
    query, _ = Search(show=show, status=status).query(services.clock())
    with suppress(Unavailable):
        page = await services.listings.find_page_of_any_size(member.caller, replace(query, limit=1, count=True))
        return page.total or 0
    return 0  # it takes too long


def _show_if_near(count: int, limit: int) -> int | None:
    return limit if count >= _NEAR_LIMIT * limit else None


def _list_exhausted(services: Services, usages: Sequence[KeyUsage]) -> list[tuple[ApiKey, str]]:
    return [
        (one.key, presentation.format_wait(one.limit.reset))
        for one in usages
        if one.limit is not None and one.limit.remaining <= 0 and not services.keys.is_revoked_or_expired(one.key)
    ]
