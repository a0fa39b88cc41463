"""A real PostgreSQL server for tests, started and stopped by them. Needs no root."""

import asyncio
import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

import asyncpg

from bench.scale import postgres
from bench.servers import find_free_port
from listings.store.postgres import migrate
from tests.tables import RESETS, TABLES

USER = "listings"
_TIMEOUT_SECONDS = 120
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl  # resolved before any fork, because the lookup takes locks
_MAX_USES, _MAX_ROWS = 100, 3000  # after which a database is dropped instead of emptied
_EMPTY = f"""
CREATE FUNCTION pg_temp.empty_database(max_rows integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- Wait until they end, so that rows that one of them is about to commit are deleted, too.
    PERFORM pg_terminate_backend(pid, 60000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
    IF (SELECT count(*) FROM listings) + (SELECT count(*) FROM accounts) >= max_rows THEN
        RETURN false;
    END IF;
    {"".join(f"DELETE FROM {table};" for table in TABLES)}
    {"".join(f"{reset};" for reset in RESETS.values())}
    ALTER TABLE accounts ALTER id RESTART;
    ALTER TABLE api_keys ALTER id RESTART;
    RETURN true;
END
$$
"""  # noqa: S608 - names of our own
_CALL = "SELECT pg_temp.empty_database($1)"
_SESSION_ENDED = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)
_SETTINGS = {
    "fsync": "on",  # as in production, because a restart in a test must lose nothing
    "synchronous_commit": "on",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "lc_messages": "C",
}


@cache
def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs: LISTINGS_TEST_POSTGRES, or the one of the benchmarks."""
    given = os.environ.get("LISTINGS_TEST_POSTGRES")
    return Path(given) if given else postgres.find_programs()


class ReusableDatabase:
    """A database that is emptied after each use, always on one session: a new one would plan all statements again."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = url
        self._uses = 0
        self._session: asyncpg.Connection | None = None

    async def empty(self) -> bool:
        """Delete all rows. Return False if the database must be dropped: it is too large, or the server restarted."""
        self._uses += 1
        try:
            if self._session is None:
                self._session = await asyncpg.connect(self._url)
                await self._session.execute(_EMPTY)
            return self._uses <= _MAX_USES and bool(await self._session.fetchval(_CALL, _MAX_ROWS))
        except _SESSION_ENDED:
            return False

    def close(self) -> None:
        if self._session is not None:
            self._session.terminate()


def run_as(user: str | None, *command: str | Path) -> None:
    subprocess.run(
        command,
        user=user,
        group=_find_group(user),
        extra_groups=[] if user else None,
        cwd="/",
        check=True,
        stdout=subprocess.DEVNULL,
    )


@cache
def _initialise(user: str | None) -> Path:
    """Create a data folder of which each server gets a copy, which is made in a tenth of the time."""
    folder = Path(tempfile.mkdtemp(prefix="listings-pg-"))
    atexit.register(shutil.rmtree, folder)
    if user is not None:
        shutil.chown(folder, user)
    options = ("--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C.UTF-8")
    run_as(user, find_programs() / "initdb", "-D", folder / "data", *options)
    return folder / "data"


class PostgresServer:
    """A server with its own folder. It does not run as root."""

    def __init__(self, **settings: str) -> None:
        self._settings = _SETTINGS | settings
        self._user = "nobody" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="listings-pg-"))
        self._numbers = count(1)
        self._runner = asyncio.Runner()  # of the sessions of reusable databases
        self._reusable: list[ReusableDatabase] = []  # empty ones
        self.port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        run_as(self._user, "cp", "-r", _initialise(self._user), self._folder / "data")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for database in self._reusable:
            database.close()
        self._runner.close()
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = [f"-c{name}={value}" for name, value in (self._settings | {"port": str(self.port)}).items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_programs() / "postgres", "-D", self._folder / "data", *options],
                user=self._user,
                group=_find_group(self._user),
                extra_groups=[] if self._user else None,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it needs no lock
            )
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT ends its sessions first, and SIGQUIT acts like a crash."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_TIMEOUT_SECONDS)
            self._process = None

    def restart(self) -> None:
        """Restart the server as after a crash."""
        self.stop(signal.SIGQUIT)
        self.start()

    def pause(self) -> None:
        """Freeze the server: connections stay open, but it does not respond."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        async def run() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self.url(database))
            try:
                return [tuple(row) for row in await connection.fetch(statement)]
            finally:
                await connection.close()

        with asyncio.Runner() as runner:
            return runner.run(run())

    @contextmanager
    def database(self, *, altered: bool = False) -> Iterator[str]:
        """Yield the URL of a database with the schema and no rows.

        A database is emptied and reused, which is ten times faster than creating one. Set `altered` if the test changes
        the schema: then the database is new and is dropped afterwards.
        """
        database = self._reusable.pop() if self._reusable and not altered else self._create_reusable()
        try:
            yield self.url(database.name)
        finally:
            if not altered and self._runner.run(database.empty()):
                self._reusable.append(database)
            else:
                database.close()
                self._drop(database.name)

    @contextmanager
    def bare_database(self) -> Iterator[str]:
        """Yield the URL of a new database without a schema, which is dropped afterwards."""
        name = self._create("template0")
        try:
            yield self.url(name)
        finally:
            self._drop(name)

    def _create_reusable(self) -> ReusableDatabase:
        name = self._create(self._template)
        return ReusableDatabase(name, self.url(name))

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        return name

    def _drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @property
    def _template(self) -> str:
        if not self.execute("SELECT 1 FROM pg_database WHERE datname = 'migrated'"):
            self.execute("CREATE DATABASE migrated TEMPLATE template0")
            asyncio.run(migrate.migrate(self.url("migrated")))
        return "migrated"

    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    def _is_ready(self) -> bool:
        return (
            subprocess.run(
                [find_programs() / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={self.port}"], check=False
            ).returncode
            == 0
        )

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        for process in [self._process.pid, *_list_children(self._process.pid)]:
            with suppress(ProcessLookupError):  # a session has ended meanwhile
                os.kill(process, number)


class DatabaseServer(Protocol):
    def database(self) -> AbstractContextManager[str]:
        """Yield the URL of a database with the schema and no rows."""


class FolderDatabases:
    """Provides a database for each folder until the folder is deleted."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._databases: dict[Path, tuple[str, ExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in list(self._databases):
            self.release(folder)

    def get_url(self, folder: Path) -> str:
        for deleted in [one for one in self._databases if not one.exists()]:
            self.release(deleted)
        if folder not in self._databases:
            stack = ExitStack()
            self._databases[folder] = stack.enter_context(self._server.database()), stack
        return self._databases[folder][0]

    def release(self, folder: Path) -> None:
        self._databases.pop(folder)[1].close()

    @property
    def folders(self) -> set[Path]:
        return set(self._databases)


def _find_group(user: str | None) -> int | None:
    import pwd  # noqa: PLC0415 - missing on Windows

    return pwd.getpwnam(user).pw_gid if user is not None else None


def _list_children(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()]


def _die_with_parent() -> None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGQUIT)
