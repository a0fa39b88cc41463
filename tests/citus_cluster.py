"""Test databases on an existing Citus cluster, whose URL is LISTINGS_TEST_CITUS_URL."""

import asyncio
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from listings.service import background_tasks
from listings.store.postgres import migrate
from tests.tables import RESETS, TABLES

ADDRESS = os.environ.get("LISTINGS_TEST_CITUS_URL", "")
"""URL of a coordinator's database with the extension and all nodes. Its user must be allowed to create databases."""

FILE = Path(__file__).parent.parent / "deploy" / "citus.sql"
_STATEMENT = re.compile(r"(?:[^;$']|'[^']*'|\$\$.*?\$\$|\$\d)+;", re.DOTALL)
_NODES = "SELECT nodename, nodeport, groupid FROM pg_dist_node WHERE noderole = 'primary' AND isactive ORDER BY groupid"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'listings'
"""
_EMPTY = (
    _END_SESSIONS,
    *(f"DELETE FROM {table}" for table in TABLES),  # noqa: S608 - names of our own
    *RESETS.values(),
    "SELECT setval(pg_get_serial_sequence('accounts', 'id'), 1, false)",
    "SELECT setval(pg_get_serial_sequence('api_keys', 'id'), 1, false)",
)
_KEEP_SHARDS = "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node"
_IS_CITUS = "SELECT to_regclass('pg_catalog.pg_dist_node') IS NOT NULL"
_LOCK = Path(tempfile.gettempdir(), "listings-test-citus.lock")
_COUNT_MULTI_SHARD = "SELECT query_execution_multi_shard FROM citus_stat_counters WHERE name = current_database()"


class _Node(NamedTuple):
    name: str
    port: int
    group: int  # 0 for the coordinator


def split_statements(text: str) -> list[str]:
    """Split a SQL file into its statements like psql does, without its comments."""
    code = re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    found = [match[0].strip() for match in _STATEMENT.finditer(code)]
    assert re.sub(r"\s", "", "".join(found)) == re.sub(r"\s", "", code)
    return found


def find_problem(address: str = ADDRESS) -> str | None:
    """Return why the tests can't use LISTINGS_TEST_CITUS_URL, on one line, or None."""

    async def check() -> str | None:
        connection = await asyncpg.connect(address, timeout=10)
        try:
            if not await connection.fetchval(_IS_CITUS):
                return "is plain PostgreSQL: run `CREATE EXTENSION citus` there"
            if await connection.fetchval("SELECT groupid FROM pg_dist_local_group"):
                return "is a worker: use the coordinator"
            if not await connection.fetchval("SELECT count(*) FROM pg_dist_node"):
                return "knows no nodes: run `SELECT citus_set_coordinator_host('HOST', PORT)` there"
        finally:
            await connection.close()
        return None

    try:
        problem = asyncio.run(check())
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        problem = f"can't be reached: {' '.join(str(error).split())}"
    return None if problem is None else f"The database of LISTINGS_TEST_CITUS_URL {problem} (docs/testing.md)"


def hold_background_work(patch: pytest.MonkeyPatch) -> None:
    """Keep services that start meanwhile from doing background work, which may query every shard."""
    for task in ("MINUTELY", "BUDGET", "MARKET", "STAMP", "INDEX", "REVERT", "USAGE"):
        patch.setattr(background_tasks, f"{task}_SECONDS", 24 * 3600)


@contextmanager
def _lock() -> Iterator[None]:
    """Let one process at a time change what all databases share, such as the settings of roles."""
    with _LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class CitusCluster:
    """Provides databases distributed by deploy/citus.sql. They are created on demand and dropped at the end."""

    def __init__(self, address: str) -> None:
        self._parts = urlsplit(address)
        self._prefix = f"listings_test_{uuid4().hex[:8]}_"
        self._numbers = count(1)
        self._created: list[str] = []
        self._reusable: list[str] = []
        self._nodes: list[_Node] = []
        self._base_counts: dict[str, int] = {}  # multi-shard statements before a database was handed out

    def __enter__(self) -> Self:
        self._nodes = [_Node(*row) for row in self._execute(self._parts.path[1:], _NODES)]
        return self

    def __exit__(self, *_: object) -> None:
        with _lock():
            for name in self._created:
                self._on_all_nodes(self._parts.path[1:], f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def url(self, database: str, node: _Node | None = None) -> str:
        netloc = self._parts.netloc
        if node is not None:
            netloc = f"{netloc.rpartition('@')[0]}@{node.name}:{node.port}"
        return self._parts._replace(netloc=netloc, path=f"/{database}").geturl()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a database with the schema and no rows. It is emptied and reused afterwards."""
        name = self._reusable.pop() if self._reusable else self._create_alone()
        yield self.url(name)
        self._execute(name, *_EMPTY)
        self._reusable.append(name)
        self._base_counts[name] = self._count(name)

    def count_multi_shard(self) -> int:
        """Return how many statements on the databases in use went to more than one shard."""
        in_use = (name for name in self._base_counts if name not in self._reusable)  # not those being created
        return sum(self._count(name) - self._base_counts[name] for name in in_use)

    def _count(self, database: str) -> int:
        return int(self._execute(database, _COUNT_MULTI_SHARD)[0][0])

    def _create_alone(self) -> str:
        with _lock():
            return self._create()

    def _create(self) -> str:
        name = f"{self._prefix}{next(self._numbers)}"
        self._created.append(name)
        self._on_all_nodes(self._parts.path[1:], f"CREATE DATABASE {name} TEMPLATE template0")
        self._on_all_nodes(name, f"ALTER DATABASE {name} SET citus.enable_stat_counters = on")
        self._on_all_nodes(name, "CREATE EXTENSION citus")
        for node in self._nodes:
            call = "citus_set_coordinator_host" if node.group == 0 else "citus_add_node"
            self._execute(name, f"SELECT {call}('{node.name}', {node.port})")
        if not self._workers:
            self._execute(name, _KEEP_SHARDS)
        asyncio.run(migrate.migrate(self.url(name)))
        self._distribute(name)
        self._base_counts[name] = self._count(name)
        return name

    def _distribute(self, database: str) -> None:
        async def distribute() -> None:
            connection = await asyncpg.connect(self.url(database))
            try:
                for statement in split_statements(FILE.read_text("utf-8")):
                    rows = await connection.fetch(statement)
                    assert not rows or "run_command_on_shards" not in statement, rows
            finally:
                await connection.close()

        asyncio.run(distribute())

    @property
    def _workers(self) -> list[_Node]:
        return [node for node in self._nodes if node.group]

    def _on_all_nodes(self, database: str, statement: str) -> None:
        for node in (None, *self._workers):
            self._execute(database, statement, node=node)

    def _execute(self, database: str, *statements: str, node: _Node | None = None) -> list[tuple[Any, ...]]:
        # Each is a transaction, because Citus can't change shards and reference tables together. Returns the last rows.
        async def fetch() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self.url(database, node))
            try:
                rows = [await connection.fetch(statement) for statement in statements]
                return [tuple(row) for row in rows[-1]]
            finally:
                await connection.close()

        with asyncio.Runner() as runner:
            return runner.run(fetch())
