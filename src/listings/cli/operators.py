"""`listings operator`: who may open the operator's page."""

import click

from listings.cli.group import example
from listings.cli.output import Data, json_option, show, show_rows
from listings.cli.service import with_service
from listings.domain.model import Account
from listings.domain.timestamps import format_timestamp
from listings.service import Services


@click.group()
def operator() -> None:
    """Choose who may open the operator's page (LISTINGS_OPERATOR_PAGE)."""


@operator.command(short_help="Make an account's owner an operator.")
@example("listings operator add alice@example.com")
@click.argument("account")
@json_option
def add(account: str) -> None:
    """Make the owner of ACCOUNT an operator, and print the secret of the second factor once.

    Enter the secret or the link in an authenticator app. If the secret is lost, run the command again: the new secret
    replaces it.
    """
    added = with_service(lambda services: services.operators.add(account))
    show({**_data(added.account), "secret": added.secret, "link": added.link})


@operator.command(short_help="Remove an operator.")
@example("listings operator remove alice@example.com")
@click.argument("account")
@json_option
def remove(account: str) -> None:
    """Remove the operator ACCOUNT immediately. The account itself stays as it is."""
    show(_data(with_service(lambda services: services.operators.remove(account))))


@operator.command(name="list", short_help="List the operators.")
@example("listings operator list")
@json_option
def list_operators() -> None:
    """List the operators, with the time of each second factor."""

    async def use(services: Services) -> list[Data]:
        found = await services.operators.list_all()
        return [{**_data(account), "added_at": format_timestamp(added_at)} for account, added_at in found]

    show_rows(("account_id", "name", "email", "added_at"), with_service(use))


def _data(account: Account) -> Data:
    return {"account_id": account.id, "name": account.name, "email": account.email}
