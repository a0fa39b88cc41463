"""`listings account invite`, `erase` and `export`: let a seller into the console, and out of the database."""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import msgspec

from listings.cli.output import json_option, listed_key_data, listing_data, show, status_data, tell
from listings.cli.parameters import settings_of, with_service
from listings.cli.resumable_file import place_of, require_free
from listings.contract.history import CONSOLE, OPERATOR, Event, RejectedRequest, UsageCount
from listings.contract.members import Session
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account, bucket_of
from listings.service import Service
from listings.service.accounts import is_erased
from listings.service.members import INVITATION_SECONDS
from listings.service.transfer import exporter
from listings.service.usage import MAX_REJECTED_REQUESTS

T = TypeVar("T")

_BASE_URL = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_PAGE = 500
_MICROSECOND = 1_000_000
_HOUR = 3600


@click.command()
@click.argument("account")
@click.option(
    "--base-url",
    envvar="LISTINGS_BASE_URL",
    metavar="URL",
    help="Where sellers find the console. Else LISTINGS_BASE_URL, else where `listings serve` listens.",
)
@json_option
@click.pass_context
def invite(context: click.Context, account: str, base_url: str | None, *, as_json: bool) -> None:
    """Print a link by which the owner of ACCOUNT sets a password for the console.

    It can be used once, within 7 days, and makes earlier ones void: send it to nobody else. A password that was set
    before holds until then.

    \b
    Example: listings account invite alice@example.com --base-url https://market.example
    """
    base = _checked_base(base_url) if base_url else _own_address(context)

    async def use(service: Service) -> tuple[str, int]:
        return await service.invite(account), int(service.clock()) + INVITATION_SECONDS

    token, expires_at = with_service(context, use)
    link = f"{base}/invitations/{token}"
    if as_json:
        show({"link": link, "expires_at": timestamps.format_timestamp(expires_at)}, as_json=True)
    else:
        click.echo(link)


def _checked_base(base_url: str) -> str:
    base = base_url.removesuffix("/")
    if not _BASE_URL.fullmatch(base):
        raise click.UsageError("--base-url must be like https://market.example, without a path.")
    return base


def _own_address(context: click.Context) -> str:
    settings = settings_of(context)
    if not settings.port:
        asked = "name where sellers find the console with --base-url or LISTINGS_BASE_URL"
        raise Problem("invalid_setting", f"The port of the service is the system's choice: {asked}")
    host = f"[{settings.reachable_host}]" if ":" in settings.host else settings.reachable_host
    return f"http://{host}:{settings.port}"


@click.command()
@click.argument("account")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def erase(context: click.Context, account: str, *, yes: bool, as_json: bool) -> None:
    """Take everything about a person from ACCOUNT, for good, and close its listings.

    Gone are its name and e-mail address, its password, sessions and invitations, the names of its keys, its activity
    and its usage. Its keys are revoked, its plan ends, it is disabled, and its listings are deleted as by their owner.

    What remains: the account's number; its deleted listings with their texts and addresses of pictures, and the numbers
    of the keys that made them; its keys' digests, last four characters and dates; what was imported when, as counts;
    which months were paid when. Backups and logs stay as they are.

    \b
    Example: listings account erase alice@example.com --yes
    """
    found = with_service(context, lambda service: service.find_account(account))
    was_erased = is_erased(found)
    if not (yes or was_erased):
        click.confirm(f"Erase account {found.id}, {found.email}, for good?", abort=True, err=True)
    erased = with_service(context, lambda service: service.erase_account(str(found.id)))
    if as_json:
        show(status_data(erased), as_json=True)
    tell(f"Account {erased.id} is erased already." if was_erased else f"Account {erased.id} is erased.")


