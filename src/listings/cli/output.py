"""What commands print: for people a line a field, for programs JSON."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import click
import msgspec

from listings import dates
from listings.model import Account, ApiKey

Data: TypeAlias = Mapping[str, str | int | list[str] | None]
C = TypeVar("C", bound=Callable[..., Any])


def json_option(command: C) -> C:
    """The --json flag of every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print the data as one line of JSON.")(command)


def show(data: Data, *, as_json: bool) -> None:
    """Print data on standard output."""
    if as_json:
        click.echo(msgspec.json.encode(data))
        return
    width = max(map(len, data)) + 2
    for name, value in data.items():
        text = "-" if value is None else ", ".join(value) if isinstance(value, list) else value
        click.echo(f"{name:<{width}}{text}")


def tell(sentence: str) -> None:
    """Say something to the person on standard error."""
    click.echo(sentence, err=True)


def account_data(account: Account) -> Data:
    """An account as commands print it. Its plan is "business" from the day it had one; see when it ends."""
    return {
        "id": account.id,
        "name": account.name,
        "email": account.email,
        "plan": "none" if account.plan_expires_at is None else "business",
        "plan_expires_at": _date(account.plan_expires_at),
        "created_at": _date(account.created_at),
    }


def key_data(key: ApiKey, secret: str | None = None) -> Data:
    """A key as commands print it: a new one with its secret, any other by its hint and whether it is revoked."""
    data: dict[str, str | int | list[str] | None] = {"id": key.id}
    data |= {"hint": key.hint} if secret is None else {"key": secret}
    data |= {
        "name": key.name,
        "account_id": key.account_id,
        "created_at": _date(key.created_at),
        "expires_at": _date(key.expires_at),
    }
    return data if secret is not None else data | {"revoked_at": _date(key.revoked_at)}


def _date(moment: int | None) -> str | None:
    return None if moment is None else dates.text_of(moment)
