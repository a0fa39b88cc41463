"""The command line as tests use it: commands run in this process, or the installed program in one of its own."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import httpx
import pytest

from listings import wiring
from listings.cli import main
from tests.harness import fetch, load_test_settings

PROGRAM = Path(sys.executable).with_name("listings")
DEADLINE = 120  # seconds: whatever takes longer hangs, on a machine with much else to do, too

Data: TypeAlias = dict[str, Any]


class Outcome(NamedTuple):
    """How a command ended: its exit code, and all that it wrote."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What a refused command says: one line on standard error, and nothing else anywhere."""
        assert (self.code, self.out) == (1, ""), self
        said = re.fullmatch(r"listings: (\S.*)\n", self.err)
        assert said is not None, self.err
        assert "should not have happened" not in said[1], said[1]
        return said[1]


def clean_environment() -> dict[str, str]:
    """This process's environment without any setting of the service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LISTINGS_") and name != "PORT"}


class Cli:
    """Runs commands in this process, from a folder and without any setting in the environment."""

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

    def done(self, *arguments: str) -> Outcome:
        """A command that is carried out."""
        outcome = self(*arguments)
        assert outcome.code == 0, outcome
        return outcome

    def data(self, *arguments: str) -> Data:
        """The data that a command prints as one line of JSON, with nothing beside it on standard output."""
        line = self.done(*arguments, "--json").out
        assert line.count("\n") == 1, line
        assert line.endswith("\n"), line
        data: Data = json.loads(line)
        return data

    def refused(self, *arguments: str) -> str:
        """The sentence with which a command is refused."""
        return self(*arguments).sentence

    def misused(self, *arguments: str) -> str:
        """What wrong usage is told, on standard error alone."""
        outcome = self(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert outcome.err.startswith("Usage: listings"), outcome.err
        return outcome.err

    def account(self, name: str, *options: str) -> Data:
        """Open an account."""
        return self.data("account", "create", "--name", name, "--email", f"{name}@example.com", *options)

    def key(self, account: Data, *options: str) -> Data:
        """Make a key for an account."""
        return self.data("key", "create", str(account["id"]), "--name", "warehouse", *options)

    def status(self, key: str) -> int:
        """What the service over this folder's database answers to a key."""
        return asyncio.run(_status(self.folder, key))


async def _status(folder: Path, key: str) -> int:
    settings = load_test_settings(folder / "data")
    async with wiring.open_service(settings) as service:
        application = wiring.build_application(service, settings)
        return (await fetch(application, "GET", "/api/v1/listings", [(b"x-api-key", key.encode())], [b""])).status


class Program:
    """The installed program, run from a folder with these settings in the environment and no others."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.command: tuple[str | Path, ...] = (PROGRAM,)
        self._environment = clean_environment() | environment

    def run(self, *arguments: str) -> Outcome:
        """A command from its beginning to its end."""
        with self._start(arguments, subprocess.PIPE) as process:
            return _end(process)

    def pipe_to_nobody(self, *arguments: str) -> Outcome:
        """A command whose standard output is a pipe that nobody reads any more."""
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as unread:
            return self.run_into(unread, *arguments)

    def run_into(self, file: BinaryIO, *arguments: str) -> Outcome:
        """A command whose standard output is this file."""
        with self._start(arguments, file) as process:
            return _end(process)

    @contextmanager
    def serve(self, *flags: str) -> Iterator["Serving"]:
        """`listings serve` on a free port, from its announcement on."""
        with self._start(("serve", "--port", "0", *flags), subprocess.PIPE) as process:
            try:
                lines = _announcement(process, demo="--demo" in flags)
                address = re.findall(r"^Listings answers at (http://[^\s,]+)", "\n".join(lines), re.MULTILINE)
                with httpx.Client(base_url=address[0], timeout=DEADLINE) as http:
                    yield Serving(self.folder, process, lines, http)
            finally:
                process.kill()

    def _start(self, arguments: tuple[str, ...], stdout: int | BinaryIO) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )


class Serving(NamedTuple):
    """A service that answers."""

    folder: Path
    process: subprocess.Popen[str]
    lines: list[str]  # of the announcement
    http: httpx.Client

    @property
    def base_url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    def status(self, key: str) -> int:
        """What the owner of a key gets for the list of listings."""
        return self.http.get("/api/v1/listings", headers={"X-API-Key": key}).status_code

    def create(self, key: str, title: str = "Bicycle") -> int:
        """A listing with this title; returns its id."""
        response = self.http.post(
            "/api/v1/listings", headers={"X-API-Key": key}, json={"title": title, "content": "Two wheels."}
        )
        assert response.status_code == 201, response.text
        return int(response.json()["id"])

    def read(self, key: str, listing_id: int) -> httpx.Response:
        return self.http.get(f"/api/v1/listings/{listing_id}", headers={"X-API-Key": key})

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        """Send a signal; returns how the program ended and what it wrote after its announcement."""
        self.http.close()  # an idle client would be given half a second
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


def _announcement(process: subprocess.Popen[str], *, demo: bool) -> list[str]:
    """What is said when the port is open: a line on standard error, or a demo's banner on standard output."""
    stream, begin, count = (process.stdout, "Stop: ", 1) if demo else (process.stderr, "Listings answers at", 1)
    assert stream is not None
    lines: list[str] = []
    watch = threading.Timer(DEADLINE, process.kill)  # ends the loop below
    watch.start()
    try:
        for line in stream:
            lines.append(line.rstrip("\n"))
            if sum(line.startswith(begin) for line in lines) == count:
                return lines
    finally:
        watch.cancel()
    raise AssertionError(f"No announcement, exit code {process.wait(DEADLINE)}: {lines}, {process.communicate()}")


def demo_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a demo's demo.env."""
    lines = (folder / "data/demo.env").read_text("utf-8").splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)
