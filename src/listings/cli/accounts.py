"""`listings account`: create, list, show, disable and enable accounts and set plans; `members` has the rest."""

import click

from listings.cli import members
from listings.cli.output import Data, account_data, json_option, show, show_rows, status_data
from listings.cli.parameters import Date, with_service
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import Service

_MONTHS = click.IntRange(1, 12_000)


@click.group()
def account() -> None:
    """Manage accounts and their plans. ACCOUNT is an id or an email address; dates are UTC."""


for command in (members.invite, members.erase, members.export):
    account.add_command(command)


@account.command()
@click.option("--name", required=True, help="The name of the account.")
@click.option("--email", required=True, help="Its email address, unique among accounts.")
@click.option("--months", type=_MONTHS, metavar="N", help="Start a Business plan that lasts N calendar months.")
@click.option("--until", type=Date(), metavar="DATE", help="Start a Business plan that ends at DATE.")
@json_option
@click.pass_context
def create(
    context: click.Context, name: str, email: str, months: int | None, until: int | None, *, as_json: bool
) -> None:
    """Create an account, without a plan unless you give --months or --until.

    \b
    Example: listings account create --name "Alice's Attic" --email alice@example.com --months 12
    """
    if months is not None and until is not None:
        raise click.UsageError("Give --months or --until, not both.")

    async def use(service: Service) -> Account:
        end = _end(service, months) if months is not None else until
        return await service.add_account(name, email, end)

    show(account_data(with_service(context, use)), as_json=as_json)


@account.command()
@click.argument("account")
@click.option("--months", type=_MONTHS, metavar="N", help="Extend the plan by N months, from its end or from now.")
@click.option("--until", type=Date(), metavar="DATE", help="End the plan at DATE, which may be in the past.")
@click.option("--expire", is_flag=True, help="End the plan now.")
@json_option
@click.pass_context
def plan(
    context: click.Context,
    account: str,
    months: int | None,
    until: int | None,
    *,
    expire: bool,
    as_json: bool,
) -> None:
    """Set when the Business plan of ACCOUNT ends.

    \b
    Example: listings account plan alice@example.com --months 1
    """
    if [months is not None, until is not None, expire].count(True) != 1:
        raise click.UsageError("Give one of --months, --until and --expire.")

    async def use(service: Service) -> Account:
        if months is not None:
            return await service.extend_plan(account, months)
        return await (service.expire_plan(account) if expire else service.set_plan(account, until))

    show(account_data(with_service(context, use)), as_json=as_json)


@account.command(name="list")
@json_option
@click.pass_context
def list_accounts(context: click.Context, *, as_json: bool) -> None:
    """List all accounts.

    \b
    Example: listings account list
    """

    async def use(service: Service) -> list[Data]:
        return [status_data(account) async for account in service.list_accounts()]

    show_rows(("id", "name", "email", "plan_expires_at", "disabled_at"), with_service(context, use), as_json=as_json)


@account.command(name="show")
@click.argument("account")
@json_option
@click.pass_context
def show_account(context: click.Context, account: str, *, as_json: bool) -> None:
    """Show ACCOUNT with its number of listings and usable keys.

    \b
    Example: listings account show alice@example.com
    """

    async def use(service: Service) -> Data:
        found = await service.find_account(account)
        counts = await service.count_listings(found)
        usable = [key for key in await service.list_keys(found) if not service.is_key_revoked_or_expired(key)]
        return {
            **status_data(found),
            "usable_keys": len(usable),
            "active_listings": counts.active,
            "inactive_listings": counts.inactive,
            "deleted_listings": counts.deleted,
        }

    show(with_service(context, use), as_json=as_json)


@account.command()
@click.argument("account")
@json_option
@click.pass_context
def disable(context: click.Context, account: str, *, as_json: bool) -> None:
    """Reject all keys of ACCOUNT with 403 until it is enabled, and sign its owner out. Nothing is deleted.

    \b
    Example: listings account disable alice@example.com
    """
    show(status_data(with_service(context, lambda service: service.disable_account(account))), as_json=as_json)


@account.command()
@click.argument("account")
@json_option
@click.pass_context
def enable(context: click.Context, account: str, *, as_json: bool) -> None:
    """Enable a disabled ACCOUNT: its keys work again.

    \b
    Example: listings account enable alice@example.com
    """
    show(status_data(with_service(context, lambda service: service.enable_account(account))), as_json=as_json)


def _end(service: Service, months: int) -> int:
    try:
        return timestamps.add_months(service.clock(), months)
    except ValueError as error:
        raise Problem("invalid_request", str(error)) from None
