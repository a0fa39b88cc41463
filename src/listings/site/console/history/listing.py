"""History page of a listing: its changes, newest first."""

from itertools import groupby
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain import fields
from listings.domain.changes import Change
from listings.domain.model import MAX_ID
from listings.service.members.sessions import Member
from listings.site.console.activity import describe_actor
from listings.site.console.costly import costly
from listings.site.console.guards import LISTINGS_PATH, console_page
from listings.site.console.history.describe import ChangedListing, describe_change
from listings.site.console.listings.edit import get_own_listing
from listings.site.console.paging import turn_pages
from listings.site.context import site_of

_PAGE_SIZE = 20  # change sets


class _Entry(NamedTuple):
    """What a change set did to the listing."""

    id: int
    moment: int
    who: str
    is_undo: bool
    change: ChangedListing


@costly("pages of changes")
async def show_history(request: Request, member: Member) -> Response:
    """Show a page of the changes of a listing."""
    services, listing = site_of(request).services, await get_own_listing(request, member)
    before = fields.parse_id(request.query_params.get("before", "")) or MAX_ID
    page = await services.changes.read_of_listing(listing.id, before, _PAGE_SIZE)
    keys = {key.id: key for key in await services.keys.list_of(member.account)}
    entries = [_describe(one, describe_actor(one.actor, keys)) for one in page.changes]
    return console_page(
        request,
        "listing_history.html",
        listing=listing,
        change_sets=[(number, list(group)) for number, group in groupby(entries, lambda entry: entry.id)],
        is_first=before == MAX_ID,
        days=services.changes.days,
        turns=turn_pages(request, "before", str(entries[-1].id) if page.more and entries else ""),
    )


def _describe(change: Change, who: str) -> _Entry:
    described = describe_change(change, {}, max_fields=None)
    return _Entry(change.edit_revision, change.moment, who, change.kind == "reverted", described)


ROUTES = [Route(f"{LISTINGS_PATH}/{{id}}/history", show_history)]
