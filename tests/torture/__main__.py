"""Run the reliability tests one after the other and print the results: `python -m tests.torture`."""

import sys
from pathlib import Path

import click

from bench.command import log_progress, report_errors
from tests.torture.registry import run_all, select_instruments
from tests.torture.table import build_row, format_table, write_table

_MAX_MINUTES = 75.0


@click.command()
@click.option("--short", is_flag=True, help="Run the short form; the figures mean little.")
@click.option("--only", metavar="NUMBERS", help="Run these instruments only, for example 1,4. Default: all")
@click.option("--minutes", type=click.FloatRange(0.1, 600), help="Total time for all instruments. Default: at most 75")
@click.option("--write", "writes", is_flag=True, help="Also write the table to docs/reliability.md.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, short: bool, only: str | None, minutes: float | None, writes: bool, folder: Path | None) -> None:
    """Try to make the service break its guarantees.

    Exits with 1 if an instrument finds a failure, or if its control does not find the injected fault.

    \b
    Example: python -m tests.torture --only 1,4 --minutes 10
    """
    if short and (writes or minutes):
        raise click.UsageError("--short cannot be combined with --write or --minutes: its result is not worth storing")
    with report_errors():
        instruments = select_instruments(only)
        minutes_of_all = sum(one.minutes for one in instruments)
        fraction = None if short else (minutes or min(minutes_of_all, _MAX_MINUTES)) / minutes_of_all
        results = run_all(instruments, fraction, folder, log_progress)
        click.echo(format_table(map(build_row, results)))
        if writes:
            write_table(results)
    sys.exit(0 if all(result.is_passed for result in results) else 1)


if __name__ == "__main__":
    main()
