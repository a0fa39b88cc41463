"""`listings doctor`: check the installation and suggest fixes."""

import os

import click

from listings.cli import checks
from listings.cli.group import example
from listings.cli.output import json_option, show_rows
from listings.cli.parameters import survey_settings
from listings.cli.shared_checks import Finding
from listings.settings import find_removed_variables, find_unknown_variables

_STYLES = {"ok": "green", "warning": "yellow", "fault": "bold red"}


@click.command(short_help="Check the installation and suggest fixes.")
@example("listings doctor")
@click.option("--full", is_flag=True, help="Also check all pages of the SQLite database, which may take minutes.")
@click.option("--offline", is_flag=True, help="The service may be stopped.")
@json_option
def doctor(*, full: bool, offline: bool) -> int:
    """Check settings, service, database, permissions, disk and clock, and suggest how to fix each problem.

    Nothing is changed. The exit code is 1 if there is a fault, such as a service that is not running.
    """
    unknown, removed = find_unknown_variables(os.environ), find_removed_variables(os.environ)
    results = list(checks.run_checks(survey_settings(), unknown, removed, is_full=full, is_offline=offline))
    show_rows(("check", *Finding._fields), [{"check": name, **found._asdict()} for name, found in results], _STYLES)
    return int(any(found.verdict == "fault" for _, found in results))
