"""`listings doctor`: look whether all is well, and say what to do where it is not."""

import os

import click

from listings.cli import checks
from listings.cli.check_result import Finding
from listings.cli.output import json_option, show_rows
from listings.cli.parameters import given_of
from listings.settings import unknown

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}
EXIT_FAULT = 1


@click.command(short_help="Look whether all is well, and say what to do where it is not.")
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> int:
    """Check settings, database, rights, disk, clock and service; for all that is not well, say what to do.

    Nothing is changed, and the service may run. The exit code is 1 when there is a fault.

    \b
    Example: listings doctor
    """
    findings = list(checks.examine(given_of(context), unknown(os.environ)))
    show_rows(Finding._fields, [finding._asdict() for finding in findings], as_json=as_json, styles=_STYLES)
    return EXIT_FAULT if any(finding.verdict == "fault" for finding in findings) else 0
