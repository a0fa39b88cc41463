"""`listings doctor`: check the installation and suggest fixes."""

import os

import click

from listings.cli import checks
from listings.cli.check_result import Finding
from listings.cli.output import json_option, show_rows
from listings.cli.parameters import survey_settings
from listings.settings import find_removed_variables, find_unknown_variables

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}


@click.command(short_help="Check the installation and suggest fixes.")
@json_option
def doctor() -> int:
    """Check settings, database, permissions, disk, clock and service, and suggest how to fix each problem.

    Nothing is changed, and the service may be running. The exit code is 1 if there is a fault.

    \b
    Example: listings doctor
    """
    unknown, removed = find_unknown_variables(os.environ), find_removed_variables(os.environ)
    results = list(checks.run_checks(survey_settings(), unknown, removed))
    show_rows(("check", *Finding._fields), [{"check": name, **found._asdict()} for name, found in results], _STYLES)
    return int(any(found.verdict == "fault" for _, found in results))
