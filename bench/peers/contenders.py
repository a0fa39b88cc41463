"""Those who are measured side by side: the service, its peers, and two limits that know one answer by heart."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from bench import RejectedRequest, servers
from bench.data import Data, Owner
from bench.exchange import Answer, exchange
from bench.peers.installing import filled_in, last_error
from bench.peers.roster import SOURCES, Peer
from bench.rounds import count_rows
from bench.scenarios import Scenario
from bench.servers import Server

Kind: TypeAlias = Literal["service", "peer", "limit"]

_LONGEST_LOAD_SECONDS = 120
_OF_ITS_OWN = {b"date", b"content-length", b"content-type"}  # headers that nginx writes itself


class Start(NamedTuple):
    """What a server is started with; `answer` is the service's, for those who only repeat it, `window` in seconds."""

    folder: Path
    core: int
    answer: Answer
    window: int = 1


class Contender(NamedTuple):
    """One of those who are compared. Its database while it runs is `listings.db` in the folder that it is given."""

    name: str
    kind: Kind
    data: Data
    """What is asked of it: the keys may be its own."""
    expired: str
    """The key of an account without listings whose plan has expired."""
    running: Callable[[Start], AbstractContextManager[Server]]
    creates: bool = True
    stored: Callable[[Path], int] = lambda folder: count_rows(folder / "listings.db")
    """The listings that it has when it has stopped, given its folder."""

    def does(self, scenario: Scenario) -> bool:
        """Whether it can be asked that."""
        return self.creates or not scenario.creates

    def check(self, scenario: Scenario, port: int, wanted: Answer) -> Answer:
        """Its right answer. Raises Refusal for a wrong one."""
        if self.kind != "limit":
            return scenario.check(self.data, port)
        answer = exchange(port, scenario.requests(self.data)[0])
        require_repeated(answer, wanted)
        return answer


def service(data: Data, expired: str) -> Contender:
    """The service, as `make run` has it."""

    def running(start: Start) -> AbstractContextManager[Server]:
        return servers.service(data.database, start.folder, start.core, window=start.window)

    return Contender("Listings", "service", data, expired, running)


def peer(row: Peer, data: Data, expired: str) -> Contender:
    """A peer on its own database, with its own keys."""

    @contextmanager
    def running(start: Start) -> Iterator[Server]:
        database, port = start.folder / "listings.db", servers.free_port()
        shutil.copyfile(data.database, database)
        environment = {"DATABASE": str(database), "RATE_WINDOW": str(start.window), "PORT": str(port)}
        command = filled_in(row, row.serve, port=port)
        with servers.started(command, environment, start.folder, start.core, place=row.home, port=port) as server:
            yield server

    return Contender(row.title, "peer", data, expired, running)


def constant_body(data: Data) -> Contender:
    """The service's answer on plain uvicorn."""

    def running(start: Start) -> AbstractContextManager[Server]:
        return servers.reference(start.answer, start.folder, start.core)

    return Contender("constant body", "limit", data, "", running)


def static_file(data: Data) -> Contender:
    """The body of the service's answer as a file, and its headers, on nginx; it takes no creates."""

    @contextmanager
    def running(start: Start) -> Iterator[Server]:
        port = servers.free_port()
        (start.folder / "body").write_bytes(start.answer.body)
        template = (SOURCES / "nginx" / "nginx.conf").read_text("utf-8")
        text = template.replace("PORT", str(port)).replace("HEADERS", directives(start.answer))
        (start.folder / "nginx.conf").write_text(text, "utf-8")
        place = f"{start.folder}/"
        command = ["nginx", "-p", place, "-e", f"{place}log", "-c", f"{place}nginx.conf"]
        with servers.started(command, {}, start.folder, start.core, place=start.folder, port=port) as server:
            yield server

    return Contender("nginx, static file", "limit", data, "", running, creates=False)


def directives(answer: Answer) -> str:
    """The headers of an answer as nginx is told to add them."""
    pairs = [line.split(b": ", 1) for line in answer.header_lines() if line]
    kept = [(name.decode(), value.decode()) for name, value in pairs if name.lower() not in _OF_ITS_OWN]
    return " ".join(f"add_header {name} '{value}';" for name, value in kept)


def load(row: Peer, filled: Data, expired: str, folder: Path) -> Contender:
    """A peer, with a database of its own that holds what the service's holds. Raises Refusal."""
    database, log = folder / f"{row.name}.db", folder / f"{row.name}.log"
    environment = {"DATABASE": str(database)}
    said = b""
    for command in row.load:
        said = _run(filled_in(row, command, source=filled.database), row, environment, log)
    *owners, stranger = with_keys((*filled.owners, Owner(expired, ())), json.loads(said))
    return peer(row, filled._replace(database=database, owners=tuple(owners)), stranger.key)


def with_keys(owners: tuple[Owner, ...], keys: dict[str, str]) -> tuple[Owner, ...]:
    """Owners with the new keys that a peer has made for them, by account; the nth owner has the nth account."""
    return tuple(owner._replace(key=keys.get(str(place), owner.key)) for place, owner in enumerate(owners, 1))


def _run(command: list[str], row: Peer, environment: dict[str, str], log: Path) -> bytes:
    with log.open("wb") as file:
        try:
            outcome = subprocess.run(
                command,
                cwd=row.home,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=file,
                timeout=_LONGEST_LOAD_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RejectedRequest(f"{row.title} does not load the data: {error}") from None
    if outcome.returncode:
        raise RejectedRequest(f"{row.title} does not load the data: {last_error(log)}")
    return outcome.stdout


def require_repeated(answer: Answer, wanted: Answer) -> None:
    """Raises Refusal unless body and headers are the service's; a server may add headers of its own."""
    missing = {line.lower() for line in wanted.header_lines()} - {line.lower() for line in answer.header_lines()}
    if missing or (answer.status, answer.body) != (wanted.status, wanted.body):
        raise RejectedRequest(f"it does not repeat the service's answer: {answer.head!r} for {wanted.head!r}")