@click.command()
@click.argument("account")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.pass_context
def export(context: click.Context, account: str, file: Path, *, force: bool) -> None:
    """Write everything that is kept of ACCOUNT to FILE, as one JSON object.

    That is the account, its keys, sessions, activity, usage and refused requests, and its listings, deleted ones too.
    The file holds no key, no password and no session's token. To move listings, use `listings export`.

    \b
    Example: listings account export alice@example.com alice.json
    """
    if file == Path("-"):
        raise click.UsageError("FILE must be a file: this is not written to standard output.")
    place = place_of(file)
    require_free(file, force=force)
    draft = place.with_name(f"{place.name}.part")

    async def use(service: Service) -> int:
        owner = await service.find_account(account)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as target:
            os.fchmod(target.fileno(), 0o600)
            await _write(service, owner, target)
            target.flush()
            os.fsync(target.fileno())
        draft.replace(place)
        return owner.id

    try:
        account_id = with_service(context, use)
    except OSError as error:
        raise Problem("invalid_request", f"{file} can't be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    tell(f"All of account {account_id} is in {file}.")


async def _write(service: Service, owner: Account, target: BinaryIO) -> None:
    """A part after the other, each row as it is read."""
    target.write(b'{"account":' + msgspec.json.encode(status_data(owner)))
    for name, rows in _parts(service, owner).items():
        target.write(b',\n"%b":[' % name.encode())
        comma = b""
        async for row in rows():
            target.write(comma + msgspec.json.encode(row))
            comma = b",\n"
        target.write(b"]")
    target.write(b"}\n")


def _parts(service: Service, owner: Account) -> Mapping[str, Callable[[], AsyncIterator[Any]]]:
    place = (bucket_of(owner.id), owner.id)
    store = service.store
    return {
        "keys": lambda: _each(store.list_keys(owner.id), listed_key_data),
        "sessions": lambda: _each(store.list_sessions(owner.id), _session_data),
        "activity": lambda: _activity(service, owner),
        "usage": lambda: _each(store.list_usage_by_hour(*place, 0), _usage_data),
        "refusals": lambda: _each(store.list_rejected_requests(*place, MAX_REJECTED_REQUESTS), _refusal_data),
        "listings": lambda: _listings(service, owner),
    }


async def _each(read: Awaitable[Iterable[T]], data: Callable[[T], Any]) -> AsyncIterator[Any]:
    for row in await read:
        yield data(row)


async def _activity(service: Service, owner: Account) -> AsyncIterator[Any]:
    page = await service.list_activity(owner, None, _PAGE)
    while True:
        for event in page.events:
            yield _event_data(event)
        if page.next_cursor is None:
            return
        page = await service.list_activity(owner, page.next_cursor, _PAGE)


async def _listings(service: Service, owner: Account) -> AsyncIterator[Any]:

    async for page in exporter.read_pages(service, owner):
        for listing in page:
            yield listing_data(listing)


def _session_data(session: Session) -> Mapping[str, object]:
    return {
        "id": session.handle,
        "browser": session.agent,
        "signed_in_at": timestamps.format_timestamp(session.created_at),
        "last_seen_at": timestamps.format_timestamp(session.seen_at),
    }


def _event_data(event: Event) -> Mapping[str, object]:
    return {
        "at": timestamps.format_timestamp(event.moment),
        "what": event.kind,
        "by": {OPERATOR: "operator", CONSOLE: "console"}.get(event.actor, f"key {event.actor}"),
        "id": event.subject or None,
        "detail": msgspec.json.decode(event.detail) if event.detail else None,
    }


def _usage_data(row: UsageCount) -> Mapping[str, object]:
    return {
        "hour": timestamps.format_timestamp(row.period * _HOUR),
        "key": row.key_id,
        "status": row.status,
        "requests": row.responses,
    }


def _refusal_data(refusal: RejectedRequest) -> Mapping[str, object]:
    return {
        "at": timestamps.format_timestamp(refusal.moment // _MICROSECOND),
        "key": refusal.key_id,
        "status": refusal.status,
        "code": refusal.code,
        "method": refusal.method,
        "path": refusal.path,
        "request_id": refusal.request_id,
    }
