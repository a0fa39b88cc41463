"""`listings account invite`, `erase` and `export`: access to the console, and a person's data."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import msgspec

from listings.cli.group import example
from listings.cli.output import (
    ACTOR_NAMES,
    create_file,
    format_timestamp_or_none,
    json_option,
    listed_key_data,
    listing_data,
    print_message,
    show_json,
    status_data,
)
from listings.cli.parameters import Parsed, load_settings
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.domain.accounts import is_erased
from listings.domain.audience import Takedown
from listings.domain.changes import Change, build_record
from listings.domain.errors import Problem
from listings.domain.history import Event, RejectedRequest, UsageCount
from listings.domain.members import Session
from listings.domain.model import Account
from listings.domain.pictures import Picture, build_path
from listings.service import Services
from listings.service.mail.messages import LATEST
from listings.service.members.invitations import INVITATION_SECONDS
from listings.settings.values import parse_base_url

T = TypeVar("T")

_PAGE_SIZE = 500


@click.command(short_help="Invite an account's owner to the console.")
@example("listings account invite alice@example.com --base-url https://market.example")
@click.argument("account")
@click.option(
    "--base-url",
    type=Parsed("url", parse_base_url),
    envvar="LISTINGS_BASE_URL",
    metavar="URL",
    help="The public URL of the service. Default: LISTINGS_BASE_URL, or LISTINGS_HOST with LISTINGS_PORT",
)
@json_option
def invite(account: str, base_url: str | None) -> None:
    """Print a link with which the owner of ACCOUNT sets a password for the console.

    The link works once, within 7 days, and invalidates earlier links. Send it only to the owner. An existing password
    works until the owner sets a new one.
    """
    base = base_url or _default_base_url()

    async def use(services: Services) -> tuple[str, int]:
        return await services.invitations.create(account), int(services.clock()) + INVITATION_SECONDS

    token, expires_at = with_service(use)
    link = f"{base}/invitations/{token}"
    if not show_json({"link": link, "expires_at": timestamps.format_timestamp(expires_at)}):
        click.echo(link)
    if not base_url:
        print_message(
            f"The link assumes the address {base} (LISTINGS_HOST and LISTINGS_PORT): for another one, set "
            "LISTINGS_BASE_URL, such as LISTINGS_BASE_URL=https://market.example, and run this command again"
        )


def _default_base_url() -> str:
    settings = load_settings()
    if not settings.port:
        advice = "give the public URL of the service with --base-url or LISTINGS_BASE_URL"
        raise Problem("invalid_setting", f"LISTINGS_PORT is 0, so the port of the service is unknown: {advice}")
    host = f"[{settings.reachable_host}]" if ":" in settings.host else settings.reachable_host
    return f"http://{host}:{settings.port}"


@click.command(short_help="Permanently delete an account's personal data.")
@example("listings account erase alice@example.com --yes")
@click.argument("account")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def erase(account: str, *, yes: bool) -> None:
    """Permanently delete the personal data of ACCOUNT, and delete its listings.

    This removes the account's name, email address, public contact, password, sessions, invitations, queued mail, names
    of keys, the fields of its listings and their earlier values, activity and usage.
    It also revokes the keys, ends the plan, disables the account and deletes its listings with their texts and image
    URLs.

    These remain: the account id; the ids and dates of the listings, and the ids of the keys that created them; the
    digests, last four characters and dates of the keys; the dates and counts of imports; the dates of payments.
    Backups and logs are not changed.
    """
    found = with_service(lambda services: services.accounts.find(account))
    was_erased = is_erased(found)
    if not (yes or was_erased):
        click.confirm(f"Permanently erase account {found.id} ({found.email})?", abort=True, err=True)
    erased = with_service(lambda services: services.accounts.erase(str(found.id)))
    show_json(status_data(erased))
    print_message(f"Account {erased.id} was already erased" if was_erased else f"Erased account {erased.id}")


@click.command(short_help="Export the data of an account.")
@example("listings account export alice@example.com alice.json")
@click.argument("account")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--pictures", type=click.Path(dir_okay=False, path_type=Path), help="Also write the pictures to this ZIP."
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def export(account: str, file: Path, *, pictures: Path | None, force: bool) -> None:
    """Export the data of ACCOUNT to FILE, as one JSON object.

    FILE contains the account and its keys, sessions, activity, usage, messages, list of pictures, takedowns, rejected
    requests, changes of listings with the values before and after, and listings, including deleted ones. To move
    listings, use `listings export`.

    FILE does not contain queued mail, known browsers, or payments and imports except those in the activity. It contains
    no secrets: no API keys, passwords or session tokens.
    """
    if file == Path("-"):
        raise click.UsageError("FILE must be a file: this command does not write to standard output.")

    async def use(services: Services) -> int:
        owner = await services.accounts.find(account)
        with create_file(file, overwrite=force) as target:
            await _write(services, owner, target)
        if pictures is not None:
            with create_file(pictures, overwrite=force) as target:
                async for piece in services.pictures.read_archive(owner.id):
                    target.write(piece)
        return owner.id

    print_message(f"Exported account {with_service(use)} to {file}")


async def _write(services: Services, owner: Account, target: BinaryIO) -> None:
    # Each row is written as it is read, so that memory does not grow with the account.
    target.write(b'{"account":' + msgspec.json.encode(await _account_data(services, owner)))
    for name, rows in _sections(services, owner).items():
        target.write(b',\n"%b":[' % name.encode())
        separator = b""
        async for row in rows():
            target.write(separator + msgspec.json.encode(row))
            separator = b",\n"
        target.write(b"]")
    target.write(b"}\n")


async def _account_data(services: Services, owner: Account) -> Mapping[str, object]:
    requested_at = await services.plan_requests.find_open(owner)
    return {
        **status_data(owner),
        "public_contact": owner.public_contact,
        "about": owner.about,
        "messages_off_at": format_timestamp_or_none(owner.messages_off_at),
        "plan_requested_at": format_timestamp_or_none(requested_at),
        "email_confirmed": await services.own_account.is_email_confirmed(owner),
    }


def _sections(services: Services, owner: Account) -> Mapping[str, Callable[[], AsyncIterator[Any]]]:
    return {
        "keys": lambda: _convert_rows(services.keys.list_of(owner), listed_key_data),
        "sessions": lambda: _convert_rows(services.sessions.list_stored(owner), _session_data),
        "activity": lambda: _read_activity(services, owner),
        "usage": lambda: _convert_rows(services.usage.list_hours(owner), _usage_data),
        "messages": lambda: _read_messages(services, owner),
        "pictures": lambda: _read_pictures(services, owner),
        "takedowns": lambda: _convert_rows(services.moderation.list_takedowns_of(owner), _takedown_data),
        "rejected_requests": lambda: _convert_rows(services.usage.list_rejected(owner), _rejected_data),
        "changes": lambda: (_change_data(one) async for one in services.changes.read_latest(owner, sys.maxsize)),
        "listings": lambda: (listing_data(one) async for page in services.transfer.read_pages(owner) for one in page),
    }


async def _convert_rows(read: Awaitable[Iterable[T]], convert: Callable[[T], Any]) -> AsyncIterator[Any]:
    for row in await read:
        yield convert(row)


async def _read_activity(services: Services, owner: Account) -> AsyncIterator[Any]:
    page = await services.activity.list_page(owner, None, _PAGE_SIZE)
    while True:
        for event in page.events:
            yield _event_data(event)
        if page.next_cursor is None:
            return
        page = await services.activity.list_page(owner, page.next_cursor, _PAGE_SIZE)


async def _read_messages(services: Services, owner: Account) -> AsyncIterator[Any]:
    before = LATEST
    while page := await services.messages.list_page(owner, before, _PAGE_SIZE):
        for message in page:
            row = {**message._asdict(), "at": timestamps.format_timestamp(message.created_at)}
            yield {name: row[name] for name in ("at", "listing_id", "name", "email", "text")}
        before = (page[-1].created_at, page[-1].id)


async def _read_pictures(services: Services, owner: Account) -> AsyncIterator[Any]:
    before = None
    while page := await services.pictures.page(owner.id, before, _PAGE_SIZE):
        for picture in page:
            yield _picture_data(picture)
        before = (page[-1].created_at, page[-1].name)


def _picture_data(picture: Picture) -> Mapping[str, object]:
    return {
        "url": build_path(picture.name),
        "file_name": picture.file_name,
        "width": picture.width,
        "height": picture.height,
        "bytes": picture.size,
        "uploaded_at": timestamps.format_timestamp(picture.created_at),
        "unused_since": format_timestamp_or_none(picture.unused_since),
    }


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
        "by": _name_actor(event.actor),
        "id": event.subject or None,
        "detail": msgspec.json.decode(event.detail) if event.detail else None,
    }


def _change_data(change: Change) -> Mapping[str, object]:
    return {
        "change": change.edit_revision,
        "at": timestamps.format_timestamp(change.moment),
        "what": change.kind,
        "by": _name_actor(change.actor),
        "listing": build_record(change),
    }


def _name_actor(actor: int) -> str:
    return ACTOR_NAMES.get(actor, f"key {actor}")


def _takedown_data(takedown: Takedown) -> Mapping[str, object]:
    at = timestamps.format_timestamp(takedown.created_at)
    return {"at": at, "listing_id": takedown.listing_id, "reason": takedown.reason}


def _usage_data(row: UsageCount) -> Mapping[str, object]:
    return {
        "hour": timestamps.format_timestamp(row.period * timestamps.HOUR_SECONDS),
        "key": row.key_id,
        "status": row.status,
        "requests": row.responses,
    }


def _rejected_data(request: RejectedRequest) -> Mapping[str, object]:
    return {
        "at": timestamps.format_timestamp(request.microseconds // timestamps.MICROSECONDS_PER_SECOND),
        "key": request.key_id,
        "status": request.status,
        "code": request.code,
        "method": request.method,
        "path": request.path,
        "request_id": request.request_id,
        "reason": request.reason,
    }
