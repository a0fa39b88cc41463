"""`listings export` and `listings import`: all listings of an account out to a file, and in again."""

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from listings.cli.output import json_option, show, tell
from listings.cli.parameters import with_service
from listings.cli.resumable_file import Origin, Part, place_of, require_free
from listings.contract.imports import ImportProgress, Position, RowOutcome
from listings.domain.errors import Problem
from listings.service import Service
from listings.service.transfer import exporter, importer
from listings.service.transfer.file_formats import Format, ImportFile, detect_format
from listings.service.transfer.rows import Row

_PAGES_BETWEEN_SAVES = 10
_MOST_IGNORED = 20


class ListingsFile(click.ParamType[Path]):
    """A file of listings, whose format its name tells."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401 - click's signature
        """The path."""
        path = Path(value)
        try:
            detect_format(path)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        return path


@click.command(short_help="Write all listings of an account to a file.")
@click.argument("account")
@click.argument("file", type=ListingsFile(), metavar="FILE.jsonl|FILE.csv")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
@click.pass_context
def export(context: click.Context, account: str, file: Path, *, force: bool, as_json: bool) -> None:
    """Write all listings of ACCOUNT, an id or an e-mail address, to FILE: inactive and deleted ones too.

    The service may run meanwhile. An export that was interrupted goes on when it is run again.

    \b
    Example: listings export alice@example.com alice.csv
    """
    form = detect_format(file)
    place = place_of(file)
    require_free(file, force=force)

    async def use(service: Service) -> dict[str, Any]:
        owner = await service.find_account(account)
        origin = Origin(owner.id, await service.store.get_database_id(), form.name)
        with _told_of(file), Part(place, origin, force=force) as part, _progress() as progress:
            _begin(part, form)
            task = progress.add_task("Exporting", total=None, completed=part.progress.listings)
            saves_in = _PAGES_BETWEEN_SAVES
            async for page in exporter.read_pages(service, owner, part.progress.last_id):
                part.write(form.encode(page), len(page), page[-1].id)
                progress.update(task, completed=part.progress.listings)
                saves_in -= 1
                if not saves_in:
                    part.save()
                    saves_in = _PAGES_BETWEEN_SAVES
            part.finish()
        return {"account_id": owner.id, "file": str(file), "listings": part.progress.listings}

    show(with_service(context, use), as_json=as_json)


@click.command(name="import", short_help="Make and change listings of an account by a file.")
@click.argument("account")
@click.argument("file", type=ListingsFile(), metavar="FILE.jsonl|FILE.csv")
@click.option("--dry-run", is_flag=True, help="Judge every row and write nothing.")
@click.option("--new-ids", is_flag=True, help="Make every row a new listing, whatever its id.")
@click.option("--again", is_flag=True, help="Import a file from its beginning that was imported before.")
@json_option
@click.pass_context
def import_(
    context: click.Context, account: str, file: Path, *, dry_run: bool, new_ids: bool, again: bool, as_json: bool
) -> int:
    """Make and change listings of ACCOUNT, an id or an e-mail address, by the rows of FILE.

    A row without id is a new listing; one with the id of a listing changes it. A row with a fault is told and left
    out; the exit code is 1 then. The service may run meanwhile. An import that was interrupted goes on when it is
    run again.

    \b
    Example: listings import alice@example.com alice.csv --dry-run
    """

    async def use(service: Service) -> dict[str, Any]:
        owner = await service.find_account(account)
        with _opened(file) as opened, _progress() as progress:
            source = ImportFile(opened, detect_format(file))
            watch = _Watch(file, source.size, progress)
            options = importer.ImportOptions(new_ids=new_ids, dry_run=dry_run, again=again)
            done = await importer.Import(service, owner, source, watch, options).run()
        return {"account_id": owner.id, "file": str(file)} | {
            name: getattr(done, name) for name in ("made", "changed", "unchanged", "refused")
        }

    counts = with_service(context, use, events_of=importer.__name__)
    show(counts, as_json=as_json)
    if dry_run:
        tell("This was a dry run: nothing was written")
    return 1 if counts["refused"] else 0


class _Watch:
    """Tells on standard error what becomes of an import ."""

    def __init__(self, path: Path, size: int, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._task = progress.add_task("Reading", total=size)
        self._ignored: set[str] = set()

    def on_resume(self, done: ImportProgress) -> None:
        rows = done.made + done.changed + done.unchanged + done.refused
        tell(f"Going on behind line {done.line}: {rows} rows of {self._path} are done")

    def on_progress(self, doing: str, place: Position) -> None:
        self._progress.update(self._task, description=doing, completed=place.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        if isinstance(outcome, Problem):
            tell(f"{self._path}:{row.line}: {outcome.message}")

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        for name in sorted(names - self._ignored)[: _MOST_IGNORED - len(self._ignored)]:
            self._ignored.add(name)
            tell(f"{self._path}: {name[:100]!r} is no column of a listing and is ignored")


def _begin(part: Part, form: Format) -> None:
    done = part.progress
    if done.bytes:
        tell(f"Going on behind listing {done.last_id}: {done.listings} listings are exported")
    else:
        part.write(form.header)


def _progress() -> Progress:
    """What is shown on a terminal while work goes on, and nowhere else."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """A fault of the file's disk or folder is refused in a sentence."""
    try:
        yield
    except OSError as error:
        raise Problem("invalid_request", f"{file} can't be used: {error.strerror}") from None


@contextmanager
def _opened(file: Path) -> Iterator[BufferedReader]:
    """A file that can be read twice, which a pipe can't."""
    with _told_of(file):
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem("invalid_request", f"{file} is no regular file")
        with file.open("rb") as opened:
            yield opened
