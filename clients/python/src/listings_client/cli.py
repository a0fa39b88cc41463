"""`lst`: list, edit, plan, apply, watch and undo from a terminal or a script."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import httpx2

from listings_client import credentials, operations, watch
from listings_client.apply import Journal, Outcome, apply_plan
from listings_client.client import Client
from listings_client.core import __version__
from listings_client.credentials import Credentials
from listings_client.errors import GoneError, ListingsError, StaleError
from listings_client.files import parse_value, read_table
from listings_client.plan import (
    Entry,
    GuardError,
    Plan,
    build_plan,
    follow_catalogue,
    load_plan,
    measure_jump,
    read_catalogue,
    require_current,
    save_state,
)
from listings_client.records import FIELD_NAMES, ChangeSet, Listing, Revert

ERROR, GUARDED, CHANGED = 1, 3, 4
_TIMEOUT_SECONDS = 3600.0  # for a call and its retries: long enough for a rate limit
_MAX_SHOWN = 50
_WIDTH = 40
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
LISTING = click.argument("listing", type=click.IntRange(1))
SEVERAL = click.argument("listings", nargs=-1, required=True, type=click.IntRange(1))
YES = click.option("--yes", is_flag=True, help="Answer yes to all questions.")

note = partial(click.echo, err=True)


@dataclass
class App:
    """The options before the command, and the ways to print."""

    mode: credentials.Mode | None
    as_json: bool

    def open(self, **options: Any) -> Client:
        """Return a client with the saved key, or that of the environment."""
        client = Client(mode=self.mode, timeout=_TIMEOUT_SECONDS, **options)
        client.options.on_wait = lambda seconds, reason: note(f"Waiting {seconds:.0f} s: {reason}")
        if client.mode == "test":
            note("Test mode: buyers do not see these listings")
        return client

    def show(self, data: object, *lines: str) -> None:
        """Print data as a line of JSON, or the lines for people."""
        click.echo(operations.encode(data).decode() if self.as_json else "\n".join(lines))

    def confirm(self, question: str, *, is_confirmed: bool) -> None:
        """Ask a question on a terminal. Raises GuardError if the answer is no, or if nobody can be asked."""
        if is_confirmed:
            return
        if not sys.stdin.isatty():
            raise GuardError(f"{question} Without a terminal, this needs --yes")
        if not click.confirm(question, err=True):
            raise GuardError("Nothing was changed")


def format_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table. Control characters and the ends of long texts are left out."""
    cells = [[_shorten(str(cell)) for cell in row] for row in [names, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _shorten(text: str) -> str:
    line = "".join(one if one.isprintable() else " " for one in text)
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def parse_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the fields of arguments such as price=450. Raises UsageError."""
    fields = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or name not in FIELD_NAMES:
            raise click.UsageError(f"{pair!r} must be FIELD=VALUE, with one of {', '.join(FIELD_NAMES)}")
        try:
            fields[name] = parse_value(name, value if value or name != "external_id" else None)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return fields


class _Group(click.Group):
    """Turns errors into one line and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ListingsError, TypeError, ValueError) as error:
            note(f"lst: {error}")
            changed = isinstance(error, StaleError | GoneError)
            sys.exit(GUARDED if isinstance(error, GuardError) else CHANGED if changed else ERROR)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing else is printed to it
            sys.exit(ERROR)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--test", "mode", flag_value="test", type=click.Choice(["test", "live"]), help="Use the saved test key.")
@click.option("--live", "mode", flag_value="live", type=click.Choice(["test", "live"]), help="Use the saved live key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.version_option(__version__, prog_name="lst")
@click.pass_context
def main(context: click.Context, mode: credentials.Mode | None, *, as_json: bool) -> None:
    """Manage your listings: edit, plan, apply, watch and undo.

    \b
    Exit codes: 0 done, 1 error, 2 wrong usage, 3 a guard needs a person,
    4 listings were changed since they were read.
    """
    context.obj = App(mode, as_json)


@main.command()
@click.option("--url", prompt="URL of the service", help="Such as https://market.example.")
@click.option("--key", prompt="API key", hide_input=True, help="Without it, lst asks for the key.")
@click.pass_obj
def login(app: App, url: str, key: str) -> None:
    """Check a key and save it, readable by you only. A test key and a live key are saved side by side."""
    saved = Credentials(key.strip(), url.strip().rstrip("/"))
    with Client(*saved, mode=app.mode) as client:
        info = client.key()
    path = credentials.save(saved)
    app.show({"mode": info.mode, "access": info.access, "file": str(path)}, f"Saved the {info.mode} key {info.name}")


@main.command("list")
@click.option("--status", default="active", type=click.Choice(["active", "inactive", "deleted", "all"]))
@click.option("-q", help="Words in title or description.")
@click.option("--category")
@click.option("--external-id", multiple=True)
@click.option("--limit", type=click.IntRange(1), default=_MAX_SHOWN, help="How many, the newest first. Default: 50")
@click.pass_obj
def list_(app: App, /, limit: int, external_id: tuple[str, ...], **filters: Any) -> None:
    """List your listings."""
    chosen = {name: value for name, value in filters.items() if value is not None}
    with app.open() as client:
        found = list(islice(client.list(page_size=min(limit, 1000), external_id=external_id, **chosen), limit))
    states = ("deleted" if one.deleted_at else "active" if one.is_active else "paused" for one in found)
    rows = ((one.id, one.external_id or "", one.price, next(states), one.title) for one in found)
    app.show(found, *format_table(("ID", "EXTERNAL ID", "PRICE", "STATE", "TITLE"), rows))


def _show_listing(app: App, listing: Listing) -> None:
    values = ((name, getattr(listing, name)) for name in ("id", *FIELD_NAMES, "view_count", "created_at", "updated_at"))
    texts = ((name, " ".join(value) if isinstance(value, tuple) else value) for name, value in values)
    app.show(listing, *(f"{name}: {text}" for name, text in texts if text not in {None, ""}))


@main.command()
@LISTING
@click.pass_obj
def get(app: App, listing: int) -> None:
    """Show a listing."""
    with app.open() as client:
        _show_listing(app, client.get(listing))


@main.command()
@click.argument("fields", nargs=-1, required=True)
@click.pass_obj
def create(app: App, fields: tuple[str, ...]) -> None:
    """Create a listing, for example: lst create title=Lamp content=Brass. price=19.90."""
    values = parse_fields(fields)
    with app.open() as client:
        _show_listing(app, client.create(**values))


@main.command()
@LISTING
@click.argument("fields", nargs=-1, required=True)
@click.pass_obj
def edit(app: App, listing: int, fields: tuple[str, ...]) -> None:
    """Change fields of a listing, for example: lst edit 1025 price=450 is_active=no."""
    values = parse_fields(fields)
    with app.open() as client:
        _show_listing(app, client.update(client.get(listing), **values))


@main.command()
@SEVERAL
@YES
@click.pass_obj
def delete(app: App, listings: tuple[int, ...], *, yes: bool) -> None:
    """Delete listings."""
    app.confirm(f"Delete {len(listings)} listings?", is_confirmed=yes)
    _write(app, [operations.delete(listing) for listing in listings], listings)


@main.command()
@SEVERAL
@click.pass_obj
def restore(app: App, listings: tuple[int, ...]) -> None:
    """Restore deleted listings, which are paused then."""
    _write(app, [operations.restore(listing) for listing in listings], listings)


def _write(app: App, writes: list[operations.Operation], listings: Sequence[int]) -> None:
    with app.open() as client:
        results = dict(zip(listings, client.batch(writes), strict=True))
    data = [{"id": number, "ok": result.ok, "message": result.message} for number, result in results.items()]
    app.show(data, *(f"{number}: {result.message}" for number, result in results.items()))
    if not all(result.ok for result in results.values()):
        sys.exit(ERROR)


@main.command()
@click.argument("file", type=click.File("w", encoding="utf-8", atomic=True), default="-")
@click.option("--status", default="all", type=click.Choice(["active", "inactive", "all"]))
@click.pass_obj
def export(app: App, file: Any, status: Any) -> None:
    """Write your listings as JSON lines, which lst plan reads."""
    with app.open() as client:
        for listing in client.stream(status=status):
            if listing.deleted_at is None:
                file.write(operations.encode(listing).decode() + "\n")


def _show_changes(app: App, change_set: ChangeSet) -> None:
    head = f"{change_set.id}  {change_set.time:%Y-%m-%d %H:%M:%S}  {change_set.kind}"
    writer = change_set.actor.name or change_set.actor.type
    lines = [f"  {one.external_id or one.id}: {_format_fields(one.before, one.after)}" for one in change_set.changes]
    more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    app.show(change_set, f"{head}  {writer}  {change_set.group}", *lines[:_MAX_SHOWN], *more)


def _format_fields(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    if before is None:
        return f"created, {_shorten(str(after.get('title', '')))}"
    return ", ".join(f"{name} {_shorten(str(before.get(name)))} → {_shorten(str(after[name]))}" for name in after)


@main.command()
@click.option("--after", type=click.IntRange(0), help="The id of a change set. Default: the last 20")
@click.pass_obj
def changes(app: App, after: int | None) -> None:
    """Show change sets, the oldest first."""
    with app.open() as client:
        for change_set in client.changes(max(0, client.last_change() - 20) if after is None else after):
            _show_changes(app, change_set)


@main.command()
@LISTING
@click.pass_obj
def history(app: App, listing: int) -> None:
    """Show the changes of one listing, the newest first."""
    with app.open() as client:
        for change_set in client.history(listing):
            _show_changes(app, change_set)


@main.command()
@click.pass_obj
def limit(app: App) -> None:
    """Show the rate limit of the key."""
    with app.open() as client:
        state = client.limit()
    app.show(state, f"{state.remaining} of {state.limit} requests remain" if state.limit else "There is no limit")


@main.command()
@click.option("--change", type=click.IntRange(1), help="The id of a change set.")
@click.option("--group", help="A group, such as that of lst apply.")
@click.option("--key", help="The id of a key, or self, with --since.")
@click.option("--since", type=click.DateTime(), help="In UTC.")
@click.option("--until", type=click.DateTime(), help="In UTC.")
@click.option("--overwrite", is_flag=True, help="Also undo later changes.")
@YES
@click.pass_obj
def undo(app: App, /, *, yes: bool, overwrite: bool, **what: Any) -> None:
    """Undo changes, after a preview. Without an option: the last write, with its group."""
    chosen = {name: value for name, value in what.items() if value is not None}
    if len({"change", "group", "key"} & chosen.keys()) > 1 or ("key" in chosen) != ("since" in chosen):
        raise click.UsageError("Choose one of --change, --group, and --key with --since")
    if chosen.get("key", "self") != "self":
        if not chosen["key"].isdecimal():
            raise click.UsageError("--key must be the id of a key, or self")
        chosen["key"] = int(chosen["key"])
    with app.open() as client:
        chosen = chosen or _find_last(client)
        chosen |= {"overwrite": True} if overwrite else {}
        planned = client.revert(dry_run=True, **chosen)
        note(_count(planned))
        for change in planned.changes[:_MAX_SHOWN]:
            note(f"  {change.external_id or change.id}: {_format_fields(change.before, change.after)}")
        app.confirm(f"Undo {planned.reverted} listings?", is_confirmed=yes)
        done = client.revert(**chosen)
    app.show({"id": done.id, "reverted": done.reverted, "conflicts": done.conflict_count}, f"Done: {_count(done)}")
    if done.conflict_count:
        sys.exit(CHANGED)


def _count(revert: Revert) -> str:
    left = f"{revert.conflict_count} left because they were changed later"
    return f"{revert.reverted} listings restored, {revert.unchanged} unchanged, {left}"


def _find_last(client: Client) -> dict[str, Any]:
    last = client.last_change()
    found = next(client.changes(last - 1), None) if last else None
    if found is None:
        raise ListingsError("There are no changes to undo")
    if found.revert is not None:
        return {"revert": found.revert}
    return {"group": found.group} if found.group else {"change": found.id}


def _parse_mapping(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    mapping = dict(pair.rpartition("=")[::2] for pair in pairs)
    unknown = next((field for field in mapping.values() if field not in {*FIELD_NAMES, "-"}), None)
    if unknown is not None or "" in mapping:
        raise click.BadParameter(f"must be COLUMN=FIELD, with - or one of {', '.join(FIELD_NAMES)}")
    return mapping


@main.command()
@click.argument("file", type=EXISTING)
@click.option("--out", type=FILE, default="plan.json", help="Default: plan.json")
@click.option("--map", "mapping", multiple=True, callback=_parse_mapping, metavar="COLUMN=FIELD", help="- ignores it.")
@click.option("--state", type=FILE, help="A file with the catalogue, for speed.")
@click.option("--delete", is_flag=True, help="Delete listings that are not in the file.")
@click.option("--max-delete", type=click.IntRange(0), default=0, help="How many, if more than 10 and more than 10%.")
@click.option("--prefix", default="", help="Only listings whose external ids begin so.")
@click.pass_obj
def plan(app: App, /, file: Path, out: Path, mapping: dict[str, str], state: Path | None, **rules: Any) -> None:
    """Compare a CSV or JSON lines file with your listings, by external id, and write a plan."""
    rows, ignored = read_table(file, mapping)
    if ignored:
        note(f"Columns that are not used: {', '.join(ignored)}")
    with app.open() as client:
        catalogue = follow_catalogue(client, state) if state else read_catalogue(client, with_last=False)
        made = build_plan(client, catalogue, rows, **rules)
        if state:
            save_state(client, catalogue, state)
    made.save(out)
    app.show({**summarise(made), "plan": str(out)}, *format_plan(made), f"Wrote {out}: apply it within 24 hours")


def summarise(made: Plan) -> dict[str, Any]:
    """Return the numbers of a plan, and its group."""
    counts = {f"{op}s": made.count(op) for op in ("create", "update", "delete")}
    return {**counts, "unchanged": made.unchanged, "left": made.left, "group": made.group, "questions": made.questions}


def format_plan(made: Plan) -> list[str]:
    """Return the lines that show a plan."""
    shown = [line for entry in made.entries[:_MAX_SHOWN] for line in _format_entry(entry)]
    more = [f"and {len(made.entries) - _MAX_SHOWN} more"] if len(made.entries) > _MAX_SHOWN else []
    numbers = f"{made.count('create')} to create, {made.count('update')} to update, {made.count('delete')} to delete"
    return [*shown, *more, f"{numbers}, {made.unchanged} unchanged, {made.left} not in the file"]


def _format_entry(entry: Entry) -> Iterable[str]:
    yield f"{entry.op} {_shorten(entry.external_id)}"
    for name, value in entry.fields.items():
        old = f"{_shorten(str(entry.before[name]))} → " if name in entry.before else ""
        jump = measure_jump(entry) if name == "price" else None
        percent = f" ({jump:+.0%})" if jump is not None else ""
        yield f"  {name}: {old}{_shorten(str(value))}{percent}"


@main.command()
@click.argument("file", metavar="PLAN", type=EXISTING)
@click.option("--strict", is_flag=True, help="Write nothing if any listing was changed since the plan.")
@YES
@click.pass_obj
def apply(app: App, file: Path, *, strict: bool, yes: bool) -> None:
    """Apply a plan. Listings that were changed since are skipped. After a crash, run it again."""
    made = load_plan(file)
    with app.open() as client:
        require_current(made, client)
        for question in made.questions:
            app.confirm(question, is_confirmed=yes)
        is_hidden = app.as_json or not sys.stderr.isatty()
        with click.progressbar(length=len(made.entries), file=sys.stderr, hidden=is_hidden) as bar:
            outcome = apply_plan(client, made, Journal(file, made), strict=strict, on_batch=bar.update)
    data, lines = describe_outcome(made, outcome)
    app.show(data, *lines)
    if outcome.failed or outcome.skipped:
        sys.exit(ERROR if outcome.failed else CHANGED)


def describe_outcome(made: Plan, outcome: Outcome) -> tuple[dict[str, Any], list[str]]:
    """Return the outcome of a plan as data and as lines."""
    skipped, failed = (
        [{"external_id": entry.external_id, "op": entry.op, "reason": reason} for entry, reason in entries]
        for entries in (outcome.skipped, outcome.failed)
    )
    lines = [f"skipped, changed since: {one['op']} {one['external_id']}: {one['reason']}" for one in skipped]
    lines += [f"failed: {one['op']} {one['external_id']}: {one['reason']}" for one in failed]
    lines.append(f"{len(outcome.applied)} applied, {len(skipped)} skipped, {len(failed)} failed")
    lines += [f"To undo: lst undo --group {made.group}"] if outcome.applied else []
    return {"applied": len(outcome.applied), "skipped": skipped, "failed": failed, "group": made.group}, lines


@main.command("watch")
@click.option("--forward", "url", metavar="URL", help="Post each change, signed by Standard Webhooks.")
@click.option("--secret-file", type=EXISTING, help="With whsec_….")
@click.option("--place", type=FILE, default="watch.json", help="Default: watch.json")
@click.pass_obj
def watch_(app: App, url: str | None, secret_file: Path | None, place: Path) -> None:
    """Print changes as they happen, or forward them. The place in the changes is stored in a file."""
    if (url is None) != (secret_file is None):
        raise click.UsageError("--forward needs --secret-file, and the other way round")
    secret = watch.parse_secret(secret_file.read_text("utf-8").strip()) if secret_file is not None else b""
    with app.open() as client, httpx2.Client() as http:
        last = watch.read_place(place, client.account())
        if last is None:
            last = client.last_change()
            watch.write_place(place, client.account(), last)
        for change_set in client.changes(last, follow=True):
            if url is not None:
                watch.forward(http, url, secret, change_set, client.options.on_wait)
            _show_changes(app, change_set)
            sys.stdout.flush()
            watch.write_place(place, client.account(), change_set.id)
