"""Messages page of the console: what buyers wrote, with a link that replies by email."""

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.audience import Message
from listings.service.mail.messages import LATEST
from listings.service.members.sessions import Member
from listings.site.console.guards import console_page, for_member
from listings.site.console.paging import turn_pages
from listings.site.context import site_of

_PATH = "/console/messages"
_PAGE_SIZE = 25
_CURSOR = re.compile(r"([0-9]{1,12})-([0-9a-f]{16})")


@for_member
async def _show_messages(request: Request, member: Member) -> Response:
    services = site_of(request).services
    found = _CURSOR.fullmatch(request.query_params.get("before", ""))
    before = (int(found[1]), found[2]) if found is not None else LATEST
    page = await services.messages.list_page(member.account, before, _PAGE_SIZE + 1)
    shown = page[:_PAGE_SIZE]
    ids = [message.listing_id for message in shown if message.listing_id]
    titles = {0: member.account.name, **await services.listings.find_titles(member.caller, ids)}
    return console_page(
        request,
        "messages.html",
        messages=[_describe(one, titles.get(one.listing_id, "")) for one in shown],
        days=services.messages.days,
        turns=turn_pages(request, "before", f"{shown[-1].created_at}-{shown[-1].id}" if len(page) > _PAGE_SIZE else ""),
        is_first=found is None,
    )


ROUTES = [Route(_PATH, _show_messages)]


def _describe(message: Message, title: str) -> tuple[Message, str, str]:
    return message, title, f"mailto:{quote(message.email, safe='@')}?subject={quote(f'Re: {title}')}"
