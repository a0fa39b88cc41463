"""`listings account`: create, list, show, disable and enable accounts, and set their plans.

The modules `members` and `changes` have its other commands.
"""

import click

from listings.cli import changes, members
from listings.cli.group import SuggestingGroup
from listings.cli.output import Data, account_data, json_option, show, show_rows, status_data
from listings.cli.parameters import DATE, Integer
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.domain.account_limits import none_if_unlimited
from listings.domain.model import Account
from listings.service import Services

_MONTHS = Integer(1, 12_000)
_SYNONYMS = {"add": "create", "close": "disable", "delete": "erase", "get": "show", "ls": "list", "rm": "erase"}


@click.group(cls=SuggestingGroup, synonyms=_SYNONYMS)
def account() -> None:
    """Manage accounts: their plans, access to the console, data and changes.

    ACCOUNT is an account id or an email address. Dates are in UTC.
    """


for command in (members.invite, members.erase, members.export, changes.changes, changes.undo):
    account.add_command(command)


@account.command(short_help="Create an account.")
@click.option("--name", required=True, help="The name of the account.")
@click.option("--email", required=True, help="Its email address, unique among accounts.")
@click.option("--months", type=_MONTHS, metavar="N", help="Start a Business plan that lasts N calendar months.")
@click.option("--until", type=DATE, metavar="DATE", help="Start a Business plan that ends on DATE.")
@json_option
def create(name: str, email: str, months: int | None, until: int | None) -> None:
    """Create an account, without a plan unless you give --months or --until.

    \b
    Example: listings account create --name "Alice's Attic" --email alice@example.com --months 12
    """
    if months is not None and until is not None:
        raise click.UsageError("Give --months or --until, not both.")

    async def use(services: Services) -> Account:
        end = timestamps.add_months(services.clock(), months) if months is not None else until
        return await services.accounts.add(name, email, end)

    show(account_data(with_service(use)))


@account.command(short_help="Start, extend or end an account's Business plan.")
@click.argument("account")
@click.option("--months", type=_MONTHS, metavar="N", help="Extend the plan by N months, from its end or from now.")
@click.option("--until", type=DATE, metavar="DATE", help="End the plan on DATE, which may be in the past.")
@click.option("--expire", is_flag=True, help="End the plan now, or decline a request for it.")
@json_option
def plan(
    account: str,
    months: int | None,
    until: int | None,
    *,
    expire: bool,
) -> None:
    """Start, extend or end the Business plan of ACCOUNT.

    A later end of the plan, and --expire, close the seller's open request.

    \b
    Example: listings account plan alice@example.com --months 1
    """
    if [months is not None, until is not None, expire].count(True) != 1:
        raise click.UsageError("Give exactly one of --months, --until and --expire.")

    async def use(services: Services) -> Account:
        if months is not None:
            return await services.accounts.extend_plan(account, months)
        return await (services.accounts.expire_plan(account) if expire else services.accounts.set_plan(account, until))

    show(account_data(with_service(use)))


@account.command(name="list", short_help="List all accounts.")
@click.option("--requests", is_flag=True, help="List only accounts that request the Business plan, oldest first.")
@json_option
def list_accounts(*, requests: bool) -> None:
    """List all accounts, or those that request the Business plan.

    Answer a request with `listings account plan`: --months or --until grants it, --expire declines it.

    \b
    Example: listings account list
    """
    columns = ("id", "name", "email", "plan_expires_at")
    if requests:
        show_rows((*columns, "requested_at"), with_service(_list_requests))
    else:
        show_rows((*columns, "disabled_at"), with_service(_list_accounts))


async def _list_accounts(services: Services) -> list[Data]:
    return [status_data(account) async for account in services.accounts.iterate()]


async def _list_requests(services: Services) -> list[Data]:
    return [
        {**account_data(request.account), "requested_at": timestamps.format_timestamp(request.requested_at)}
        for request in await services.plan_requests.list_open()
    ]


@account.command(name="show", short_help="Show an account.")
@click.argument("account")
@json_option
def show_account(account: str) -> None:
    """Show ACCOUNT, the numbers of its listings and active keys, and the size of its text with the limit.

    \b
    Example: listings account show alice@example.com
    """

    async def use(services: Services) -> Data:
        owner = await services.accounts.find(account)
        counts, limits = await services.listings.count(owner), services.listings.account_limits
        usable = [key for key in await services.keys.list_of(owner) if not services.keys.is_revoked_or_expired(key)]
        return {
            **status_data(owner),
            "public_contact": owner.public_contact,
            "usable_keys": len(usable),
            "active_listings": counts.active,
            "inactive_listings": counts.inactive,
            "deleted_listings": counts.deleted,
            "max_listings": none_if_unlimited(limits.listings),
            "text_bytes": counts.text_bytes,
            "max_text_bytes": none_if_unlimited(limits.text_bytes),
        }

    show(with_service(use))


@account.command(short_help="Disable an account.")
@click.argument("account")
@json_option
def disable(account: str) -> None:
    """Disable ACCOUNT: reject its keys with 403, sign its owner out, and hide its listings from the market.

    Nothing is deleted.

    `listings account enable` reverses this.

    \b
    Example: listings account disable alice@example.com
    """
    show(status_data(with_service(lambda services: services.accounts.disable(account))))


@account.command(short_help="Enable a disabled account.")
@click.argument("account")
@json_option
def enable(account: str) -> None:
    """Enable the disabled ACCOUNT, so that its keys work again.

    \b
    Example: listings account enable alice@example.com
    """
    show(status_data(with_service(lambda services: services.accounts.enable(account))))
