"""Output of commands: text or a table for people, JSON for programs."""

import os
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import click
import msgspec

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.history import CONSOLE, OPERATOR
from listings.domain.listing_json import OPTIONAL_LISTING_FIELDS, build_record
from listings.domain.model import Account, ApiKey, Listing
from listings.files import replace_file

Value: TypeAlias = str | float | bool | list[str] | Mapping[str, int] | None
Data: TypeAlias = Mapping[str, Value]
C = TypeVar("C", bound=Callable[..., Any])

ACTOR_NAMES = {OPERATOR: "operator", CONSOLE: "console"}
"""The actors that are not API keys."""

_AS_JSON = "listings.cli.as_json"  # in the metadata of click's context
_MAX_WIDTH = 10_000  # columns of a table that is not printed on a terminal
_CONTROL = {"Cc", "Cf", "Zl", "Zp"}  # categories of characters
_JOINER = "\N{ZERO WIDTH JOINER}"  # a control character that is part of many emoji


def json_option(command: C) -> C:
    """Add the --json flag to a command that prints data. The functions below obey it."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({_AS_JSON: value}),
        help="Print JSON, one line per row.",
    )(command)


def show_json(data: Data) -> bool:
    """Print data as JSON if the command was given --json. Return whether it was."""
    if is_json_wanted():
        click.echo(msgspec.json.encode(data))
    return is_json_wanted()


def is_json_wanted() -> bool:
    """Return whether the command was given --json."""
    return bool(click.get_current_context().meta[_AS_JSON])


def show(data: Data) -> None:
    """Print data on standard output: JSON, or a line for each value."""
    if show_json(data):
        return
    width = max(map(len, data)) + 2
    for name, value in data.items():
        click.echo(f"{name:<{width}}{_format(name, value)}")


def show_rows(names: tuple[str, ...], rows: Iterable[Data], styles: Mapping[str, str] | None = None) -> None:
    """Print rows on standard output: one line of JSON each, or a table of the named values.

    `styles` maps cell texts to terminal styles, such as {"fault": "bold red"}.
    """
    if is_json_wanted():
        for row in rows:
            click.echo(msgspec.json.encode(row))
        return
    from rich.console import Console  # noqa: PLC0415 - rich takes a fifth of the start of a command without a table
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        cells = [_format(name, row[name]) for name in names]
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in cells))
    if sys.stdout.isatty():
        Console(file=sys.stdout).print(table)
        return
    console = Console(file=sys.stdout, width=_MAX_WIDTH)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().split("\n")), nl=False)


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yields a callback that takes (done, total)."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_message(message: str) -> None:
    """Print a message on standard error."""
    click.echo(_text(message), err=True)


def print_dry_run() -> None:
    """Print on standard error that the command was a dry run."""
    print_message("This was a dry run: nothing was written")


def account_data(account: Account) -> Data:
    """Return an account as commands print it. `plan` is "business" once it had one, even if it has expired."""
    return {
        "id": account.id,
        "name": account.name,
        "email": account.email,
        "plan": "none" if account.plan_expires_at is None else "business",
        "plan_expires_at": format_timestamp_or_none(account.plan_expires_at),
        "created_at": format_timestamp_or_none(account.created_at),
    }


def status_data(account: Account) -> Data:
    """Return an account with the date on which it was disabled."""
    return {**account_data(account), "disabled_at": format_timestamp_or_none(account.disabled_at)}


def listing_data(listing: Listing) -> Data:
    """Return all stored fields of a listing, named as in the API."""
    record = msgspec.json.decode(msgspec.json.encode(build_record(listing, OPTIONAL_LISTING_FIELDS)))
    fields = (*FIELDS, "view_count", "created_at", "updated_at", "deleted_at")
    return {
        "id": listing.id,
        "account_id": listing.account_id,
        "state": "deleted" if listing.deleted_at is not None else "active" if listing.is_active else "inactive",
        **{name: record[name] for name in fields},
    }


def listed_key_data(key: ApiKey) -> Data:
    """Return a key as `listings key list` prints it."""
    return {**key_data(key), "last_used_at": format_timestamp_or_none(key.last_used_at)}


def key_data(key: ApiKey, secret: str | None = None) -> Data:
    """Return a key as commands print it: a new one with its secret, any other with its hint and revocation date."""
    data: dict[str, Value] = {"id": key.id}
    data |= {"hint": key.hint} if secret is None else {"key": secret}
    data |= {
        "name": key.name,
        "access": key.access,
        "account_id": key.account_id,
        "created_at": format_timestamp_or_none(key.created_at),
        "expires_at": format_timestamp_or_none(key.expires_at),
    }
    return data if secret is not None else data | {"revoked_at": format_timestamp_or_none(key.revoked_at)}


def format_timestamp_or_none(moment: int | None) -> str | None:
    """Return a Unix time in seconds as commands print it, or None."""
    return None if moment is None else timestamps.format_timestamp(moment)


def _format(name: str, value: Value) -> str:
    return f"{value:.2f}" if name == "price" and isinstance(value, float) else _text(value)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        value = [f"{name} {count}" for name, count in value.items()]
    text = "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
    for letter in set(text):  # control characters in sellers' text could control the terminal
        if unicodedata.category(letter) in _CONTROL and letter != _JOINER:
            text = text.replace(letter, "\N{REPLACEMENT CHARACTER}")
    return text or "-"


@contextmanager
def create_file(file: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield FILE.part, readable only by its owner, which becomes the file if the block succeeds.

    Symbolic links are followed. Raises Problem("invalid_request").
    """
    target = Path(os.path.realpath(file))
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(target.stat().st_mode):
                raise Problem("invalid_request", f"{file} is not a regular file: choose another name")
            if not overwrite:
                raise Problem("invalid_request", f"{file} exists: choose another name, or overwrite it with --force")
        with replace_file(target, durable=True, overwrite=overwrite, suffix=".part") as part:
            yield part
    except OSError as error:
        raise Problem("invalid_request", f"{str(file)[:200]} can't be written: {error.strerror}") from None
