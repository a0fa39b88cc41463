"""`listings export` and `listings import`: write an account's listings to a file, and import them from a file."""

import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from listings.cli.group import example
from listings.cli.output import create_file, is_json_wanted, json_option, print_dry_run, print_message, show
from listings.cli.parameters import Parsed
from listings.cli.service import with_service
from listings.domain.changes import format_pairs
from listings.domain.errors import Problem
from listings.domain.faults import preview
from listings.domain.imports import ImportProgress, Position, RowOutcome
from listings.domain.model import Account
from listings.domain.number_text import format_count
from listings.service import Services
from listings.service.transfer import importer
from listings.service.transfer.columns import IGNORED, ReadOptions
from listings.service.transfer.file_formats import ImportFile, begin_export, detect_format
from listings.service.transfer.rows import COLUMNS, Row
from listings.service.transfer.scan import IdChoiceRequired

_MAX_REPORTED_ROWS = 100
_MAX_IGNORED_COLUMNS = 20  # that are reported
_COUNTS = ("created", "updated", "restored", "deleted", "unchanged", "conflicts", "rejected")
_PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_NOTICES = {"cp1252": "is not UTF-8: it was read as Windows-1252"}


def _parse_file(text: str) -> Path:
    try:
        detect_format(Path(text))
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return Path(text)


_FILE = click.argument("file", type=Parsed("file", _parse_file), metavar="FILE.xlsx|FILE.csv|FILE.jsonl")


@click.command(short_help="Export an account's listings to a file.")
@example("listings export alice@example.com alice.csv")
@click.argument("account")
@_FILE
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
def export(account: str, file: Path, *, force: bool) -> None:
    """Export all listings of ACCOUNT to FILE, including inactive and deleted ones.

    ACCOUNT is an account id or an email address. The service may be running.
    """
    file_format = detect_format(file)

    async def use(services: Services) -> dict[str, Any]:
        owner = await services.accounts.find(account)
        exported = 0
        with create_file(file, overwrite=force) as part, _progress_bar() as progress:
            encoder = begin_export(file_format, await services.transfer.get_origin())
            part.write(encoder.header)
            task = progress.add_task("Exporting", total=None, unit="listings")
            async for page in services.transfer.read_pages(owner):
                part.write(encoder.encode(page))
                exported += len(page)
                progress.update(task, completed=exported)
            part.write(encoder.finish())
        return {"account_id": owner.id, "file": str(file), "listings": exported}

    show(with_service(use))


@click.command(name="import", short_help="Import an account's listings from a file.")
@example("listings import alice@example.com alice.csv --dry-run")
@click.argument("account")
@_FILE
@click.option("--dry-run", is_flag=True, help="Validate the rows that would be imported, and change nothing.")
@click.option("--ids", type=click.Choice(["new", "match"]), help="Import all rows as new, or match listings by id.")
@click.option("--overwrite", is_flag=True, help="Also replace changes since the export of FILE.")
@click.option("--map", "mapping", multiple=True, metavar="NAME=COLUMN", help="Import a column of FILE as this column.")
@click.option("--skip-variants", is_flag=True, help="Import only the first variant of each product of another shop.")
@click.option("--keep-html", is_flag=True, help="Do not convert HTML and \\n in descriptions to plain text.")
@click.option(
    "--pictures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="First upload the pictures of FOLDER, whose file names the rows may have.",
)
@click.option("--again", is_flag=True, help="Import the same file again, from its first row.")
@json_option
def import_(account: str, file: Path, *, dry_run: bool, again: bool, **chosen: Any) -> int:
    """Create and update listings of ACCOUNT from the rows of FILE.

    A row updates the listing with its id, or else with its external_id. Otherwise it creates one. Invalid rows are
    reported and skipped, and the exit code is then 1. ACCOUNT is an account id or an email address. The service may be
    running. If the account is full, the import stops. Run the command again to continue an interrupted import.
    """
    read_options = ReadOptions(_parse_mapping(chosen["mapping"]), chosen["keep_html"], chosen["skip_variants"])
    files = sorted(chosen["pictures"].iterdir()) if chosen["pictures"] is not None else []
    pictures = [one for one in files if one.suffix.lower() in _PICTURE_SUFFIXES]
    ids: importer.IdChoice = chosen["ids"] or "auto"
    import_options = importer.ImportOptions(
        ids=ids, overwrite=chosen["overwrite"], dry_run=dry_run, stops_when_full=True, again=again, name=file.name
    )

    async def use(services: Services) -> dict[str, Any]:
        owner = await services.accounts.find(account)
        expected = await _upload_pictures(services, owner, pictures, dry_run=dry_run)
        options = import_options._replace(expected_pictures=expected)
        with (
            _opened(file) as opened,
            closing(ImportFile(opened, detect_format(file), read_options)) as source,
            _progress_bar() as progress,
        ):
            if source.encoding in _NOTICES:
                print_message(f"{file} {_NOTICES[source.encoding]}")
            reporter = _Reporter(file, source.size, progress)
            with _suggesting_options(), closing(reporter):
                done = await services.transfer.run_import(owner, source, reporter, options)
        counts = {name: getattr(done, name) for name in _COUNTS}
        return {"account_id": owner.id, "file": str(file)} | counts | {"import_id": done.import_id}

    counts = with_service(use, logger_name=importer.__name__)
    show(counts)
    if dry_run:
        print_dry_run()
    return 1 if counts["rejected"] or counts["conflicts"] else 0


