"""Measure clients that wait for changes: memory, processor time and delay: `python -m bench.waiting`."""

import json
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from bench import BenchmarkError, data
from bench.command import log_progress, report_errors
from bench.data import Owner
from bench.http_client import Request, send
from bench.machine import list_processes
from bench.servers import Server, run_server

_CHANGES = "/api/v1/changes"
_RESPONSE_SECONDS = 10.0
_WARM_UP_CLIENTS = 100
_EVERY_CORE = tuple(sorted(os.sched_getaffinity(0)))
_CREATE = json.dumps({"title": "Lamp", "content": "Brass."})


class Figures(NamedTuple):
    """Memory per client (KiB), the part of a core that all waits take, and each write's sorted delays (ms)."""

    clients: int
    memory: float
    processor: float
    delays: list[list[float]]


class Plan(NamedTuple):
    """The numbers of clients and of writes, and the duration of each step in seconds."""

    clients: int
    writes: int
    seconds: int


class Client(NamedTuple):
    """A connection of an account's program."""

    owner: Owner
    connection: socket.socket

    def poll(self, after: int) -> None:
        """Wait for a change."""
        self.connection.sendall(Request("GET", f"{_CHANGES}?after={after}&timeout=30", self.owner.key).encode())


@click.command()
@click.option("--clients", "count", type=click.IntRange(1, 1600), default=1000, help="Waiting clients. Default: 1000")
@click.option("--workers", type=click.IntRange(1, 64), default=4, help="Processes of the service. Default: 4")
@click.option("--writes", type=click.IntRange(1, 150), default=100, help="Writes to wait for. Default: 100")
@click.option("--seconds", type=click.IntRange(1, 5), default=3, help="Duration of each step. Default: 3")
@click.option("--database", help="URL of an empty PostgreSQL database. Default: a SQLite file")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, count: int, workers: int, writes: int, seconds: int, database: str | None, folder: Path | None) -> None:
    """Measure clients of 100 accounts that wait for changes.

    \b
    Example: python -m bench.waiting --clients 100 --writes 10
    """  # noqa: D301 - `\b` is click's
    with (
        report_errors(),
        tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name,
        ExitStack() as all_,
    ):
        url = database or f"sqlite:///{name}/listings.db"
        owners = data.fill_url(url, Path(name))
        server = all_.enter_context(_run_service(url, Path(name), workers))
        click.echo(summarize(_measure(server, owners, Plan(count, writes, seconds))))


def summarize(figures: Figures) -> str:
    """Return the figures as sentences."""
    first, last = ([delays[index] for delays in figures.delays] for index in (0, -1))
    return (
        f"{figures.clients:,} waiting clients take {figures.memory * figures.clients / 1024:.1f} MiB, "
        f"{figures.memory:.1f} KiB each, and {figures.processor:.1%} of a core.\n"
        f"From sending a write to its first response: median {median(first):.0f} ms, maximum {max(first):.0f} ms; "
        f"to the last one of the account's clients: {median(last):.0f} and {max(last):.0f} ms."
    )


@contextmanager
def _run_service(url: str, folder: Path, workers: int) -> Iterator[Server]:
    settings = {
        "LISTINGS_DATABASE_URL": url,
        "LISTINGS_DATA_FOLDER": str(folder),
        "LISTINGS_WORKERS": str(workers),
        "LISTINGS_RATE_LIMIT": "0",
        "LISTINGS_PORT": "0",
    }
    with run_server(
        [str(Path(sys.executable).with_name("listings")), "serve"], settings, folder, _EVERY_CORE
    ) as server:
        yield server


def _measure(server: Server, owners: tuple[Owner, ...], plan: Plan) -> Figures:
    paths = {owner.key: Request("GET", f"{_CHANGES}?limit=0", owner.key) for owner in owners}
    last = {key: int(send(server.port, request).json()["last"]) for key, request in paths.items()}
    with _connect(server, owners, _WARM_UP_CLIENTS, last):
        time.sleep(plan.seconds)
    before = _sum_memory(server)
    with _connect(server, owners, plan.clients, last) as clients:
        time.sleep(plan.seconds)
        memory = (_sum_memory(server) - before) / plan.clients
        log_progress(f"{plan.clients} clients wait")
        started = server.get_processor_seconds()
        time.sleep(plan.seconds)
        processor = (server.get_processor_seconds() - started) / plan.seconds
        delays = [_write(server, clients, number, last) for number in range(plan.writes)]
    return Figures(plan.clients, memory, processor, delays)


@contextmanager
def _connect(server: Server, owners: tuple[Owner, ...], count: int, last: Mapping[str, int]) -> Iterator[list[Client]]:
    """Connect clients of all accounts in turn, each of which waits for the next change."""
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            clients.append(Client(owners[number % len(owners)], connection))
            clients[-1].poll(last[clients[-1].owner.key])
        yield clients


def _write(server: Server, clients: list[Client], number: int, last: dict[str, int]) -> list[float]:
    """Create a listing, and return how long the clients of its account waited, in milliseconds."""
    owner = clients[number % len(clients)].owner
    with selectors.DefaultSelector() as waiting:
        for client in clients:
            if client.owner is owner:
                waiting.register(client.connection, selectors.EVENT_READ, client)
        started = time.monotonic()
        if send(server.port, Request("POST", "/api/v1/listings", owner.key, _CREATE)).status != 201:  # noqa: PLR2004
            raise BenchmarkError("A create failed")
        last[owner.key] += 1
        return [(moment - started) * 1000 for moment in _read_responses(waiting, last[owner.key])]


def _read_responses(waiting: selectors.BaseSelector, last: int) -> Iterator[float]:
    """Read the responses and wait again. Yield when each arrived."""
    while waiting.get_map():
        ready = waiting.select(_RESPONSE_SECONDS)
        moment = time.monotonic()
        if not ready:
            raise BenchmarkError("A waiting client got no response")
        for found, _ in ready:
            waiting.unregister(found.fileobj)
            if b'"kind":"created"' not in found.data.connection.recv(1 << 18):
                raise BenchmarkError("The response has no change")
            found.data.poll(last)
            yield moment


def _sum_memory(server: Server) -> float:
    """Return the private memory of all processes, in KiB."""
    return sum(_read_private(pid) for pid in list_processes(server.process.pid))


def _read_private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    main()
