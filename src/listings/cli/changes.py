"""`listings account changes` and `undo`: the change sets of an account's listings, and how to undo them."""

from collections.abc import Sequence
from itertools import groupby

import click

from listings.cli.group import example
from listings.cli.output import (
    ACTOR_NAMES,
    Data,
    json_option,
    print_dry_run,
    print_message,
    show,
    show_progress,
    show_rows,
)
from listings.cli.parameters import DATE, ID, Integer
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.domain.changes import Change, get_name
from listings.domain.history import OPERATOR
from listings.domain.number_text import format_count
from listings.domain.reverts import Revert, RevertConflict, RevertCounts, RevertKind, RevertPreview, RevertRequest
from listings.service import Services

_MAX_SHOWN = 20  # conflicts
_REASONS = {
    "changed_later": "change set {} changed it later",
    "external_id_taken": "listing {} has the external id",
    "account_full": "the account is full",
    "too_many_changes": "the listing was changed too often since",
}


@click.command(short_help="List the last change sets of an account's listings.")
@example("listings account changes alice@example.com --last 50")
@click.argument("account")
@click.option("--last", "count", type=Integer(1, 1000), default=20, metavar="N", help="How many. Default: 20")
@json_option
def changes(account: str, count: int) -> None:
    """List the last change sets of ACCOUNT, oldest first: what each write of its listings changed.

    "part of" is the id of the import or the revert that a change set belongs to, which `listings account undo` takes.
    """

    async def use(services: Services) -> list[Data]:
        owner = await services.accounts.find(account)
        names = {key.id: f"{key.name} (key {key.id})" for key in await services.keys.list_of(owner)}
        names |= ACTOR_NAMES
        found = [change async for change in services.changes.read_latest(owner, count)]
        return [_describe_set(list(group), names) for _, group in groupby(found, lambda change: change.edit_revision)]

    show_rows(("id", "time", "by", "kind", "part_of", "listings"), with_service(use))


def _describe_set(group: Sequence[Change], names: dict[int, str]) -> Data:
    first = group[0]
    return {
        "id": first.edit_revision,
        "time": timestamps.format_timestamp(first.moment),
        "by": names.get(first.actor, f"key {first.actor}"),
        "kind": first.kind,
        "part_of": first.group_id,
        "listings": len({change.listing_id for change in group}),
    }


@click.command(short_help="Undo changes of an account's listings.")
@example('listings account undo alice@example.com --key 7 --since "2026-11-20 22:00:00" --dry-run')
@click.argument("account")
@click.option("--change", type=ID, metavar="ID", help="Undo one change set.")
@click.option("--import", "import_id", type=ID, metavar="ID", help="Undo an import: the id of its first change set.")
@click.option("--revert", type=ID, metavar="ID", help="Undo an earlier revert.")
@click.option("--key", type=ID, metavar="ID", help="Undo all writes of a key from --since on.")
@click.option("--since", type=DATE, metavar="DATE", help="With --key: the time of the first write.")
@click.option("--until", type=DATE, metavar="DATE", help="With --key: the time of the last write. Default: now")
@click.option("--overwrite", is_flag=True, help="Also undo fields that were changed later.")
@click.option("--dry-run", is_flag=True, help="Show the result, but change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def undo(
    account: str,
    *,
    change: int | None,
    import_id: int | None,
    revert: int | None,
    key: int | None,
    since: int | None,
    until: int | None,
    overwrite: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Undo changes of the listings of ACCOUNT. Fields that were changed later are reported and stay as they are."""
    subjects: dict[RevertKind, int | None] = {"change": change, "import": import_id, "revert": revert, "key": key}
    request = _build_request(subjects, since, until)._replace(overwrite=overwrite)

    async def load_preview(services: Services) -> tuple[int, RevertPreview]:
        owner = await services.accounts.find(account)
        return owner.id, await services.reverts.preview(owner.id, request)

    account_id, preview = with_service(load_preview)
    if dry_run:
        show(_build_data(None, preview.counts))
        _print_conflicts(preview.conflicts)
        print_dry_run()
        return
    if not yes:
        listings = format_count(preview.counts.reverted, "listing")
        conflicts = format_count(preview.counts.conflicts, "conflict")
        click.confirm(f"This changes {listings}, with {conflicts}. Continue?", abort=True, err=True)
    done, kept = with_service(lambda services: _undo(services, account_id, request))
    show(_build_data(done.key.id, done.counts))
    _print_conflicts(kept)


async def _undo(services: Services, account_id: int, request: RevertRequest) -> tuple[Revert, list[RevertConflict]]:
    started, _ = await services.reverts.start(account_id, request, OPERATOR)
    with show_progress("Undoing"):
        done = await services.reverts.finish(started)
    return done, await services.reverts.list_conflicts(done, 0, _MAX_SHOWN)


def _build_request(subjects: dict[RevertKind, int | None], since: int | None, until: int | None) -> RevertRequest:
    given = [(kind, subject) for kind, subject in subjects.items() if subject is not None]
    if len(given) != 1:
        raise click.UsageError("Give exactly one of --change, --import, --revert and --key.")
    ((kind, subject),) = given
    if kind != "key":
        if since is not None or until is not None:
            raise click.UsageError("Give --since and --until only with --key.")
        return RevertRequest(kind, subject)
    if since is None:
        raise click.UsageError("Give --since with --key.")
    return RevertRequest(kind, subject, since, until)


def _build_data(revert_id: int | None, counts: RevertCounts) -> dict[str, int | bool | None]:
    return {"id": revert_id, "reverted": counts.reverted, "unchanged": counts.unchanged, "conflicts": counts.conflicts}


def _print_conflicts(conflicts: Sequence[RevertConflict]) -> None:
    for conflict in conflicts[:_MAX_SHOWN]:
        names = ", ".join(map(get_name, conflict.fields))
        reason = _REASONS[conflict.reason].format(conflict.subject)
        print_message(f"Listing {conflict.listing_id} keeps {names or 'its fields'}: {reason}")
