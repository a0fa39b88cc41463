"""`listings settings`: every setting, its value, and where that came from."""

import os

import click

from listings.cli.output import Data, json_option, show_rows, tell
from listings.cli.parameters import given_of
from listings.domain.errors import Problem
from listings.settings import Given, unknown


@click.command(short_help="Show every setting and where its value came from.")
@json_option
@click.pass_context
def settings(context: click.Context, *, as_json: bool) -> None:
    """Show every setting, the value in force, and where it came from: the default, a variable, a file or a flag.

    Passwords are not shown. A wrong value is named, and the exit code is 1. Variables that are called like settings and
    are none are named, too.

    \b
    Example: listings settings
    """
    given = given_of(context)
    show_rows(("setting", "value", "from"), map(_row, given), as_json=as_json)
    for name in unknown(os.environ):
        tell(f"{name} is no setting, and changes nothing")
    faults = [one.fault for one in given if one.fault]
    if faults:
        raise Problem("invalid_setting", "; ".join(faults))


def _row(given: Given) -> Data:
    row = {"setting": given.setting.variables[0], "value": given.shown or None, "from": given.source}
    return row | {"fault": given.fault or None}
