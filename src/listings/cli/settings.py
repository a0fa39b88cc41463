"""`listings settings`: show every setting, its value and the source of the value."""

import os

import click

from listings.cli.group import example
from listings.cli.output import Data, json_option, print_message, show_rows
from listings.cli.parameters import survey_settings
from listings.domain.errors import Problem
from listings.settings import ResolvedSetting, build_settings, find_removed_variables, find_unknown_variables


@click.command(short_help="Show every setting and the source of its value.")
@example("listings settings")
@json_option
def settings() -> None:
    """Show every setting, its value, and its source: the default, an environment variable, a file or a flag.

    Passwords are masked. Invalid values are reported, and the exit code is then 1. Unknown variables that begin with
    LISTINGS_ are reported too.
    """
    given = survey_settings()
    show_rows(("setting", "value", "from"), map(_row, given))
    for name in find_unknown_variables(os.environ):
        print_message(f"{name} is not a setting and is ignored")
    if warning := build_settings(given).warning:
        print_message(warning)
    faults = [*(value.error for value in given if value.error), *find_removed_variables(os.environ)]
    if faults:
        raise Problem("invalid_setting", "; ".join(faults))


def _row(given: ResolvedSetting) -> Data:
    row = {"setting": given.setting.variables[0], "value": given.redacted or None, "from": given.source}
    return row | {"fault": given.error or None}
