"""Services that are started, killed and started again on the same data and port."""

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from listings import maintenance, wiring
from tests.cli.commands import PROGRAM, clean_environment
from tests.harness import MONTH, Person, make_person, settings_for

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0  # seconds
QUIET = {"LISTINGS_RATE_LIMIT": "0", "LISTINGS_LOG_LEVEL": "error"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """In a child, before its program is loaded."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


async def make_people(folder: Path, count: int, **flags: str) -> list[Person]:
    """Accounts with a key each, in a database that is made where there is none."""
    settings = settings_for(folder, **flags)
    maintenance.migrate_database(settings)
    async with wiring.open_service(settings) as service:
        return [await make_person(service, f"alice{number}", 12 * MONTH) for number in range(count)]


class Zygote:
    """A process that commands are forked from: see the module of this name."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.zygote"],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock that it needs
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()

    def start(self, arguments: Sequence[str], environment: dict[str, str], log: Path, fault: str | None) -> "Process":
        """Run a command of the program, broken by a function of `faults` where one is named."""
        order = {"arguments": list(arguments), "environment": environment, "log": str(log), "fault": fault}
        _pipe(self._process.stdin).write(json.dumps(order) + "\n")
        _pipe(self._process.stdin).flush()
        return Process(int(_pipe(self._process.stdout).readline()))


class Process:
    """One that somebody else started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    @property
    def has_ended(self) -> bool:
        return bool(self._poll.poll(0))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Returns when it has ended."""
        if not self.has_ended:
            signal.pidfd_send_signal(self._descriptor, number)
            assert self._poll.poll(DEADLINE * 1000), f"{self.pid} does not end"

    def wait(self, seconds: float = DEADLINE) -> None:
        """Until it has ended by itself, if it is not closed."""
        assert self._descriptor < 0 or self._poll.poll(seconds * 1000), f"{self.pid} does not end"

    def close(self) -> None:
        """It has ended, and is asked for no more."""
        if self._descriptor >= 0:
            self.kill()
            os.close(self._descriptor)
            self._descriptor = -1


class Place:
    """A database, a port, and the service on them, whichever process that is at the moment."""

    def __init__(self, folder: Path, zygote: Zygote, fault: str | None = None, **settings: str) -> None:
        """`settings` by their names in the environment, beside those of every test."""
        self.folder = folder
        self.log = folder / "log"
        self.database = folder / "listings.db"
        self._zygote = zygote
        self._fault = fault
        self.is_broken = fault is not None
        self._held = socket.socket()  # so that no other program gets the port meanwhile
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self.environment = QUIET | {
            "LISTINGS_DATABASE_URL": f"sqlite:///{self.database}",
            "LISTINGS_DATA_FOLDER": str(folder),
            "LISTINGS_PORT": str(self.port),
            **settings,
        }
        self.process: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.close()
        self._held.close()

    def start(self) -> None:
        """Begin to start it; see `answers`."""
        if self.process is not None:
            self.process.close()
        self.process = self._zygote.start(["serve"], self.environment, self.log, self._fault)

    def kill(self) -> None:
        """As `kill -9` does."""
        assert self.process is not None
        self.process.kill()

    def stop(self) -> None:
        """In order, with all its workers."""
        assert self.process is not None
        self.process.kill(signal.SIGTERM)

    async def answers(self) -> float:
        """Wait until it takes connections; returns the seconds that it took."""
        began = time.monotonic()
        while not await self._is_open():
            assert self.process is None or not self.process.has_ended, self.said()
            assert time.monotonic() - began < DEADLINE, self.said()
            await asyncio.sleep(0.002)
        return time.monotonic() - began

    async def announced(self) -> None:
        """Wait until the installed program says that it answers, with all its workers."""
        began = time.monotonic()
        while "Listings answers at" not in self.said():
            assert time.monotonic() - began < DEADLINE, self.said()
            await asyncio.sleep(0.01)

    async def _is_open(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text("utf-8", "replace")[-2000:] if self.log.exists() else ""

    @contextmanager
    def program(self, *flags: str) -> Iterator["subprocess.Popen[bytes]"]:
        """The installed program on it, in place of a forked one; it has a log of its own."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [PROGRAM, "serve", *flags],
                env=clean_environment() | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - as above
            )
        with process:
            try:
                yield process
            finally:
                process.kill()


def children_of(pid: int) -> list[int]:
    """The processes that it has started and that have not ended."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [int(number) for number in found if not _is_over(number)]


def _is_over(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
