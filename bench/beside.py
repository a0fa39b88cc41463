"""`python -m bench.beside`: what reads keep of their rate while others create, and the slowest creates of many runs."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from bench import RejectedRequest, data, machine, servers, wrk
from bench.command import tell, telling
from bench.data import Data
from bench.rounds import WARM_UP_SECONDS, write_requests
from bench.scenarios import SCENARIOS

READERS, CREATORS = 32, 8
_AHEAD = 1  # seconds that creates begin before the reads, and end behind them
_SCENARIOS = {row.name: row for row in SCENARIOS}


class Place(NamedTuple):
    """The data, the cores (server's, client's), a folder, and how many seconds a run lasts."""

    data: Data
    cores: tuple[int, int]
    folder: Path
    seconds: int


class Reads(NamedTuple):
    """Reads a second alone and beside creates, these a second, and the p99 of the reads beside them in milliseconds."""

    alone: float
    beside: float
    creates: float
    p99: float

    @property
    def kept(self) -> float:
        """Which part of their rate the reads have kept."""
        return self.beside / self.alone


@click.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=5, help="How often reads are measured. Default: 5")
@click.option("--creates", type=click.IntRange(0, 100), default=20, help="How many runs of creates. Default: 20")
@click.option("--seconds", type=click.IntRange(1, 600), default=10, help="How long a run lasts. Default: 10")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put.")
def main(*, rounds: int, creates: int, seconds: int, folder: Path | None) -> None:
    """Measure 32 connections that read one listing at a time, alone and beside 8 that create.

    Then 32 connections that create: the p99 of many runs, none of them set aside.

    \b
    Example: python -m bench.beside --rounds 1 --creates 2 --seconds 2
    """  # noqa: D301 - click's
    with telling(), tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        wrk.program()
        place = Path(name)
        measured = Place(data.fill(place / "filled.db"), machine.two_cores(), place, seconds)
        click.echo(told_of_reads([_reads(measured, number) for number in range(rounds)]))
        if creates:
            click.echo(told_of_creates([_slowest_create(measured, number) for number in range(creates)]))


def told_of_reads(runs: list[Reads]) -> str:
    """In a sentence: medians."""
    kept, alone, beside, created = (
        median(getattr(run, name) for run in runs) for name in ("kept", "alone", "beside", "creates")
    )
    return (
        f"Reads keep {kept:.0%} of their rate beside {CREATORS} connections that create (to be at least 55 %): "
        f"{alone:,.0f} alone, {beside:,.0f} beside {created:,.0f} creates a second; "
        f"p99 {median(run.p99 for run in runs):.2f} ms (to be at most 2)."
    )


def told_of_creates(p99: list[float]) -> str:
    """In a sentence, of the p99 of runs in milliseconds."""
    return (
        f"p99 of creates with {READERS} connections in {len(p99)} runs: median {median(p99):.1f} ms (to be at most 5), "
        f"worst {max(p99):.1f} ms (to be at most 12)."
    )


def _reads(place: Place, number: int) -> Reads:
    with _running(place) as (port, folder):
        alone = _drive(place, port, folder, "get one", READERS, place.seconds)
    with _running(place) as (port, folder):
        created: list[float] = []
        span = place.seconds + 2 * _AHEAD
        creating = threading.Thread(
            target=lambda: created.append(_drive(place, port, folder, "create", CREATORS, span).rate)
        )
        creating.start()
        time.sleep(_AHEAD)
        beside = _drive(place, port, folder, "get one", READERS, place.seconds)
        creating.join()
    if not created:
        raise RejectedRequest("The creates beside the reads were not measured")
    run = Reads(alone.rate, beside.rate, created[0], beside.p99 / 1000)
    tell(f"reads {number + 1}: {run.kept:.0%} kept, {run.alone:,.0f} alone, p99 {run.p99:.2f} ms")
    return run


def _slowest_create(place: Place, number: int) -> float:
    with _running(place) as (port, folder):
        p99 = _drive(place, port, folder, "create", READERS, place.seconds).p99 / 1000
    tell(f"creates {number + 1}: p99 {p99:.1f} ms")
    return p99


@contextmanager
def _running(place: Place) -> Iterator[tuple[int, Path]]:
    """A fresh service on a fresh copy, warm, its answers known to be right."""
    with tempfile.TemporaryDirectory(dir=place.folder) as name:
        folder = Path(name)
        for scenario in _SCENARIOS.values():
            (folder / scenario.name).mkdir()
            write_requests(scenario.requests(place.data), folder / scenario.name)
        with servers.service(place.data.database, folder, place.cores[0]) as server:
            for scenario in _SCENARIOS.values():
                scenario.check(place.data, server.port)
            _drive(place, server.port, folder, "get one", READERS, WARM_UP_SECONDS)
            yield server.port, folder


def _drive(place: Place, port: int, folder: Path, scenario: str, connections: int, seconds: int) -> wrk.Count:  # noqa: PLR0913, PLR0917 - what wrk asks for
    return wrk.drive(port, folder / scenario / "requests", connections, seconds, place.cores[1])


if __name__ == "__main__":
    main()
