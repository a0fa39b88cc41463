"""Databases of a Citus cluster for tests, which is there already: its address is LISTINGS_TEST_CITUS_URL."""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from listings.store.postgres import migrate

ADDRESS = os.environ.get("LISTINGS_TEST_CITUS_URL", "")
"""Of a database on the coordinator that has the extension and knows the nodes; its user may make databases."""

FILE = Path(__file__).parent.parent / "deploy" / "citus.sql"
_STATEMENT = re.compile(r"(?:[^;$']|'[^']*'|\$\$.*?\$\$|\$\d)+;", re.DOTALL)
_NODES = "SELECT nodename, nodeport, groupid FROM pg_dist_node WHERE noderole = 'primary' AND isactive ORDER BY groupid"
_TABLES = (
    "market",
    "market_places",
    "market_indexer",
    "views",
    "view_salts",
    "listing_words",
    "listings",
    "listing_ids",
    "imports",
    "idempotency",
    "activity",
    "usage_hours",
    "refusals",
    "sessions",
    "invitations",
    "members",
    "sign_in_attempts",
    "payments",
    "account_state",
    "api_keys",
    "accounts",
)
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'listings'
"""
_EMPTY = (
    _END_SESSIONS,
    *(f"DELETE FROM {table}" for table in _TABLES),  # noqa: S608 - of this list
    "SELECT setval(pg_get_serial_sequence('accounts', 'id'), 1, false)",
    "SELECT setval(pg_get_serial_sequence('api_keys', 'id'), 1, false)",
    "UPDATE database_id SET id = replace(CAST(gen_random_uuid() AS text), '-', '')",
)
_COUNTED = "SELECT query_execution_multi_shard FROM citus_stat_counters WHERE name = current_database()"


class _Node(NamedTuple):
    """A PostgreSQL of the cluster."""

    name: str
    port: int
    group: int  # the coordinator's is 0


def statements_of(text: str) -> list[str]:
    """The statements of a file, as psql takes them apart, without its comments."""
    code = re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    found = [match[0].strip() for match in _STATEMENT.finditer(code)]
    assert re.sub(r"\s", "", "".join(found)) == re.sub(r"\s", "", code)
    return found


class CitusCluster:
    """Databases with the schema, distributed by deploy/citus.sql, made when they are needed and dropped at the end."""

    def __init__(self, address: str) -> None:
        self._parts = urlsplit(address)
        self._prefix = f"listings_test_{uuid4().hex[:8]}_"
        self._numbers = count(1)
        self._made: list[str] = []
        self._emptied: list[str] = []
        self._nodes: list[_Node] = []
        self._own: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._nodes = [_Node(*row) for row in self._ask(self._parts.path[1:], _NODES)]
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._made:
            self._on_all_nodes(self._parts.path[1:], f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, database: str, node: _Node | None = None) -> str:
        place = self._parts.netloc
        if node is not None:
            place = f"{place.rpartition('@')[0]}@{node.name}:{node.port}"
        return self._parts._replace(netloc=place, path=f"/{database}").geturl()

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of a database with the schema and nothing in it; it is emptied and used again."""
        name = self._emptied.pop() if self._emptied else self._make()
        yield self.url(name)
        for statement in _EMPTY:  # each by itself: rows of shards and of reference tables don't go together
            self._ask(name, statement)
        self._emptied.append(name)
        self._own[name] = self._count(name)

    def count_multi_shard(self) -> int:
        """How many statements of those databases that are lent went to more than one shard, since each was lent."""
        return sum(self._count(name) - self._own[name] for name in self._made if name not in self._emptied)

    def _count(self, database: str) -> int:
        return int(self._ask(database, _COUNTED)[0][0])

    def _make(self) -> str:
        name = f"{self._prefix}{next(self._numbers)}"
        self._made.append(name)
        self._on_all_nodes(self._parts.path[1:], f"CREATE DATABASE {name} TEMPLATE template0")
        self._on_all_nodes(name, f"ALTER DATABASE {name} SET citus.enable_stat_counters = on")
        self._on_all_nodes(name, "CREATE EXTENSION citus")
        for node in self._nodes:
            call = "citus_set_coordinator_host" if node.group == 0 else "citus_add_node"
            self._ask(name, f"SELECT {call}('{node.name}', {node.port})")
        if not self._workers:
            held = "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node"
            self._ask(name, held)
        asyncio.run(migrate.migrate(self.url(name)))
        self._distribute(name)
        self._own[name] = self._count(name)
        return name

    def _distribute(self, database: str) -> None:
        async def distribute() -> None:
            connection = await asyncpg.connect(self.url(database))
            try:
                for statement in statements_of(FILE.read_text("utf-8")):
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
            self._ask(database, statement, node)

    def _ask(self, database: str, statement: str, node: _Node | None = None) -> list[tuple[Any, ...]]:
        async def fetch() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self.url(database, node))
            try:
                return [tuple(row) for row in await connection.fetch(statement)]
            finally:
                await connection.close()

        with asyncio.Runner() as runner:
            return runner.run(fetch())
