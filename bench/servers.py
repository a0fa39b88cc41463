"""Servers that are measured, each with its processes on one core, and what they take of the machine."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from bench import RejectedRequest
from bench.exchange import Answer
from bench.machine import family, used_seconds
from bench.reference import ANSWER_VARIABLE

_HOME = Path(__file__).parent.parent
_ADDRESS = re.compile(rb"(?:Listings answers at|Uvicorn running on) http://127\.0\.0\.1:(\d+)")
Cores: TypeAlias = int | tuple[int, ...]
"""One core, or several that its processes share."""

_START_SECONDS = 120.0
_PORTS = (12_000, 22_000)
_chance = random.SystemRandom()
_STOP_SECONDS = 30.0


class Server(NamedTuple):
    """A server that answers."""

    process: subprocess.Popen[bytes]
    port: int
    database: int | None = None
    """The process of its database's server, if it has one that is measured along but not counted as its own."""

    def processor_seconds(self) -> float:
        """What it has used of its core since it started, the system's work for it included."""
        return sum(used_seconds(pid) for pid in family(self.process.pid))

    def beside_seconds(self) -> float:
        """What its database's server has used, as far as its processes are still there."""
        total = 0.0
        for pid in family(self.database) if self.database is not None else ():
            with suppress(OSError):
                total += used_seconds(pid)
        return total

    def peak_mebibytes(self) -> float:
        """The most memory that it ever had; of several processes the sum."""
        return sum(map(_peak_mebibytes, family(self.process.pid)))


@contextmanager
def service(  # noqa: PLR0913 - what the service is started with
    database: Path,
    folder: Path,
    core: Cores,
    *,
    window: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
    under: tuple[str, ...] = (),
) -> Iterator[Server]:
    """`listings serve` on a copy of a database, by default settings but for its window, in seconds, and those given.

    `under`: a command that runs it, such as valgrind's.
    """
    copy = folder / "listings.db"
    shutil.copyfile(database, copy)
    environment = {
        "LISTINGS_DATABASE_URL": f"sqlite:///{copy}",
        "LISTINGS_RATE_WINDOW": str(window),
        **settings,
        "LISTINGS_PORT": "0",
    }
    program = Path(sys.executable).with_name("listings")
    with started([*under, str(program), "serve"], environment, folder, core) as server:
        yield server


@contextmanager
def reference(answer: Answer, folder: Path, core: int, *, under: tuple[str, ...] = ()) -> Iterator[Server]:
    """Plain uvicorn that gives one answer to all requests; `under`: a command that runs it."""
    file = folder / "answer"
    file.write_bytes(answer.head + b"\r\n" + answer.body)
    command = [sys.executable, "-m", "uvicorn", "--factory", "bench.reference:application", "--port", "0"]
    options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--no-server-header"]
    with started([*under, *command, *options], {ANSWER_VARIABLE: str(file)}, folder, core) as server:
        yield server


@contextmanager
def started(  # noqa: PLR0913 - what a process needs
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    core: Cores,
    *,
    place: Path = _HOME,
    port: int | None = None,
) -> Iterator[Server]:
    """A server from the moment that it answers until it has stopped in order; its log is a file of the folder.

    It tells its port itself, or is given one that it takes connections on once it is there.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_") and name != "PORT"}
    log = folder / "log"
    with log.open("wb") as file, pinned(core):
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**kept, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield Server(process, _port(process, log) if port is None else _connected(process, log, port))
        _stop(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def pinned(core: Cores) -> Iterator[None]:
    """Run on one core, or on some, and all threads and processes that are begun meanwhile, for as long as they last."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core} if isinstance(core, int) else core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """A port that nobody listens on, nor is given by the kernel to whoever asks for any.

    Neither is the one that is 10,000 higher, which a node of a Redis cluster takes, too.
    """
    while True:
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", _chance.randrange(*_PORTS)))
            except OSError:
                continue
            return int(trial.getsockname()[1])


def _peak_mebibytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found is not None else 0.0


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in _while_starting(process, log):
        found = _ADDRESS.search(log.read_bytes())
        if found is not None:
            return int(found[1])
    raise AssertionError


def _connected(process: subprocess.Popen[bytes], log: Path, port: int) -> int:
    for _ in _while_starting(process, log):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return port
    raise AssertionError


def _while_starting(process: subprocess.Popen[bytes], log: Path) -> Iterator[None]:
    """Time to look, again and again. Raises Refusal when the server has ended or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        yield
        time.sleep(0.02)
    raise RejectedRequest(f"A server does not start: {_last_line(log)}")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise RejectedRequest(f"A server does not stop: {_last_line(log)}") from None


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it has said nothing"
