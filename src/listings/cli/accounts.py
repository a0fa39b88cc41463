"""`listings account`: create, list, show, disable and enable accounts, and set their plans.

The modules `members` and `changes` have its other commands.
"""

from functools import partial

import click

from listings.cli import changes, members
from listings.cli.group import SuggestingGroup, example
from listings.cli.output import (
    Data,
    account_data,
    format_timestamp_or_none,
    json_option,
    print_message,
    show,
    show_rows,
    status_data,
)
from listings.cli.parameters import DATE, Integer
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.domain.account_limits import UNLIMITED, none_if_unlimited
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import Services

_MONTHS = Integer(1, 12_000)
_LIMIT = Integer(0, 2**50)
_SYNONYMS = {
    "add": "create",
    "close": "disable",
    "delete": "erase",
    "extend": "plan",
    "get": "show",
    "ls": "list",
    "open": "enable",
    "reopen": "enable",
    "rm": "erase",
    "search": "list",
}


@click.group(cls=SuggestingGroup, synonyms=_SYNONYMS)
def account() -> None:
    """Manage accounts: their plans, access to the console, data and changes.

    ACCOUNT is an account id or an email address. Dates are in UTC.
    """


for command in (members.invite, members.erase, members.export, changes.changes, changes.undo):
    account.add_command(command)


@account.command(short_help="Create an account.")
@example('listings account create --name "Alice\'s Attic" --email alice@example.com --months 12')
@click.option("--name", required=True, help="The name of the account.")
@click.option("--email", required=True, help="Its email address, unique among accounts.")
@click.option("--months", type=_MONTHS, metavar="N", help="Start a Business plan that lasts N calendar months.")
@click.option("--until", type=DATE, metavar="DATE", help="Start a Business plan that ends on DATE.")
@json_option
def create(name: str, email: str, months: int | None, until: int | None) -> None:
    """Create an account, without a plan unless you give --months or --until."""
    if months is not None and until is not None:
        raise click.UsageError("Give --months or --until, not both.")

    async def use(services: Services) -> Account:
        end = timestamps.add_months(services.clock(), months) if months is not None else until
        return await services.accounts.add(name, email, end)

    show(account_data(with_service(use)))


@account.command(short_help="Start, extend or end an account's Business plan.")
@example("listings account plan alice@example.com --months 1")
@click.argument("account")
@click.option("--months", type=_MONTHS, metavar="N", help="Extend the plan by N months, from its end or from now.")
@click.option("--until", type=DATE, metavar="DATE", help="End the plan on DATE, which may be in the past.")
@click.option("--expire", is_flag=True, help="End the plan now.")
@click.option("--decline", metavar="REASON", help="Decline the seller's open request. The seller reads the reason.")
@click.option("--trial", is_flag=True, help="Start the trial of test mode now, for LISTINGS_TRIAL_DAYS.")
@json_option
def plan(
    account: str, months: int | None, until: int | None, decline: str | None, *, expire: bool, trial: bool
) -> None:
    """Start, extend or end the Business plan of ACCOUNT, or decline the seller's request for it.

    A later end of the plan closes the seller's open request. The seller gets an email, if mail is on, and sees the
    answer on the plan page.
    """
    if [months is not None, until is not None, decline is not None, expire, trial].count(True) != 1:
        raise click.UsageError("Give exactly one of --months, --until, --decline, --expire and --trial.")

    async def use(services: Services) -> Account:
        if months is not None:
            return await services.accounts.extend_plan(account, months)
        if decline is not None:
            owner = await services.accounts.find(account)
            if not await services.plan_requests.decline(owner, decline):
                raise Problem("invalid_request", f"Account {owner.id} has no open request for the Business plan")
            return owner
        if trial:
            owner = await services.accounts.find(account)
            test = await services.test_mode.start_trial(owner)
            print_message(f"Test keys work until {timestamps.format_timestamp(test.plan_expires_at or 0)} UTC")
            return owner
        return await (services.accounts.expire_plan(account) if expire else services.accounts.set_plan(account, until))

    show(account_data(with_service(use)))


@account.command(name="list", short_help="List accounts.")
@example("listings account list --search alice")
@click.option("--search", default="", metavar="TEXT", help="List those whose name or email contains TEXT.")
@click.option("--expired", is_flag=True, help="List those whose plan has ended.")
@click.option("--largest", is_flag=True, help="List the ten that store most, with their bytes.")
@click.option("--requests", is_flag=True, help="List those that request the Business plan, oldest first.")
@json_option
def list_accounts(*, search: str, expired: bool, largest: bool, requests: bool) -> None:
    """List all accounts, or only some of them.

    Answer a request with `listings account plan`: --months or --until grants it, --decline declines it.
    """
    if largest + requests + bool(search or expired) > 1:
        raise click.UsageError("Give --largest, --requests, or --search and --expired.")
    columns = ("id", "name", "email", "plan_expires_at")
    if requests:
        show_rows((*columns, "requested_at"), with_service(_list_requests))
    elif largest:
        show_rows((*columns, "stored_bytes", "picture_bytes"), with_service(_list_largest))
    else:
        found = with_service(partial(_list_accounts, text=search.casefold(), expired=expired))
        show_rows((*columns, "disabled_at"), found)


