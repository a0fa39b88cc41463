"""`listings key`: create, list, rotate and revoke API keys."""

from collections.abc import Awaitable, Callable
from typing import BinaryIO, get_args

import click

from listings.cli import describe_output_error
from listings.cli.group import SuggestingGroup, example
from listings.cli.output import Data, json_option, key_data, listed_key_data, print_message, show_json, show_rows
from listings.cli.parameters import DATE, ID, Integer
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import KeyAccess
from listings.service import Services
from listings.service.keys import INVALID_KEY_MESSAGE, IssuedKey

_MAX_KEY_FILE_BYTES = 4096
_MAX_GRACE_HOURS = 24 * 365
_SYNONYMS = {"add": "create", "delete": "revoke", "disable": "revoke", "ls": "list", "rm": "revoke"}


@click.group(cls=SuggestingGroup, synonyms=_SYNONYMS)
def key() -> None:
    """Manage API keys.

    ACCOUNT is an account id or an email address. Dates are in UTC.
    """


@key.command(short_help="Create a key.")
@example("listings key create alice@example.com --name warehouse")
@click.argument("account")
@click.option("--name", required=True, help="The name of the key, such as the program that uses it.")
@click.option("--expires", type=DATE, metavar="DATE", help="The date on which the key stops working.")
@click.option(
    "--access",
    type=click.Choice(get_args(KeyAccess)),
    default="write",
    help="With read, the key can send GET and HEAD only. Default: write",
)
@click.option(
    "--key-file",
    type=click.File("rb"),
    metavar="FILE|-",
    help="Register the existing key in FILE, or on standard input (-), instead of creating one.",
)
@click.option("--test", "is_test", is_flag=True, help="Create a key of test mode, which needs a plan or a trial.")
@json_option
def create(
    account: str, name: str, expires: int | None, access: KeyAccess, key_file: BinaryIO | None, *, is_test: bool
) -> None:
    """Create a key for ACCOUNT and print it. It is shown only once.

    The account needs an active Business plan.
    """
    if is_test and key_file is not None:
        raise click.UsageError("Give --test or --key-file, not both.")
    secret = _read_key(key_file) if key_file is not None else None

    async def use(services: Services) -> IssuedKey:
        if is_test:
            owner = await services.accounts.find(account)
            return await services.test_mode.create_key(owner, name, expires, access=access)
        return await services.keys.create(account, name, expires, secret, access=access)

    _issue(use)


@key.command(name="list", short_help="List an account's keys.")
@example("listings key list alice@example.com")
@click.argument("account")
@json_option
def list_keys(account: str) -> None:
    """List the keys of ACCOUNT, including expired and revoked ones, and those of its test mode.

    The time of last use may be up to a minute old.
    """

    async def use(services: Services) -> list[Data]:
        owner = await services.accounts.find(account)
        owners = [one for one in (owner, await services.test_mode.find(owner)) if one is not None]
        return [listed_key_data(key) for one in owners for key in await services.keys.list_of(one)]

    columns = ("id", "hint", "name", "access", "created_at", "last_used_at", "expires_at", "revoked_at")
    show_rows(columns, with_service(use))


@key.command(short_help="Replace a key with a new one.")
@example("listings key rotate 7 --grace 48")
@click.argument("key_id", type=ID)
@click.option(
    "--grace",
    type=Integer(0, _MAX_GRACE_HOURS),
    metavar="HOURS",
    default=24,
    help="The number of hours for which the old key keeps working; 0 ends it now. Default: 24",
)
@json_option
def rotate(key_id: int, grace: int) -> None:
    """Replace the key KEY_ID with a new one and print that. It is shown only once.

    The new key has the name, the access and the expiry date of the old one.
    """
    issued = _issue(lambda services: services.keys.rotate(key_id, grace * 3600))
    if issued.key.expires_at is not None:
        expiry = timestamps.format_timestamp(issued.key.expires_at)
        print_message(f"It expires at {expiry}, as the old key did before the rotation")


@key.command(short_help="Revoke a key.")
@example("listings key revoke 7")
@click.argument("key_id", type=ID)
@json_option
def revoke(key_id: int) -> None:
    """Revoke the key KEY_ID immediately and permanently."""
    revoked = with_service(lambda services: services.keys.revoke(key_id))
    show_json(key_data(revoked))
    print_message(f"Revoked key {revoked.id} ({revoked.hint})")


def _issue(use: Callable[[Services], Awaitable[IssuedKey]]) -> IssuedKey:
    try:
        issued = with_service(use)
    except KeyboardInterrupt:
        advice = "see `listings key list` for a new key that was not shown, and revoke it"
        raise Problem("unavailable", f"Stopped: {advice}") from None
    try:
        if not show_json(key_data(issued.key, issued.secret)):
            click.echo(issued.secret)
    except OSError as error:
        lost = f"key {issued.key.id} was created but could not be printed: run `listings key revoke {issued.key.id}`"
        raise Problem("unavailable", f"{describe_output_error(error)}; {lost}") from None
    return issued


def _read_key(file: BinaryIO) -> str:
    try:
        return file.read(_MAX_KEY_FILE_BYTES).decode("ascii").strip()
    except UnicodeDecodeError:
        raise Problem("invalid_request", INVALID_KEY_MESSAGE) from None
