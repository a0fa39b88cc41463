"""`listings list`, `show`, `delete` and `undelete`: an operator's access to sellers' listings."""

import click

from listings.cli.output import json_option, listing_data, print_message, show, show_rows
from listings.cli.parameters import ID, Integer
from listings.cli.service import with_service
from listings.domain.model import Listing
from listings.service import Services

_DEFAULT_LIMIT = 100


@click.command(name="list", short_help="List an account's listings.")
@click.argument("account")
@click.option(
    "--limit",
    type=Integer(1, 1_000_000),
    default=_DEFAULT_LIMIT,
    metavar="N",
    help=f"List at most N listings. Default: {_DEFAULT_LIMIT}",
)
@json_option
def list_listings(account: str, limit: int) -> None:
    """List the newest listings of ACCOUNT, including inactive and deleted ones.

    ACCOUNT is an account id or an email address. To list accounts, use `listings account list`.

    \b
    Example: listings list alice@example.com --limit 20
    """

    async def use(services: Services) -> list[Listing]:
        return await services.moderation.list_latest(await services.accounts.find(account), limit)

    rows = map(listing_data, with_service(use))
    columns = ("id", "state", "title", "type", "price", "view_count", "updated_at")
    show_rows(columns, rows)


@click.command(name="show", short_help="Show a listing.")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def show_listing(listing_id: int) -> None:
    """Show all fields of the listing ID.

    \b
    Example: listings show 1025
    """
    show(listing_data(with_service(lambda services: services.moderation.get(listing_id))))


@click.command(short_help="Delete a listing.")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def delete(listing_id: int) -> None:
    """Delete the listing ID for its owner.

    It is no longer on the market. Its owner can restore it, and so can `listings undelete`. To keep a listing off the
    market, use `listings takedown add`, or for all of a seller's listings `listings account disable`.

    \b
    Example: listings delete 1025
    """
    found = with_service(lambda services: services.moderation.get(listing_id))
    show(listing_data(with_service(lambda services: services.moderation.delete(listing_id))))
    if found.deleted_at is not None:
        print_message(f"Listing {listing_id} was already deleted")


@click.command(short_help="Restore a deleted listing.")
@click.argument("listing_id", metavar="ID", type=ID)
@click.option(
    "--active", is_flag=True, help="Restore it as active. By default it is inactive until its owner activates it."
)
@json_option
def undelete(listing_id: int, *, active: bool) -> None:
    """Restore the deleted listing ID.

    To restore the database from a backup, use `listings restore`.

    \b
    Example: listings undelete 1025
    """
    restored = with_service(lambda services: services.moderation.restore(listing_id, active=active))
    show(listing_data(restored))
