"""The candidates: the service, its peers, and a limit that returns a constant response."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from bench import BenchmarkError, servers
from bench.data import Data, Owner
from bench.http_client import Response, send
from bench.peers.definitions import Peer
from bench.peers.installation import find_last_error, format_command
from bench.rounds import count_rows
from bench.scenarios import Scenario
from bench.servers import Server

Kind: TypeAlias = Literal["service", "peer", "limit"]

_LOAD_TIMEOUT_SECONDS = 120


class StartOptions(NamedTuple):
    """The options of a server: the service's response, for the limits, and the rate window in seconds."""

    folder: Path
    core: int
    response: Response
    window: int = 1


class Candidate(NamedTuple):
    """A server under comparison; while it runs, its database is `listings.db` in its folder."""

    name: str
    kind: Kind
    data: Data
    """Its test data; the keys may be its own."""
    expired: str
    """The key of an account without listings and with an expired plan."""
    run: Callable[[StartOptions], AbstractContextManager[Server]]
    scenarios: frozenset[str] | None = None
    """The scenarios that it supports; None if it supports all."""
    count_rows: Callable[[Path], int] = lambda folder: count_rows(folder / "listings.db")
    """Counts the listings in its folder after it has stopped."""

    def can_run(self, scenario: Scenario) -> bool:
        """Return whether it supports the scenario."""
        return self.scenarios is None or scenario.name in self.scenarios

    def check(self, scenario: Scenario, port: int, expected: Response) -> Response:
        """Return its response. Raise BenchmarkError if it is wrong."""
        if self.kind != "limit":
            return scenario.check(self.data, port)
        response = send(port, scenario.requests(self.data)[0])
        require_same_response(response, expected)
        return response


def build_service(data: Data, expired: str) -> Candidate:
    """Build the service as `make run` starts it."""

    def run(start: StartOptions) -> AbstractContextManager[Server]:
        return servers.run_service(data.database, start.folder, start.core, window=start.window)

    return Candidate("Listings", "service", data, expired, run)


def build_peer(peer: Peer, data: Data, expired: str) -> Candidate:
    """Build a peer on its own database and with its own keys."""

    @contextmanager
    def run(start: StartOptions) -> Iterator[Server]:
        database, port = start.folder / "listings.db", servers.find_free_port()
        shutil.copyfile(data.database, database)
        environment = {"DATABASE": str(database), "RATE_WINDOW": str(start.window), "PORT": str(port)}
        command = format_command(peer, peer.serve, port=port)
        with servers.run_server(
            command, environment, start.folder, start.core, working_folder=peer.home, port=port
        ) as server:
            yield server

    return Candidate(peer.title, "peer", data, expired, run, peer.scenarios)


def build_constant_body(data: Data) -> Candidate:
    """Build plain uvicorn with the service's response."""

    def run(start: StartOptions) -> AbstractContextManager[Server]:
        return servers.run_reference(start.response, start.folder, start.core)

    return Candidate("constant body", "limit", data, "", run)


def load_peer(peer: Peer, source: Data, expired: str, folder: Path) -> Candidate:
    """Load the service's data into a peer's database. Raise BenchmarkError if that fails."""
    database, log = folder / f"{peer.name}.db", folder / f"{peer.name}.log"
    environment = {"DATABASE": str(database)}
    output = b""
    for command in peer.load:
        output = _run(format_command(peer, command, source=source.database), peer, environment, log)
    *owners, stranger = replace_keys((*source.owners, Owner(expired, ())), json.loads(output))
    return build_peer(peer, source._replace(database=database, owners=tuple(owners)), stranger.key)


def replace_keys(owners: tuple[Owner, ...], keys: dict[str, str]) -> tuple[Owner, ...]:
    """Return the owners with the new keys that a peer created, by account number from 1."""
    return tuple(
        owner._replace(key=keys.get(str(working_folder), owner.key)) for working_folder, owner in enumerate(owners, 1)
    )


def _run(command: list[str], peer: Peer, environment: dict[str, str], log: Path) -> bytes:
    with log.open("wb") as file:
        try:
            outcome = subprocess.run(
                command,
                cwd=peer.home,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=file,
                timeout=_LOAD_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(f"{peer.title} cannot load the data: {error}") from None
    if outcome.returncode:
        raise BenchmarkError(f"{peer.title} cannot load the data: {find_last_error(log)}")
    return outcome.stdout


def require_same_response(response: Response, expected: Response) -> None:
    """Raise BenchmarkError unless body and headers are the service's; other headers are allowed."""
    missing = {line.lower() for line in expected.header_lines()} - {line.lower() for line in response.header_lines()}
    if missing or (response.status, response.body) != (expected.status, expected.body):
        raise BenchmarkError(f"the response differs from the service's: {response.head!r}, expected {expected.head!r}")
