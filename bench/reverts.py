"""Measure reverts of a large account, without and with requests of others: `python -m bench.reverts`."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from bench import BenchmarkError, data, machine, wrk
from bench.command import log_progress, report_errors
from bench.data import Data, Owner
from bench.http_client import Request, Response, send, send_all
from bench.rounds import write_requests
from bench.scale.postgres import run_postgres
from bench.scenarios import SCENARIOS
from bench.servers import Server, run_server

CONNECTIONS, PAUSE_MILLISECONDS = 32, 20
_BATCHES, _CHANGES = "/api/v1/listings/batch", "/api/v1/changes"
_REVERT = f"{_CHANGES}/revert"
_BATCH = 100
_LOADS = ("get one", "create")
_MAX_SECONDS = 300.0  # of a revert
_IDLE_CORES = 0.1


class Figures(NamedTuple):
    """The seconds of a revert without other requests, and the p99 of others' requests without and with one, in ms."""

    seconds: float
    without: dict[str, float]
    during: dict[str, float]


class Shop(NamedTuple):
    """A service, the owner of the large account, and the others' requests by scenario."""

    server: Server
    owner: Owner
    requests: dict[str, Path]
    core: int
    seconds: int


@click.command()
@click.option("--listings", type=click.IntRange(_BATCH, 99_000), default=99_000, help="Default: 99,000")
@click.option("--rounds", type=click.IntRange(1, 20), default=3, help="Default: 3")
@click.option("--seconds", type=click.IntRange(1, 60), default=5, help="Duration of a load. Default: 5")
@click.option("--postgres", is_flag=True, help="Use a temporary PostgreSQL server instead of a SQLite file.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, listings: int, rounds: int, seconds: int, postgres: bool, folder: Path | None) -> None:
    """Change the prices of a large account, revert that, revert the revert, and so on.

    Meanwhile, 32 connections send requests of the other accounts, each with a pause of 20 ms after a response.

    \b
    Example: python -m bench.reverts --listings 2000 --rounds 1 --seconds 1
    """  # noqa: D301 - `\b` is click's
    with (
        report_errors(),
        tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name,
        ExitStack() as all_,
    ):
        wrk.find_wrk()
        cores = machine.choose_cores()
        url = f"sqlite:///{name}/listings.db"
        if postgres:
            url = all_.enter_context(run_postgres(Path(name), cores[1])).create_template()
        owners = data.fill_url(url, Path(name))
        requests = _write_requests(Data(Path(name), owners[1:], 0), Path(name))
        server = all_.enter_context(_run_service(url, Path(name), cores[0]))
        shop = Shop(server, owners[0], requests, cores[1], seconds)
        listings -= listings % _BATCH
        revert_id = _wait(shop, _start(shop, _edit(shop, listings)))
        figures = []
        for _ in range(rounds):
            measured, revert_id = _measure(shop, revert_id)
            figures.append(measured)
        click.echo(summarize(listings, figures))


def summarize(listings: int, figures: list[Figures]) -> str:
    """Return the medians as sentences."""
    lines = [f"Reverting {listings:,} listings takes {median(one.seconds for one in figures):.1f} s."]
    for name in _LOADS:
        without, during = (
            median(values[name] for values in kind) for kind in zip(*[one[1:] for one in figures], strict=True)
        )
        lines.append(
            f"p99 of others ({name}): {without:.1f} ms, and {during:.1f} during reverts (target: at most double)."
        )
    return "\n".join(lines)


@contextmanager
def _run_service(url: str, folder: Path, core: int) -> Iterator[Server]:
    settings = {
        "LISTINGS_DATABASE_URL": url,
        "LISTINGS_DATA_FOLDER": str(folder),
        "LISTINGS_RATE_LIMIT": "0",
        "LISTINGS_PORT": "0",
    }
    with run_server([str(Path(sys.executable).with_name("listings")), "serve"], settings, folder, core) as server:
        yield server


def _write_requests(others: Data, folder: Path) -> dict[str, Path]:
    files = {}
    for scenario in SCENARIOS:
        if scenario.name in _LOADS:
            (folder / scenario.name).mkdir()
            write_requests(scenario.requests(others), folder / scenario.name)
            files[scenario.name] = folder / scenario.name / "requests"
    return files


def _edit(shop: Shop, listings: int) -> dict[str, Any]:
    """Create listings, and change their prices later. Return the body that reverts the new prices."""
    create = {"op": "create", "listing": {"title": "Lamp", "content": "Brass. " * 30, "price": 5}}
    ids: list[int] = []
    for body in _send_batches(shop, [[create] * _BATCH] * (listings // _BATCH)):
        ids += [one["body"]["id"] for one in body["results"]]
    log_progress(f"created {len(ids):,} listings")
    created = _get(shop, f"{_CHANGES}?limit=0")["last"]
    time.sleep(2)  # the period of the revert has whole seconds
    updates = [{"op": "update", "id": listing_id, "changes": {"price": 7}} for listing_id in ids]
    for _ in _send_batches(shop, [updates[start : start + _BATCH] for start in range(0, len(updates), _BATCH)]):
        pass
    first = _get(shop, f"{_CHANGES}?after={created}&limit=1")["change_sets"][0]
    log_progress("changed their prices")
    return {"key": first["actor"]["id"], "since": first["time"]}


def _send_batches(shop: Shop, batches: list[list[dict[str, Any]]]) -> Iterator[Any]:
    requests = (Request("POST", _BATCHES, shop.owner.key, json.dumps({"operations": batch})) for batch in batches)
    for response in send_all(shop.server.port, requests):
        yield _require(response)


def _measure(shop: Shop, revert_id: int) -> tuple[Figures, int]:
    """Measure one revert without load, and the loads without and with reverts.

    Each revert undoes the one before. Return the figures and the id of the last revert.
    """
    _wait_until_idle(shop)
    without = {name: _load(shop, name) for name in _LOADS}
    started = time.monotonic()
    revert_id = _wait(shop, _start(shop, {"revert": revert_id}))
    seconds = time.monotonic() - started
    during = {}
    with ThreadPoolExecutor(1) as pool:
        for name in _LOADS:
            loading = pool.submit(_load, shop, name)
            while not loading.done():
                revert_id = _wait(shop, _start(shop, {"revert": revert_id}))
            during[name] = loading.result()
    log_progress(f"{seconds:.1f} s; p99 without reverts {without}, during them {during}")
    return Figures(seconds, without, during), revert_id


def _start(shop: Shop, body: dict[str, Any]) -> int:
    """Start a revert and return its id."""
    response = send(shop.server.port, Request("POST", _REVERT, shop.owner.key, json.dumps(body)))
    return int(_require(response)["id"])


def _wait(shop: Shop, revert_id: int) -> int:
    """Wait for the end of a revert and return its id."""
    end = time.monotonic() + _MAX_SECONDS
    while _get(shop, f"{_REVERT}s/{revert_id}")["status"] == "running":
        if time.monotonic() > end:
            raise BenchmarkError("The revert does not end")
        time.sleep(0.05)
    return revert_id


def _wait_until_idle(shop: Shop) -> None:
    """Wait until the service has indexed the changed listings for the market."""
    end = time.monotonic() + _MAX_SECONDS
    used = shop.server.get_processor_seconds()
    while time.monotonic() < end:
        time.sleep(1)
        before, used = used, shop.server.get_processor_seconds()
        if used - before < _IDLE_CORES:
            return
    raise BenchmarkError("The service does not become idle")


def _load(shop: Shop, name: str) -> float:
    """Send the others' requests and return their p99 in milliseconds."""
    pause = PAUSE_MILLISECONDS
    return (
        wrk.run_wrk(shop.server.port, shop.requests[name], CONNECTIONS, shop.seconds, shop.core, pause=pause).p99 / 1000
    )


def _get(shop: Shop, path: str) -> Any:  # noqa: ANN401 - JSON
    return _require(send(shop.server.port, Request("GET", path, shop.owner.key)))


def _require(response: Response) -> Any:  # noqa: ANN401 - JSON
    """Return the body of a success."""
    if response.status not in {200, 202}:
        raise BenchmarkError(f"Wrong response: {response.status} {response.body[:120].decode('utf-8', 'replace')}")
    return response.json()


if __name__ == "__main__":
    main()
