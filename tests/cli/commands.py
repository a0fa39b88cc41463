"""Helpers that run commands in this process, or the installed program in its own process."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import httpx2
import pytest

from listings import wiring
from listings.cli import main
from tests.harness import fetch, load_test_settings

PROGRAM = Path(sys.executable).with_name("listings")
DEADLINE = 120  # seconds, enough even on a busy machine

Data: TypeAlias = dict[str, Any]


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def error_message(self) -> str:
        """The error of a command that failed with one line on standard error and no other output."""
        assert (self.code, self.out) == (1, ""), self
        line = re.fullmatch(r"listings: (\S.*)\n", self.err)
        assert line is not None, self.err
        assert "Unexpected error" not in line[1], line[1]
        return line[1]


def clean_environment() -> dict[str, str]:
    """Return this process's environment without settings of the service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_") and name != "PORT"}


class Cli:
    """Runs commands in this process, from a folder and without settings in the environment."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdin: bytes = b""
    ) -> None:
        self.folder = folder
        self._capsys = capsys
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        for name in os.environ.keys() - clean_environment().keys():
            monkeypatch.delenv(name)

    def __call__(self, *arguments: str) -> Outcome:
        self._capsys.readouterr()
        code = main(arguments)
        return Outcome(code, *self._capsys.readouterr())

    def run_ok(self, *arguments: str) -> Outcome:
        outcome = self(*arguments)
        assert outcome.code == 0, outcome
        return outcome

    def data(self, *arguments: str) -> Data:
        """Return the data that a command prints with --json. It must be one line."""
        line = self.run_ok(*arguments, "--json").out
        assert line.count("\n") == 1, line
        assert line.endswith("\n"), line
        data: Data = json.loads(line)
        return data

    def get_error(self, *arguments: str) -> str:
        return self(*arguments).error_message

    def get_usage_error(self, *arguments: str) -> str:
        outcome = self(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert outcome.err.startswith("Usage: listings"), outcome.err
        return outcome.err

    def account(self, name: str, *options: str) -> Data:
        return self.data("account", "create", "--name", name, "--email", f"{name}@example.com", *options)

    def key(self, account: Data, *options: str) -> Data:
        return self.data("key", "create", str(account["id"]), "--name", "warehouse", *options)

    def status(self, key: str) -> int:
        return asyncio.run(_status(self.folder, key))


async def _status(folder: Path, key: str) -> int:
    settings = load_test_settings(folder / "data")
    async with wiring.open_services(settings) as service:
        application = wiring.build_application(service, settings)
        return (await fetch(application, "GET", "/api/v1/listings", [(b"x-api-key", key.encode())], [b""])).status


class Program:
    """The installed program, run from a folder with only the given settings in the environment."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.command: tuple[str | Path, ...] = (PROGRAM,)
        self.environment = clean_environment() | environment

    def run(self, *arguments: str) -> Outcome:
        with self.start_command(arguments, subprocess.PIPE) as process:
            return _end(process)

    def diagnose(self) -> dict[str, Data]:
        """Return the rows of `listings doctor --offline` by check. The exit code is 1 if there is a fault."""
        outcome = self.run("doctor", "--json", "--offline")
        rows = {row["check"]: row for row in map(json.loads, outcome.out.splitlines())}
        assert outcome.code == int(any(row["verdict"] == "fault" for row in rows.values())), outcome
        return rows

    def run_with_closed_pipe(self, *arguments: str) -> Outcome:
        """Run a command whose standard output is a pipe without a reader."""
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as unread:
            return self.run_into(unread, *arguments)

    def run_into(self, file: BinaryIO, *arguments: str) -> Outcome:
        with self.start_command(arguments, file) as process:
            return _end(process)

    @contextmanager
    def serve(self, *flags: str) -> Iterator["Serving"]:
        """Run `listings serve` on a free port, and wait until it is running."""
        with self.start_command(("serve", "--port", "0", *flags), subprocess.PIPE) as process:
            try:
                lines = _read_announcement(process, demo="--demo" in flags)
                address = re.findall(r"^Listings is running at (http://[^\s,]+)", "\n".join(lines), re.MULTILINE)
                with httpx2.Client(base_url=address[0], timeout=DEADLINE) as http:
                    yield Serving(self.folder, process, lines, http)
            finally:
                process.kill()

    def start_command(
        self,
        arguments: Sequence[str],
        stdout: int | BinaryIO,
        stderr: int | BinaryIO = subprocess.PIPE,
        before: Callable[[], None] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command without waiting for it; `before` runs in the new process."""
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - no thread holds a lock that it needs
        )


class Serving(NamedTuple):
    folder: Path
    process: subprocess.Popen[str]
    lines: list[str]  # up to the announcement
    http: httpx2.Client

    @property
    def base_url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def status(self, key: str) -> int:
        return self.http.get("/api/v1/listings", headers={"X-API-Key": key}).status_code

    def create(self, key: str, title: str = "Bicycle") -> int:
        """Create a listing and return its id."""
        response = self.http.post(
            "/api/v1/listings", headers={"X-API-Key": key}, json={"title": title, "content": "Two wheels."}
        )
        assert response.status_code == 201, response.text
        return int(response.json()["id"])

    def read(self, key: str, listing_id: int) -> httpx2.Response:
        return self.http.get(f"/api/v1/listings/{listing_id}", headers={"X-API-Key": key})

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        """Send a signal, wait for the end, and return the exit code and the output after the announcement."""
        self.http.close()  # the service would wait half a second for an idle client
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return Outcome(code, self.process.stdout.read(), self.process.stderr.read())


def _end(process: subprocess.Popen[str]) -> Outcome:
    try:
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    return Outcome(process.returncode, out or "", err)


def _read_announcement(process: subprocess.Popen[str], *, demo: bool) -> list[str]:
    """Return the lines up to the announcement on standard error, or to the end of the demo's banner on stdout."""
    stream, prefix = (process.stdout, "Stop: ") if demo else (process.stderr, "Listings is running at")
    assert stream is not None
    lines: list[str] = []
    timer = threading.Timer(DEADLINE, process.kill)  # ends the loop below
    timer.start()
    try:
        for line in stream:
            lines.append(line.rstrip("\n"))
            if line.startswith(prefix):
                return lines
    finally:
        timer.cancel()
    raise AssertionError(f"No announcement, exit code {process.wait(DEADLINE)}: {lines}, {process.communicate()}")


def demo_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a demo's demo.env."""
    lines = (folder / "data/demo.env").read_text("utf-8").splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)