async def _list_accounts(services: Services, text: str, *, expired: bool) -> list[Data]:
    now = services.clock()
    return [
        status_data(account)
        async for account in services.accounts.iterate()
        if (text in account.name.casefold() or text in account.email)
        and not (expired and (account.plan_expires_at is None or account.plan_expires_at > now))
    ]


async def _list_largest(services: Services) -> list[Data]:
    _, report = await services.reports.build()
    owners = [await services.accounts.find(account_id) for account_id in report.largest_accounts]
    return [
        {
            **account_data(owner),
            "stored_bytes": (await services.listings.count(owner)).stored_bytes,
            "picture_bytes": (await services.pictures.measure(owner.id))[0],
        }
        for owner in owners
    ]


async def _list_requests(services: Services) -> list[Data]:
    return [
        {**account_data(request.account), "requested_at": timestamps.format_timestamp(request.requested_at)}
        for request in await services.plan_requests.list_open()
    ]


@account.command(name="show", short_help="Show an account.")
@example("listings account show alice@example.com")
@click.argument("account")
@json_option
def show_account(account: str) -> None:
    """Show ACCOUNT: its listings, keys, plan request, requests of the last 24 hours, and the bytes that it stores."""

    async def use(services: Services) -> Data:
        owner = await services.accounts.find(account)
        usable = [key for key in await services.keys.list_of(owner) if not services.keys.is_revoked_or_expired(key)]
        day = await services.usage.count_last_day(owner)
        return {
            **status_data(owner),
            "plan_requested_at": format_timestamp_or_none(await services.plan_requests.find_open(owner)),
            "public_contact": owner.public_contact,
            "usable_keys": len(usable),
            "requests": day.responses,
            "rejected_requests": day.rejected,
            **await _describe_size(services, owner),
        }

    show(with_service(use))


async def _describe_size(services: Services, owner: Account) -> Data:
    counts, limits = await services.listings.count(owner), await services.listings.get_limits(owner)
    picture_bytes, max_picture_bytes = await services.pictures.measure(owner.id)
    return {
        "active_listings": counts.active,
        "inactive_listings": counts.inactive,
        "deleted_listings": counts.deleted,
        "max_listings": none_if_unlimited(limits.listings),
        "text_bytes": counts.text_bytes,
        "max_text_bytes": none_if_unlimited(limits.text_bytes),
        "stored_bytes": counts.stored_bytes,
        "max_stored_bytes": none_if_unlimited(min(limits.compute_budget(counts.text_bytes), UNLIMITED)),
        "picture_bytes": picture_bytes,
        "max_picture_bytes": none_if_unlimited(max_picture_bytes),
    }


@account.command(short_help="Set an account's own limits.")
@example("listings account limits alice@example.com --listings 500000 --bytes 5000000000")
@click.argument("account")
@click.option("--listings", type=_LIMIT, metavar="N", help="Instead of LISTINGS_MAX_ACCOUNT_LISTINGS.")
@click.option("--bytes", "text_bytes", type=_LIMIT, metavar="N", help="Instead of LISTINGS_MAX_ACCOUNT_BYTES.")
@click.option("--stored", type=_LIMIT, metavar="N", help="Instead of LISTINGS_MAX_ACCOUNT_STORED_BYTES.")
@click.option("--pictures", type=_LIMIT, metavar="N", help="Instead of LISTINGS_MAX_ACCOUNT_PICTURE_BYTES.")
@json_option
def limits(
    account: str, listings: int | None, text_bytes: int | None, stored: int | None, pictures: int | None
) -> None:
    """Set the limits of ACCOUNT that differ from the settings. 0 means the same as in the setting.

    Limits that are not given are those of the settings.
    """
    own = (UNLIMITED if listings == 0 else listings, UNLIMITED if text_bytes == 0 else text_bytes, stored)

    async def use(services: Services) -> Data:
        owner = await services.accounts.find(account)
        await services.accounts.set_limits(owner, own)
        await services.pictures.set_limit(owner.id, UNLIMITED if pictures == 0 else pictures)
        return {"id": owner.id, **await _describe_size(services, owner)}

    show(with_service(use))


@account.command(short_help="Disable an account.")
@example("listings account disable alice@example.com")
@click.argument("account")
@json_option
def disable(account: str) -> None:
    """Disable ACCOUNT: reject its keys with 403, sign its owner out, and hide its listings from the market.

    Nothing is deleted.

    `listings account enable` reverses this.
    """
    show(status_data(with_service(lambda services: services.accounts.disable(account))))


@account.command(short_help="Enable a disabled account.")
@example("listings account enable alice@example.com")
@click.argument("account")
@json_option
def enable(account: str) -> None:
    """Enable the disabled ACCOUNT, so that its keys work again."""
    show(status_data(with_service(lambda services: services.accounts.enable(account))))
