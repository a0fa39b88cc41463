"""`listings doctor`: check the installation and suggest fixes."""

import os

import click

from listings.cli import checks
from listings.cli.check_result import Finding
from listings.cli.output import json_option, show_rows
from listings.cli.parameters import given_of
from listings.settings import find_unknown_variables

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}
EXIT_FAULT = 1


@click.command(short_help="Check the installation and suggest fixes.")
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> int:
    """Check settings, database, permissions, disk, clock and service, and suggest how to fix each problem.

    Nothing is changed, and the service may be running. The exit code is 1 if there is a fault.

    \b
    Example: listings doctor
    """
    findings = list(checks.examine(given_of(context), find_unknown_variables(os.environ)))
    show_rows(Finding._fields, [finding._asdict() for finding in findings], as_json=as_json, styles=_STYLES)
    return EXIT_FAULT if any(finding.verdict == "fault" for finding in findings) else 0
