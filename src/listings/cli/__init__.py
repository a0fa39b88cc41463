"""The operator's command line. Data goes to standard output, all messages go to standard error."""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from listings import __version__, is_compiled
from listings.cli.group import LazyGroup
from listings.cli.parameters import setting_option
from listings.domain.errors import Problem

EXIT_ERROR = 1

_COMMANDS = {
    "account": "listings.cli.accounts:account",
    "backup": "listings.cli.database:backup",
    "compact": "listings.cli.database:compact",
    "completion": "listings.cli.completion:completion",
    "copy": "listings.cli.database:copy",
    "delete": "listings.cli.moderation:delete",
    "doctor": "listings.cli.doctor:doctor",
    "export": "listings.cli.transfer:export",
    "inbox": "listings.cli.moderation:inbox",
    "import": "listings.cli.transfer:import_",
    "key": "listings.cli.keys:key",
    "list": "listings.cli.moderation:list_listings",
    "market": "listings.cli.market:market",
    "migrate": "listings.cli.database:migrate",
    "operator": "listings.cli.operators:operator",
    "picture": "listings.cli.moderation:picture",
    "reload": "listings.cli.reload:reload",
    "report": "listings.cli.report:report",
    "restore": "listings.cli.database:restore",
    "restored": "listings.cli.database:restored",
    "serve": "listings.cli.serve:serve",
    "settings": "listings.cli.settings:settings",
    "show": "listings.cli.moderation:show_listing",
    "takedown": "listings.cli.moderation:takedown",
    "undelete": "listings.cli.moderation:undelete",
}
_SYNONYMS = {
    "check": "doctor",
    "close": "delete",
    "config": "settings",
    "get": "show",
    "init": "migrate",
    "ls": "list",
    "reopen": "undelete",
    "restart": "reload",
    "rm": "delete",
    "run": "serve",
    "start": "serve",
    "stats": "report",
    "upgrade": "migrate",
    "vacuum": "compact",
}


@click.group(
    name="listings",
    cls=LazyGroup,
    import_paths=_COMMANDS,
    synonyms=_SYNONYMS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(f"{__version__}, compiled" if is_compiled() else __version__, prog_name="listings")
@setting_option(
    "database",
    metavar="URL",
    help="The database: sqlite:///PATH or postgresql://… Default: LISTINGS_DATABASE_URL, or sqlite:///data/listings.db",
)
@click.pass_context
def listings(context: click.Context, database: str | None) -> None:
    """Run and manage Listings, an API for marketplace listings.

    \b
    Try it:   listings serve --demo
    Set up:   listings migrate, listings account create, listings key create, listings serve
    """
    context.obj = {"database": database}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0 on success, 1 on failure, 2 on wrong usage."""
    if sys.stdout is None:  # it was closed before the program started: writing then fails
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED: `_describe` needs a buffer
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    code = _run(arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # discard the rest, or the interpreter's last flush fails, with exit code 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome = listings.main(arguments, prog_name="listings", standalone_mode=False)
    except click.ClickException as error:
        with suppress(OSError):  # standard error may be closed
            error.show()
        return error.exit_code
    except Problem as problem:
        return _print_error(problem.message)
    except BrokenPipeError:
        return EXIT_ERROR
    except (click.Abort, KeyboardInterrupt):
        return _print_error("Stopped")
    except Exception as error:  # noqa: BLE001 - never a traceback
        return _print_error(_describe(error))
    return outcome if isinstance(outcome, int) else 0


def describe_output_error(error: OSError) -> str:
    """Return the message for an error while writing to standard output."""
    return f"Can't write the output: {error.strerror}"


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        try:
            sys.stdout.flush()
        except OSError:
            return describe_output_error(error)
    return f"Unexpected error, please report it: {type(error).__name__}: {error}"


def _print_error(message: str) -> int:
    with suppress(OSError):  # standard error may be closed
        click.echo(f"listings: {message}", err=True)
    return EXIT_ERROR
