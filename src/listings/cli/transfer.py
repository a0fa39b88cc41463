"""`listings export` and `listings import`: write an account's listings to a file, and import them from a file."""

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

from listings.cli.output import json_option, print_dry_run, print_message, show
from listings.cli.parameters import Parsed
from listings.cli.resumable_file import Origin, PartialFile, require_absent, resolve_target
from listings.cli.service import with_service
from listings.contract.imports import ImportProgress, Position, RowOutcome
from listings.domain.errors import Problem
from listings.domain.number_text import format_count
from listings.service import Services
from listings.service.transfer import importer
from listings.service.transfer.file_formats import ImportFile, detect_format
from listings.service.transfer.rows import Row

_PAGES_BETWEEN_SAVES = 10
_MAX_IGNORED_COLUMNS = 20  # that are reported


def _parse_file(text: str) -> Path:
    """Return the path of a file of listings; the end of its name determines the format."""
    try:
        detect_format(Path(text))
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return Path(text)


_FILE = click.argument("file", type=Parsed("file", _parse_file), metavar="FILE.jsonl|FILE.csv")


@click.command(short_help="Export an account's listings to a file.")
@click.argument("account")
@_FILE
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
def export(account: str, file: Path, *, force: bool) -> None:
    """Export all listings of ACCOUNT to FILE, including inactive and deleted ones.

    ACCOUNT is an account id or an email address. The service may be running. Run the command again to continue an
    interrupted export.

    \b
    Example: listings export alice@example.com alice.csv
    """
    file_format = detect_format(file)
    target = resolve_target(file)
    require_absent(file, force=force)

    async def use(services: Services) -> dict[str, Any]:
        owner = await services.accounts.find(account)
        origin = Origin(owner.id, await services.get_database_id(), file_format.name)
        with _reporting_errors(file), PartialFile(target, origin, force=force) as part, _progress_bar() as progress:
            done = part.progress
            if done.bytes:
                exported = format_count(done.listings, "listing")
                print_message(f"Continuing after listing {done.last_id}, with {exported} exported")
            else:
                part.write(file_format.header)
            task = progress.add_task("Exporting", total=None, completed=done.listings, unit="listings")
            unsaved_pages = 0
            async for page in services.transfer.read_pages(owner, part.progress.last_id):
                part.write(file_format.encode(page), len(page), page[-1].id)
                progress.update(task, completed=part.progress.listings)
                unsaved_pages += 1
                if unsaved_pages == _PAGES_BETWEEN_SAVES:
                    part.save()
                    unsaved_pages = 0
            part.finish()
        return {"account_id": owner.id, "file": str(file), "listings": part.progress.listings}

    show(with_service(use))


@click.command(name="import", short_help="Import an account's listings from a file.")
@click.argument("account")
@_FILE
@click.option("--dry-run", is_flag=True, help="Validate the rows that would be imported, and change nothing.")
@click.option("--new-ids", is_flag=True, help="Ignore the ids in FILE, but not the external ids.")
@click.option("--again", is_flag=True, help="Import the same file again, from its first row.")
@json_option
def import_(account: str, file: Path, *, dry_run: bool, new_ids: bool, again: bool) -> int:
    """Create and update listings of ACCOUNT from the rows of FILE.

    A row updates the listing with its id, or else with its external_id. Otherwise it creates one. Invalid rows are
    reported and skipped, and the exit code is then 1. ACCOUNT is an account id or an email address. The service may be
    running. Run the command again to continue an interrupted import.

    \b
    Example: listings import alice@example.com alice.csv --dry-run
    """

    async def use(services: Services) -> dict[str, Any]:
        owner = await services.accounts.find(account)
        with _opened(file) as opened, _progress_bar() as progress:
            source = ImportFile(opened, detect_format(file))
            reporter = _Reporter(file, source.size, progress)
            options = importer.ImportOptions(new_ids=new_ids, dry_run=dry_run, again=again)
            with _suggesting_again():
                done = await services.transfer.run_import(owner, source, reporter, options)
        return {"account_id": owner.id, "file": str(file)} | {
            "created": done.created,
            "updated": done.updated,
            "unchanged": done.unchanged,
            "rejected": done.rejected,
            "import_id": done.import_id,
        }

    counts = with_service(use, logger_name=importer.__name__)
    show(counts)
    if dry_run:
        print_dry_run()
    return 1 if counts["rejected"] else 0


class _Reporter:
    """Reports the progress and the invalid rows of an import on standard error."""

    def __init__(self, path: Path, size: int, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._task = progress.add_task("Reading", total=size, unit="bytes")
        self._ignored: set[str] = set()

    def on_resume(self, done: ImportProgress) -> None:
        rows = done.created + done.updated + done.unchanged + done.rejected
        print_message(f"Continuing after line {done.line} of {self._path}, with {format_count(rows, 'row')} done")

    def on_progress(self, phase: importer.ImportPhase, position: Position) -> None:
        self._progress.update(self._task, description=phase, completed=position.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        if isinstance(outcome, Problem):
            print_message(f"{self._path}:{row.line}: {outcome.message}")

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        for name in sorted(names - self._ignored)[: _MAX_IGNORED_COLUMNS - len(self._ignored)]:
            self._ignored.add(name)
            print_message(f"{self._path}: {name[:100]!r} is not a column of a listing and is ignored")


def _progress_bar() -> Progress:
    """Return a progress bar that is visible only on a terminal. Each task names its `unit`."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@contextmanager
def _reporting_errors(file: Path) -> Iterator[None]:
    """Convert OSError to Problem."""
    try:
        yield
    except OSError as error:
        raise Problem("invalid_request", f"{file} can't be used: {error.strerror}") from None


@contextmanager
def _suggesting_again() -> Iterator[None]:
    """Add the option --again to the error that the file was imported."""
    try:
        yield
    except Problem as problem:
        if problem.code != "already_imported":
            raise
        raise Problem(problem.code, f"{problem.message}: use --again to import it again") from None


@contextmanager
def _opened(file: Path) -> Iterator[BufferedReader]:
    """Open a regular file. The import reads it twice, so a pipe is rejected."""
    with _reporting_errors(file):
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem("invalid_request", f"{file} is not a regular file")
        with file.open("rb") as opened:
            yield opened
