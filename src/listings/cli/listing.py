"""`listings list`, `show`, `delete`, `undelete`: the operator's work on sellers' listings, logged as the operator's."""

import click

from listings.cli.output import json_option, listing_data, show, show_rows
from listings.cli.parameters import with_service
from listings.domain.model import Listing
from listings.service import Service

_LISTING_ID = click.IntRange(1, 2**63 - 1)
_LISTED = 100


@click.command(name="list", short_help="List an account's listings.")
@click.argument("account")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=_LISTED,
    metavar="N",
    help=f"The newest N. Default: {_LISTED}",
)
@json_option
@click.pass_context
def list_listings(context: click.Context, account: str, limit: int, *, as_json: bool) -> None:
    """List the newest listings of ACCOUNT, inactive and deleted ones too.

    \b
    Example: listings list alice@example.com --limit 20
    """

    async def use(service: Service) -> list[Listing]:
        return await service.list_latest_listings(await service.find_account(account), limit)

    found = with_service(context, use)
    columns = ("id", "state", "title", "type", "price", "view_count", "updated_at")
    show_rows(columns, map(listing_data, found), as_json=as_json)


@click.command(name="show", short_help="Show a listing.")
@click.argument("listing_id", metavar="ID", type=_LISTING_ID)
@json_option
@click.pass_context
def show_listing(context: click.Context, listing_id: int, *, as_json: bool) -> None:
    """Show the listing ID with all that is stored of it.

    \b
    Example: listings show 1025
    """
    show(listing_data(with_service(context, lambda service: service.find_listing(listing_id))), as_json=as_json)


@click.command(short_help="Delete a listing for its owner.")
@click.argument("listing_id", metavar="ID", type=_LISTING_ID)
@json_option
@click.pass_context
def delete(context: click.Context, listing_id: int, *, as_json: bool) -> None:
    """Delete the listing ID, as its owner can: it is kept, and `listings undelete` brings it back.

    \b
    Example: listings delete 1025
    """
    show(listing_data(with_service(context, lambda service: service.delete_for_owner(listing_id))), as_json=as_json)


@click.command(short_help="Bring a deleted listing back.")
@click.argument("listing_id", metavar="ID", type=_LISTING_ID)
@click.option("--active", is_flag=True, help="Show it at once. Else it comes back inactive, for its owner to decide.")
@json_option
@click.pass_context
def undelete(context: click.Context, listing_id: int, *, active: bool, as_json: bool) -> None:
    """Bring the deleted listing ID back.

    \b
    Example: listings undelete 1025
    """
    opened = with_service(context, lambda service: service.restore_for_owner(listing_id, active=active))
    show(listing_data(opened), as_json=as_json)
