"""`python -m tests.torture`: the long tests, one after the other, with a table at the end."""

import sys
from pathlib import Path

import click

from bench.command import tell, telling
from tests.torture.registry import chosen, try_all
from tests.torture.table import keep, row_of, table

_LONGEST = 60.0  # minutes


@click.command()
@click.option("--short", is_flag=True, help="As the tests do: to try it, no figures to believe.")
@click.option("--only", metavar="NUMBERS", help="Instruments by their numbers, such as 1,4. Default: all")
@click.option("--minutes", type=click.FloatRange(0.1, 600), help="How long all may take together. Default: 60 or less")
@click.option("--write", "writes", is_flag=True, help="Write the table into docs/reliability.md as well.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put.")
def main(*, short: bool, only: str | None, minutes: float | None, writes: bool, folder: Path | None) -> None:
    """Try to make the service break what it promises, in every way that there is an instrument for.

    Ends with 1 when one has found something, or has not found what was planted.

    \b
    Example: python -m tests.torture --only 1,4 --minutes 10
    """
    if short and (writes or minutes):
        raise click.UsageError("A short result is not worth keeping: leave out --short, or --write and --minutes")
    with telling():
        wanted = chosen(only)
        whole = sum(one.minutes for one in wanted)
        part = None if short else (minutes or min(whole, _LONGEST)) / whole
        trials = try_all(wanted, part, folder, tell)
        click.echo(table(map(row_of, trials)))
        if writes:
            keep(trials)
    sys.exit(0 if all(trial.is_passed for trial in trials) else 1)


if __name__ == "__main__":
    main()
