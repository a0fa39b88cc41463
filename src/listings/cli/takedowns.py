"""`listings takedown`: hide listings from the public."""

import click

from listings.cli.output import Data, json_option, show, show_rows
from listings.cli.parameters import ID
from listings.cli.service import get_operator, with_service
from listings.domain.audience import Takedown
from listings.domain.timestamps import format_timestamp


@click.group()
def takedown() -> None:
    """Hide listings from the public, and show them again."""


@takedown.command(short_help="Hide a listing from the public.")
@click.argument("listing_id", metavar="ID", type=ID)
@click.option("--reason", required=True, metavar="TEXT", help="Why. The seller reads it.")
@json_option
def add(listing_id: int, reason: str) -> None:
    """Hide the listing ID from all public pages, with its uploaded pictures, until `listings takedown lift`.

    In the API, nothing changes. The owner sees the reason in the console, and gets it by email if mail is on. Pictures
    stay visible only if another active listing of the account, which is not taken down, shows them. Copies of the
    others in caches can stay visible for a day, and in browsers that have loaded them for a year.

    \b
    Example: listings takedown add 1025 --reason "It is a copy of listing 1026"
    """
    operator = get_operator()
    show(_takedown_data(with_service(lambda services: services.moderation.take_down(listing_id, reason, operator))))


@takedown.command(short_help="Show a listing that was taken down again.")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def lift(listing_id: int) -> None:
    """Show the listing ID to the public again, after `listings takedown add`. The owner gets an email, if mail is on.

    \b
    Example: listings takedown lift 1025
    """
    show(_takedown_data(with_service(lambda services: services.moderation.lift(listing_id))))


@takedown.command(name="list", short_help="List the listings that are taken down.")
@json_option
def list_takedowns() -> None:
    """List the listings that are taken down, the latest first.

    \b
    Example: listings takedown list
    """
    rows = map(_takedown_data, with_service(lambda services: services.moderation.list_takedowns()))
    show_rows(("listing_id", "account_id", "operator", "taken_down_at", "reason"), rows)


def _takedown_data(found: Takedown) -> Data:
    row = found._asdict()
    taken_down_at = format_timestamp(row.pop("created_at"))
    return {**row, "taken_down_at": taken_down_at}
