"""The two servers that are compared, each a process on a core of its own, and what they take of the machine."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import Refusal
from bench.exchange import Answer
from bench.machine import used_seconds
from bench.reference import ANSWER_VARIABLE

_HOME = Path(__file__).parent.parent
_ADDRESS = re.compile(rb"(?:Listings answers at|Uvicorn running on) http://127\.0\.0\.1:(\d+)")
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0


class Server(NamedTuple):
    """A server that answers."""

    process: subprocess.Popen[bytes]
    port: int

    def processor_seconds(self) -> float:
        """What it has used of its core since it started, the system's work for it included."""
        return used_seconds(self.process.pid)

    def peak_mebibytes(self) -> float:
        """The most memory that it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) / 1024 if found is not None else 0.0


@contextmanager
def service(database: Path, folder: Path, core: int) -> Iterator[Server]:
    """`listings serve` on a copy of a database, by default settings but for a rate window of one second."""
    copy = folder / "listings.db"
    shutil.copyfile(database, copy)
    environment = {"LISTINGS_DATABASE_URL": f"sqlite:///{copy}", "LISTINGS_RATE_WINDOW": "1", "LISTINGS_PORT": "0"}
    program = Path(sys.executable).with_name("listings")
    with _running([str(program), "serve"], environment, folder, core) as server:
        yield server


@contextmanager
def reference(answer: Answer, folder: Path, core: int) -> Iterator[Server]:
    """Plain uvicorn that gives one answer to all requests."""
    file = folder / "answer"
    file.write_bytes(answer.head + b"\r\n" + answer.body)
    command = [sys.executable, "-m", "uvicorn", "--factory", "bench.reference:application", "--port", "0"]
    options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--no-server-header"]
    with _running([*command, *options], {ANSWER_VARIABLE: str(file)}, folder, core) as server:
        yield server


@contextmanager
def _running(command: list[str], environment: Mapping[str, str], folder: Path, core: int) -> Iterator[Server]:
    """A server from its announcement on until it has stopped in order; its log is a file of the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_") and name != "PORT"}
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=_HOME, env={**kept, **environment}, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        os.sched_setaffinity(process.pid, {core})
        yield Server(process, _port(process, log))
        _stop(process, log)
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = _ADDRESS.search(log.read_bytes())
        if found is not None:
            return int(found[1])
        time.sleep(0.02)
    raise Refusal(f"A server does not start: {_last_line(log)}")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise Refusal(f"A server does not stop: {_last_line(log)}") from None


def _last_line(log: Path) -> str:
    lines = log.read_bytes()[-2000:].decode("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it has said nothing"
