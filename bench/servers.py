"""Starts the servers under test on their cores, and measures their processor time and memory."""

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

from bench import BenchmarkError
from bench.http_client import Response
from bench.machine import get_processor_seconds, list_processes
from bench.reference import RESPONSE_VARIABLE
from listings.search.folders import find_root

_PROJECT_FOLDER = Path(__file__).parent.parent
_ADDRESS = re.compile(rb"(?:Listings is running at|Uvicorn running on) http://127\.0\.0\.1:(\d+)")
Cores: TypeAlias = int | tuple[int, ...]
"""One core, or several cores that the processes share."""

_START_SECONDS = 120.0
_PORTS = (12_000, 22_000)
_random = random.SystemRandom()
_STOP_SECONDS = 30.0


class Server(NamedTuple):
    """A server that accepts requests."""

    process: subprocess.Popen[bytes]
    port: int
    database: int | None = None
    """The process of its database server, if it has one; its time is not counted as the server's."""

    def get_processor_seconds(self) -> float:
        """Return the processor time since its start, including system time."""
        return sum(get_processor_seconds(pid) for pid in list_processes(self.process.pid))

    def get_database_seconds(self) -> float:
        """Return the processor time of the running processes of its database server."""
        total = 0.0
        for pid in list_processes(self.database) if self.database is not None else ():
            with suppress(OSError):
                total += get_processor_seconds(pid)
        return total

    def peak_mebibytes(self) -> float:
        """Return the peak memory of all its processes, summed."""
        return sum(map(_peak_mebibytes, list_processes(self.process.pid)))


@contextmanager
def run_service(
    database: Path,
    folder: Path,
    core: Cores,
    *,
    window: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
    program: tuple[str, ...] = (str(Path(sys.executable).with_name("listings")),),
) -> Iterator[Server]:
    """Run `listings serve` on a copy of a database and its index, with a rate window in seconds and other settings.

    `program` is the command to run instead of `listings`, perhaps with a prefix such as valgrind's.
    """
    copy = folder / "listings.db"
    shutil.copyfile(database, copy)
    if find_root(database).exists():
        shutil.copytree(find_root(database), find_root(copy))
    environment = {
        "LISTINGS_DATABASE_URL": f"sqlite:///{copy}",
        "LISTINGS_RATE_WINDOW": str(window),
        **settings,
        "LISTINGS_PORT": "0",
    }
    with run_server([*program, "serve"], environment, folder, core) as server:
        yield server


@contextmanager
def run_reference(response: Response, folder: Path, core: int, *, wrapper: tuple[str, ...] = ()) -> Iterator[Server]:
    """Run a server that returns one response to all requests; `wrapper` is the prefix of its command."""
    file = folder / "response"
    file.write_bytes(response.head + b"\r\n" + response.body)
    command = [sys.executable, "-m", "uvicorn", "--factory", "bench.reference:application", "--port", "0"]
    options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--no-server-header"]
    with run_server([*wrapper, *command, *options], {RESPONSE_VARIABLE: str(file)}, folder, core) as server:
        yield server


@contextmanager
def run_server(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    core: Cores,
    *,
    working_folder: Path = _PROJECT_FOLDER,
    port: int | None = None,
) -> Iterator[Server]:
    """Run a server from its first response to its shutdown; its log goes to the folder.

    Without `port`, the server chooses one and logs it.
    """
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_") and name != "PORT"
    }
    log = folder / "log"
    with log.open("wb") as file, pinned(core):
        process = subprocess.Popen(
            command,
            cwd=working_folder,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield Server(
            process, _wait_for_port(process, log) if port is None else _wait_for_connection(process, log, port)
        )
        _stop(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def pinned(core: Cores) -> Iterator[None]:
    """Run this thread, and the threads and processes that it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core} if isinstance(core, int) else core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def find_free_port() -> int:
    """Return an unused port that the kernel never assigns by itself.

    The port plus 10,000 is not assigned either: a node of a Redis cluster uses it.
    """
    while True:
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", _random.randrange(*_PORTS)))
            except OSError:
                continue
            return int(candidate.getsockname()[1])


def _peak_mebibytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found is not None else 0.0


def _wait_for_port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in _poll_while_starting(process, log):
        found = _ADDRESS.search(log.read_bytes())
        if found is not None:
            return int(found[1])
    raise AssertionError


def _wait_for_connection(process: subprocess.Popen[bytes], log: Path, port: int) -> int:
    for _ in _poll_while_starting(process, log):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return port
    raise AssertionError


def _poll_while_starting(process: subprocess.Popen[bytes], log: Path) -> Iterator[None]:
    """Yield until the server is ready. Raise BenchmarkError if it ends or takes too long."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        yield
        time.sleep(0.02)
    raise BenchmarkError(f"The server does not start: {_last_line(log)}")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"The server does not stop: {_last_line(log)}") from None


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", "replace").splitlines()
    return lines[-1] if lines else "its log is empty"