async def _upload_pictures(services: Services, owner: Account, files: Sequence[Path], *, dry_run: bool) -> list[str]:
    accepted = []  # the file names that a dry run takes for uploaded
    with _progress_bar() as progress:
        task = progress.add_task("Uploading", total=len(files), unit="pictures")
        for file in files:
            try:
                await services.pictures.add(owner.id, file, file.name, dry_run=dry_run)
                accepted.append(file.name)
            except Problem as problem:
                if problem.code != "invalid_image":
                    raise
                print_message(f"{file}: {problem.message}")
            progress.advance(task)
    return accepted if dry_run else []


def _parse_mapping(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.rpartition("=")[::2] for text in texts]
    for name, column in pairs:
        if not name or column not in (*COLUMNS, IGNORED):
            raise click.UsageError(f"--map must be NAME=COLUMN with one of {', '.join(COLUMNS)}, or {IGNORED}.")
    return {name.strip(): column for name, column in pairs}


class _Reporter:
    def __init__(self, path: Path, size: int, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._task = progress.add_task("Reading", total=size, unit="bytes")
        self._ignored: set[str] = set()
        self._rejected = 0

    def close(self) -> None:
        if self._rejected > _MAX_REPORTED_ROWS:
            print_message(f"{self._path}: {self._rejected - _MAX_REPORTED_ROWS:,} more rows are invalid")

    def on_resume(self, done: ImportProgress) -> None:
        rows = done.created + done.updated + done.unchanged + done.rejected
        print_message(f"Continuing after line {done.line} of {self._path}, with {format_count(rows, 'row')} done")

    def on_progress(self, phase: importer.ImportPhase, position: Position) -> None:
        self._progress.update(self._task, description=phase, completed=position.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        if isinstance(outcome, Problem):
            self._rejected += 1
            if self._rejected <= _MAX_REPORTED_ROWS:
                print_message(f"{self._path}:{row.line}: {outcome.message}")
        elif row.diff and not is_json_wanted():
            changes = "; ".join(
                f"{name}: {preview(old)} -> {preview(new)}" for name, (old, new) in format_pairs(row.diff).items()
            )
            print_message(f"{self._path}:{row.line}: would be {outcome}: {changes}")

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        for name in sorted(names - self._ignored)[: _MAX_IGNORED_COLUMNS - len(self._ignored)]:
            self._ignored.add(name)
            print_message(f"{self._path}: {name[:100]!r} is not a column of a listing and is ignored")


def _progress_bar() -> Progress:
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
def _suggesting_options() -> Iterator[None]:
    try:
        yield
    except IdChoiceRequired as problem:
        raise click.UsageError(f"{problem.message}: use --ids new to import all as new, or --ids match.") from None
    except Problem as problem:
        if problem.code != "already_imported":
            raise
        raise Problem(problem.code, f"{problem.message}: use --again to import it again") from None


@contextmanager
def _opened(file: Path) -> Iterator[BufferedReader]:
    try:  # the import reads the file twice, so a pipe is rejected
        if not stat.S_ISREG(file.stat().st_mode):
            raise Problem("invalid_request", f"{file} is not a regular file")
        with file.open("rb") as opened:
            yield opened
    except OSError as error:
        raise Problem("invalid_request", f"{file} can't be used: {error.strerror}") from None
