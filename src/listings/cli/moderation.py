"""`listings list`, `show`, `delete`, `undelete`, `takedown`, `picture` and `inbox`: what sellers publish and report."""

import click

from listings.cli.group import example
from listings.cli.output import Data, json_option, listing_data, print_message, show, show_rows
from listings.cli.parameters import ID, Integer
from listings.cli.service import get_operator, with_service
from listings.domain.audience import Takedown
from listings.domain.model import Listing
from listings.domain.timestamps import format_timestamp
from listings.service import Services

_DEFAULT_LIMIT = 100


@click.command(name="list", short_help="List an account's listings.")
@example("listings list alice@example.com --limit 20")
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
    """

    async def use(services: Services) -> list[Listing]:
        return await services.moderation.list_latest(await services.accounts.find(account), limit)

    rows = map(listing_data, with_service(use))
    columns = ("id", "state", "title", "type", "price", "view_count", "updated_at")
    show_rows(columns, rows)


@click.command(name="show", short_help="Show a listing.")
@example("listings show 1025")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def show_listing(listing_id: int) -> None:
    """Show all fields of the listing ID."""
    show(listing_data(with_service(lambda services: services.moderation.get(listing_id))))


@click.command(short_help="Delete a listing.")
@example("listings delete 1025")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def delete(listing_id: int) -> None:
    """Delete the listing ID for its owner.

    It is no longer on the market. Its owner can restore it, and so can `listings undelete`. To keep a listing off the
    market, use `listings takedown add`, or for all of a seller's listings `listings account disable`.
    """
    found = with_service(lambda services: services.moderation.get(listing_id))
    show(listing_data(with_service(lambda services: services.moderation.delete(listing_id))))
    if found.deleted_at is not None:
        print_message(f"Listing {listing_id} was already deleted")


@click.command(short_help="Restore a deleted listing.")
@example("listings undelete 1025")
@click.argument("listing_id", metavar="ID", type=ID)
@click.option(
    "--active", is_flag=True, help="Restore it as active. By default it is inactive until its owner activates it."
)
@json_option
def undelete(listing_id: int, *, active: bool) -> None:
    """Restore the deleted listing ID.

    To restore the database from a backup, use `listings restore`.
    """
    restored = with_service(lambda services: services.moderation.restore(listing_id, active=active))
    show(listing_data(restored))


@click.group()
def takedown() -> None:
    """Hide listings from the public, and show them again."""


@takedown.command(short_help="Hide a listing from the public.")
@example('listings takedown add 1025 --reason "It is a copy of listing 1026"')
@click.argument("listing_id", metavar="ID", type=ID)
@click.option("--reason", required=True, metavar="TEXT", help="Why. The seller reads it.")
@json_option
def add(listing_id: int, reason: str) -> None:
    """Hide the listing ID from all public pages, with its uploaded pictures, until `listings takedown lift`.

    In the API, nothing changes. The owner sees the reason in the console, and gets it by email if mail is on. Pictures
    stay visible only if another active listing of the account, which is not taken down, shows them. Copies of the
    others in caches can stay visible for a day, and in browsers that have loaded them for a year.
    """
    operator = get_operator()
    show(_takedown_data(with_service(lambda services: services.moderation.take_down(listing_id, reason, operator))))


@takedown.command(short_help="Show a listing that was taken down again.")
@example("listings takedown lift 1025")
@click.argument("listing_id", metavar="ID", type=ID)
@json_option
def lift(listing_id: int) -> None:
    """Show the listing ID to the public again, after `listings takedown add`. The owner gets an email, if mail is on."""  # noqa: E501
    show(_takedown_data(with_service(lambda services: services.moderation.lift(listing_id))))


@takedown.command(name="list", short_help="List the listings that are taken down.")
@example("listings takedown list")
@json_option
def list_takedowns() -> None:
    """List the listings that are taken down, the latest first."""
    rows = map(_takedown_data, with_service(lambda services: services.moderation.list_takedowns()))
    show_rows(("listing_id", "account_id", "operator", "taken_down_at", "reason"), rows)


def _takedown_data(found: Takedown) -> Data:
    row = found._asdict()
    taken_down_at = format_timestamp(row.pop("created_at"))
    return {**row, "taken_down_at": taken_down_at}


@click.group()
def picture() -> None:
    """Delete pictures that sellers have uploaded."""


@picture.command(name="delete", short_help="Delete a picture.")
@example("listings picture delete https://market.example/media/0123456789abcdef0123456789abcdef.jpg --block")
@click.argument("url")
@click.option("--block", is_flag=True, help="Reject the same file from now on, from every account.")
@json_option
def delete_picture(url: str, *, block: bool) -> None:
    """Permanently delete the picture with this URL or name, also if listings show it.

    Copies in caches can stay visible for a day, and in browsers that have loaded it for a year.
    """

    async def use(services: Services) -> Data:
        found, listings = await services.pictures.remove(url, block=block)
        shown = ", ".join(map(str, listings)) or None
        return {"deleted": found.name, "account": found.account_id, "shown_in": shown, "blocked": block}

    show(with_service(use))


@click.command(short_help="List requests, reports and emails that need you.")
@example("listings inbox")
@click.option("--close", "closed", metavar="ID", help="Close a report of a listing.")
@json_option
def inbox(closed: str | None) -> None:
    """List requests for the Business plan, reports of listings, and emails of 30 days that could not be sent.

    Answer a request with `listings account plan`: --months or --until grants it, --decline declines it. Close a
    report with the id that its subject begins with. The log says why an email could not be sent. It can't be sent
    again, because its text is deleted: fix the cause, then ask the recipient to request a new link, or to sign in.
    """
    if closed is not None:
        with_service(lambda services: services.listing_reports.close(closed))
    else:
        show_rows(("kind", "since", "account", "email", "subject"), with_service(_list_inbox))


async def _list_inbox(services: Services) -> list[Data]:
    rows = [
        _build_row("plan request", one.requested_at, one.account.id, one.account.email, "")
        for one in await services.plan_requests.list_open()
    ]
    rows += [
        _build_row("unsent mail", one.created_at, one.account_id, one.recipient, one.kind.replace("_", " "))
        for one in await services.mailer.list_given_up()
    ]
    for one in await services.listing_reports.list_open():
        email = (await services.accounts.find(str(one.account_id))).email
        text = f"{one.id} listing {one.listing_id}: {one.reason}{one.text and f' ({one.text})'}"
        rows.append(_build_row("report", one.created_at, one.account_id, email, text))
    return rows


def _build_row(kind: str, since: int, account_id: int | None, email: str, subject: str) -> Data:
    account = str(account_id or "")
    return {"kind": kind, "since": format_timestamp(since), "account": account, "email": email, "subject": subject}
