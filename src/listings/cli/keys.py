"""`listings key`: make keys, list, rotate and revoke them."""

from typing import BinaryIO

import click

from listings import service as use_cases
from listings.cli import unwritten
from listings.cli.output import Data, json_option, key_data, listed_key_data, show, show_rows, tell
from listings.cli.parameters import Date, with_service
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.service import IssuedKey, Service

_MOST_READ = 4096
_LONGEST_GRACE = 24 * 365
KEY_ID = click.IntRange(1, 2**63 - 1)


@click.group()
def key() -> None:
    """API keys. ACCOUNT is an id or an e-mail address; dates are UTC."""


@key.command()
@click.argument("account")
@click.option("--name", required=True, help="What the key is for.")
@click.option("--expires", type=Date(), metavar="DATE", help="The key is good until just before DATE.")
@click.option(
    "--key-file",
    type=click.File("rb"),
    metavar="FILE|-",
    help="Take over the key in FILE; - reads it from standard input.",
)
@json_option
@click.pass_context
def create(
    context: click.Context,
    account: str,
    name: str,
    expires: int | None,
    key_file: BinaryIO | None,
    *,
    as_json: bool,
) -> None:
    """Make a key for ACCOUNT, which needs a current Business plan, and print it: it is shown this once.

    \b
    Example: listings key create alice@example.com --name warehouse
    """
    secret = _read_key(key_file) if key_file is not None else None

    async def use(service: Service) -> IssuedKey:
        if secret is None:
            return await service.issue_key(account, name, expires)
        return await service.import_key(account, name, secret, expires)

    _show_issued(with_service(context, use), as_json=as_json)


@key.command(name="list")
@click.argument("account")
@json_option
@click.pass_context
def list_keys(context: click.Context, account: str, *, as_json: bool) -> None:
    """List the keys of ACCOUNT, ended ones too. When one was last used is a minute behind at most.

    \b
    Example: listings key list alice@example.com
    """

    async def use(service: Service) -> list[Data]:
        return [listed_key_data(key) for key in await service.list_keys(await service.find_account(account))]

    columns = ("id", "hint", "name", "created_at", "last_used_at", "expires_at", "revoked_at")
    show_rows(columns, with_service(context, use), as_json=as_json)


@key.command()
@click.argument("key_id", type=KEY_ID)
@click.option(
    "--grace",
    type=click.IntRange(0, _LONGEST_GRACE),
    metavar="HOURS",
    default=24,
    help="For how many hours the old key goes on working; 0 ends it now. Default: 24",
)
@json_option
@click.pass_context
def rotate(context: click.Context, key_id: int, grace: int, *, as_json: bool) -> None:
    """Make a key in place of KEY_ID, with its name and expiry, and print it: it is shown this once.

    \b
    Example: listings key rotate 7 --grace 48
    """
    issued = with_service(context, lambda service: service.rotate_key(key_id, grace * 3600))
    _show_issued(issued, as_json=as_json)
    if issued.key.expires_at is not None:
        tell(f"It expires as the old one was to: {timestamps.format_timestamp(issued.key.expires_at)}")


@key.command()
@click.argument("key_id", type=KEY_ID)
@json_option
@click.pass_context
def revoke(context: click.Context, key_id: int, *, as_json: bool) -> None:
    """End the key KEY_ID at once and for good.

    \b
    Example: listings key revoke 7
    """
    revoked = with_service(context, lambda service: service.revoke_key(key_id))
    if as_json:
        show(key_data(revoked), as_json=True)
    tell(f"Key {revoked.id}, {revoked.hint}, is revoked.")


def _show_issued(issued: IssuedKey, *, as_json: bool) -> None:
    try:
        if as_json:
            show(key_data(issued.key, issued.secret), as_json=True)
        else:
            click.echo(issued.secret)
    except OSError as error:
        lost = f"key {issued.key.id} was made and its text is lost: end it with `listings key revoke {issued.key.id}`"
        raise Problem("unavailable", f"{unwritten(error)}; {lost}") from None


def _read_key(file: BinaryIO) -> str:
    """The key in a file, without the space around it."""
    try:
        return file.read(_MOST_READ).decode("ascii").strip()
    except UnicodeDecodeError:
        raise Problem("invalid_request", use_cases.INVALID_KEY_MESSAGE) from None
