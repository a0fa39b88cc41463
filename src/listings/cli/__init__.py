"""The operator's command line. Data goes to standard output, everything else to standard error."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from listings import __version__, is_compiled
from listings.cli.group import LazyGroup
from listings.cli.parameters import SettingText
from listings.domain.errors import Problem

EXIT_REFUSED = 1

_PLACES = {
    "account": "listings.cli.accounts:account",
    "backup": "listings.cli.backup:backup",
    "completion": "listings.cli.completion:completion",
    "conform": "listings.cli.conform:conform",
    "copy": "listings.cli.copy:copy",
    "delete": "listings.cli.listing:delete",
    "doctor": "listings.cli.doctor:doctor",
    "export": "listings.cli.transfer:export",
    "import": "listings.cli.transfer:import_",
    "key": "listings.cli.keys:key",
    "list": "listings.cli.listing:list_listings",
    "migrate": "listings.cli.migrate:migrate",
    "restore": "listings.cli.backup:restore",
    "serve": "listings.cli.serve:serve",
    "settings": "listings.cli.settings:settings",
    "show": "listings.cli.listing:show_listing",
    "undelete": "listings.cli.listing:undelete",
}


@click.group(
    name="listings",
    cls=LazyGroup,
    places=_PLACES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(f"{__version__}, compiled" if is_compiled() else __version__, prog_name="listings")
@click.option(
    "--database-url",
    type=SettingText("database"),
    help="Where the data is: sqlite:///PATH or postgresql://…. Else LISTINGS_DATABASE_URL, else sqlite:///data/listings.db.",
)
@click.pass_context
def listings(context: click.Context, database_url: str | None) -> None:
    """Listings: sellers manage their marketplace listings by program."""
    context.obj = {"database": database_url}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 refused, 2 wrong usage."""
    _open_closed_streams()
    code = _run(arguments)
    _drop_unwritten()
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome = listings.main(arguments, prog_name="listings", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Problem as problem:
        return _refuse(problem.message)
    except BrokenPipeError:
        return EXIT_REFUSED
    except (click.Abort, KeyboardInterrupt):
        return _refuse("Stopped")
    except Exception as error:  # noqa: BLE001 - never a traceback
        return _refuse(_told(error))
    return outcome if isinstance(outcome, int) else 0


def unwritten(error: OSError) -> str:
    """What is said where standard output can't be written."""
    return f"Can't write the output: {error.strerror}"


def _open_closed_streams() -> None:
    """Of what was closed before the program began: what is told then is lost, and what is printed fails."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _is_stuck() -> bool:
    """Whether standard output can't take what was printed."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and _is_stuck():
        return unwritten(error)
    return f"This should not have happened, please report it: {type(error).__name__}: {error}"


def _drop_unwritten() -> None:
    """Of what can't be written: the interpreter's last flush would fail once more, and make the exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _refuse(sentence: str) -> int:
    with suppress(OSError):  # then nobody can be told
        click.echo(f"listings: {sentence}", err=True)
    return EXIT_REFUSED
