"""Measure reads during creates, and the slowest creates of many runs: `python -m bench.concurrent_creates`."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from bench import BenchmarkError, data, machine, servers, wrk
from bench.command import log_progress, report_errors
from bench.data import Data
from bench.rounds import WARM_UP_SECONDS, write_requests
from bench.scenarios import SCENARIOS

READERS, CREATORS = 32, 8
_LEAD_SECONDS = 1  # creates begin this long before the reads, and end this long after them
_SCENARIOS = {row.name: row for row in SCENARIOS}


class Setup(NamedTuple):
    """The data, the cores of server and client, a folder, and the duration of a run in seconds."""

    data: Data
    cores: tuple[int, int]
    folder: Path
    seconds: int


class Reads(NamedTuple):
    """Reads per second alone and during creates, creates per second, and the p99 of reads during creates in ms."""

    alone: float
    during_creates: float
    creates: float
    p99: float

    @property
    def fraction_kept(self) -> float:
        """Return the fraction of their rate that reads keep during creates."""
        return self.during_creates / self.alone


@click.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=5, help="Number of measurements of reads. Default: 5")
@click.option("--creates", type=click.IntRange(0, 100), default=20, help="Number of runs of creates. Default: 20")
@click.option("--seconds", type=click.IntRange(1, 600), default=10, help="Duration of a run. Default: 10")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, rounds: int, creates: int, seconds: int, folder: Path | None) -> None:
    """Measure 32 connections that read single listings, alone and while 8 others create listings.

    Then measure 32 connections that create listings: the p99 of many runs, all of them counted.

    \b
    Example: python -m bench.concurrent_creates --rounds 1 --creates 2 --seconds 2
    """  # noqa: D301 - `\b` is click's
    with report_errors(), tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        wrk.find_wrk()
        folder_ = Path(name)
        setup = Setup(data.fill(folder_ / "filled.db"), machine.choose_cores(), folder_, seconds)
        click.echo(summarize_reads([_measure_reads(setup, number) for number in range(rounds)]))
        if creates:
            click.echo(summarize_creates([_measure_creates(setup, number) for number in range(creates)]))


def summarize_reads(runs: list[Reads]) -> str:
    """Return the medians as a sentence."""
    fraction, alone, during_creates, created = (
        median(getattr(run, name) for run in runs) for name in ("fraction_kept", "alone", "during_creates", "creates")
    )
    return (
        f"Reads keep {fraction:.0%} of their rate while {CREATORS} connections create (target: at least 55%): "
        f"{alone:,.0f} per second alone, {during_creates:,.0f} during {created:,.0f} creates per second; "
        f"p99 {median(run.p99 for run in runs):.2f} ms (target: at most 2)."
    )


def summarize_creates(p99: list[float]) -> str:
    """Return the median and the maximum of the runs' p99 (milliseconds) as a sentence."""
    return (
        f"p99 of creates with {READERS} connections in {len(p99)} runs: "
        f"median {median(p99):.1f} ms (target: at most 5), "
        f"maximum {max(p99):.1f} ms (target: at most 12)."
    )


def _measure_reads(setup: Setup, number: int) -> Reads:
    with _run_service(setup) as (port, folder):
        alone = _run_wrk(setup, port, folder, "get one", READERS, setup.seconds)
    with _run_service(setup) as (port, folder):
        created: list[float] = []
        total_seconds = setup.seconds + 2 * _LEAD_SECONDS
        creating = threading.Thread(
            target=lambda: created.append(_run_wrk(setup, port, folder, "create", CREATORS, total_seconds).rate)
        )
        creating.start()
        time.sleep(_LEAD_SECONDS)
        during_creates = _run_wrk(setup, port, folder, "get one", READERS, setup.seconds)
        creating.join()
    if not created:
        raise BenchmarkError("The creates during the reads were not measured")
    result = Reads(alone.rate, during_creates.rate, created[0], during_creates.p99 / 1000)
    log_progress(f"reads {number + 1}: {result.fraction_kept:.0%} of {result.alone:,.0f}, p99 {result.p99:.2f} ms")
    return result


def _measure_creates(setup: Setup, number: int) -> float:
    with _run_service(setup) as (port, folder):
        p99 = _run_wrk(setup, port, folder, "create", READERS, setup.seconds).p99 / 1000
    log_progress(f"creates {number + 1}: p99 {p99:.1f} ms")
    return p99


@contextmanager
def _run_service(setup: Setup) -> Iterator[tuple[int, Path]]:
    """Start the service on a new copy of the data, check its responses, and warm it up."""
    with tempfile.TemporaryDirectory(dir=setup.folder) as name:
        folder = Path(name)
        for scenario in _SCENARIOS.values():
            (folder / scenario.name).mkdir()
            write_requests(scenario.requests(setup.data), folder / scenario.name)
        with servers.run_service(setup.data.database, folder, setup.cores[0]) as server:
            for scenario in _SCENARIOS.values():
                scenario.check(setup.data, server.port)
            _run_wrk(setup, server.port, folder, "get one", READERS, WARM_UP_SECONDS)
            yield server.port, folder


def _run_wrk(setup: Setup, port: int, folder: Path, scenario: str, connections: int, seconds: int) -> wrk.Count:
    return wrk.run_wrk(port, folder / scenario / "requests", connections, seconds, setup.cores[1])


if __name__ == "__main__":
    main()
