"""`listings key`: make keys and revoke them."""

from typing import BinaryIO

import click

from listings import service as use_cases
from listings.cli.output import json_option, key_data, show, tell
from listings.cli.parameters import Date, with_service
from listings.errors import Problem
from listings.service import IssuedKey, Service

_MOST_READ = 4096


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
def add(
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
    Example: listings key add alice@example.com --name warehouse
    """
    secret = _read_key(key_file) if key_file is not None else None

    async def use(service: Service) -> IssuedKey:
        if secret is None:
            return await service.issue_key(account, name, expires)
        return await service.register_key(account, name, secret, expires)

    issued = with_service(context, use)
    if as_json:
        show(key_data(issued.key, issued.secret), as_json=True)
    else:
        click.echo(issued.secret)


@key.command()
@click.argument("key_id", type=click.IntRange(1, 2**63 - 1))
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


def _read_key(file: BinaryIO) -> str:
    """The key in a file, without the space around it."""
    try:
        return file.read(_MOST_READ).decode("ascii").strip()
    except UnicodeDecodeError:
        raise Problem("invalid_request", use_cases.WRONG_KEY) from None
