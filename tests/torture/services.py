"""Services that are started, killed and restarted on the same data and port."""

import asyncio
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Self

from listings import maintenance, wiring
from tests.cli.commands import Program, clean_environment
from tests.harness import MONTH, Person, create_person, load_test_settings
from tests.processes import has_ended, is_indexer

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 120.0
QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """Kill this process when its parent ends; runs in a child before exec."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


async def create_people(folder: Path, count: int, **flags: str) -> list[Person]:
    """Create accounts with a key each; create the database if necessary."""
    settings = load_test_settings(folder, **flags)
    maintenance.migrate_database(settings)
    async with wiring.open_services(settings) as service:
        return [await create_person(service, f"alice{number}", 12 * MONTH) for number in range(count)]


@cache
def _start_fork_server() -> "subprocess.Popen[str]":
    """Start the process in `fork_server`, which ends with this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.torture.fork_server"],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread holds a lock that it needs
    )


def start_in_fork(
    arguments: Sequence[str],
    environment: dict[str, str],
    log: Path,
    fault: str | None = None,
    *,
    output: Path | None = None,
    folder: Path = ROOT,
) -> "Process":
    """Run a command of the program in a forked process, with the named function of `faults` applied first.

    Append its standard error to `log`, and its standard output to `output`, or to `log` as well.
    """
    paths = {"log": str(log), "output": str(output or log), "folder": str(folder)}
    request = {"arguments": list(arguments), "environment": environment, "fault": fault, **paths}
    return Process(_ask_fork_server(request))


def _ask_fork_server(request: Mapping[str, object]) -> int:
    server = _start_fork_server()
    _pipe(server.stdin).write(json.dumps(request) + "\n")
    _pipe(server.stdin).flush()
    return int(_pipe(server.stdout).readline())


class Process:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    @property
    def has_ended(self) -> bool:
        return self.ends_within(0)

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for the process to end; return whether it has ended."""
        return bool(self._poll.poll(seconds * 1000))

    def fetch_exit_code(self) -> int:
        """Return the exit code of a process that has ended, once; it is negative after a signal."""
        return _ask_fork_server({"ended": self.pid})

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait until the process has ended."""
        if not self.has_ended:
            signal.pidfd_send_signal(self._descriptor, number)
            self.wait()

    def wait(self, seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait until the process has ended by itself, unless it is closed."""
        assert self._descriptor < 0 or self.ends_within(seconds), f"process {self.pid} does not end"

    def close(self) -> None:
        """Kill the process and release its descriptor."""
        if self._descriptor >= 0:
            self.kill()
            os.close(self._descriptor)
            self._descriptor = -1


class RestartableService(Program):
    """A program with a database, a port, and the process that currently serves them."""

    def __init__(self, folder: Path, fault: str | None = None, **settings: str) -> None:
        """Override environment variables with `settings`; inject a fault by its name."""
        self.log = folder / "log"
        self.database = folder / "listings.db"
        self._fault = fault
        self.is_broken = fault is not None
        self._port_holder = socket.socket()  # so that no other program takes the port
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self.port: int = self._port_holder.getsockname()[1]
        own = {"LISTINGS_DATABASE_URL": f"sqlite:///{self.database}", "LISTINGS_DATA_FOLDER": str(folder)}
        super().__init__(folder, **QUIET | own | {"LISTINGS_PORT": str(self.port)} | settings)
        self.process: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.close()
        self._port_holder.close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the service without waiting; see `wait_until_ready`."""
        if self.process is not None:
            self.process.close()
            self._wait_until_refused()
        self.process = start_in_fork(["serve"], self.environment, self.log, self._fault)

    def _wait_until_refused(self) -> None:
        """Wait until no process has the listening socket: one that was just forked shares it until it executes."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with suppress(ConnectionRefusedError):
            while time.monotonic() < deadline:
                socket.create_connection(("127.0.0.1", self.port)).close()
                time.sleep(0.001)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()

    def stop(self) -> None:
        """Shut down gracefully, with all workers."""
        assert self.process is not None
        self.process.kill(signal.SIGTERM)

    async def wait_until_ready(self) -> float:
        """Wait until it accepts connections; return the seconds it took."""
        began = time.monotonic()
        while not await self._is_open():
            assert self.process is None or not self.process.has_ended, self.read_log()
            assert time.monotonic() - began < TIMEOUT_SECONDS, self.read_log()
            await asyncio.sleep(0.002)
        return time.monotonic() - began

    async def wait_until_announced(self) -> None:
        """Wait until the log says that all workers are ready."""
        began = time.monotonic()
        while "Listings is running at" not in self.read_log():
            assert time.monotonic() - began < TIMEOUT_SECONDS, self.read_log()
            await asyncio.sleep(0.01)

    async def _is_open(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    def read_log(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2000:] if self.log.exists() else ""

    @contextmanager
    def run_program(self, *flags: str) -> Iterator["subprocess.Popen[str]"]:
        """Run the installed program instead of a forked process, with a new log."""
        with (
            self.log.open("wb") as log,
            self.start_command(("serve", *flags), log, log, before=die_with_parent) as process,
        ):
            try:
                yield process
            finally:
                process.kill()


def find_children(pid: int) -> list[int]:
    """Return the running worker processes."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [int(number) for number in found if not has_ended(int(number)) and not is_indexer(int(number), pid)]


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
