"""Databases with each released schema and many rows, and digests of their content, for each engine."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Protocol

import apsw

from listings.store import migrations
from listings.store.postgres import migrate as postgres_migrate
from listings.store.sqlite.maintenance import migrate
from tests.postgres_server import PostgresServer

ACCOUNTS = 100
_LISTING = (
    "id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,"
    " district, is_active, created_at, updated_at, deleted_at"
)
_ROW = (
    "i * 1024 + i % 100 + 1, i % 100 + 1, i % 100 + 1, 'Lamp ' || i, 'Bright. Found in an attic, with its cord.',"
    " 'product', 'Lighting', '[]', i, 'fixed', 'Attic', 'Otago', '', i % 5 <> 0, '2026-01-02 03:04:05',"
    " '2026-01-02 03:04:05', CASE WHEN i % 7 = 0 THEN 1767323045 END"
)
_NUMBERS_CTE = "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {most}) "
_SELECT_ACCOUNT = "SELECT i, i, 'alice', 'alice' || i || '@example.com', 1767323045 FROM "
_INSERT_ACCOUNTS = "INSERT INTO accounts (id, bucket, name, email, created_at) "
_INSERT_STATE = "INSERT INTO account_state (bucket, account_id, revision) SELECT id, id, 1 FROM accounts"
_INSERT_LAST_IDS = "INSERT INTO listing_ids (bucket, last) SELECT id, {rows} FROM accounts"

_POSTGRES_SCHEMA = """
SELECT 'column', concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'function', md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'constraint', conname || pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
ORDER BY 1, 2
"""


class SchemaDatabases(Protocol):
    name: str
    released: list[migrations.Migration]

    def prepare(self, rows: int, schemas: int) -> None:
        """Create one template for each of the first `schemas` released schemas, with this many listings."""

    def create(self, version: int) -> AbstractContextManager[str]:
        """Create a temporary database with this version of the schema; yield its URL."""

    def compute_digests(self, url: str) -> dict[str, str]:
        """Return a digest per table, the schema, and the applied migrations."""

    def restart(self) -> None:
        """Restart the server as after a crash, if the engine has one."""


class SqliteDatabases:
    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self.released = migrations.shipped_migrations()
        self._folder = folder
        self._number = count(1)

    def prepare(self, rows: int, schemas: int) -> None:
        first = self._template_file(1)
        migrate.migrate(first, self.released[:1])
        with closing(apsw.Connection(str(first))) as connection, connection:
            for statement in _sqlite_rows(rows):
                connection.execute(statement).fetchall()
        for version in range(2, schemas + 1):
            shutil.copy(self._template_file(version - 1), self._template_file(version))
            migrate.migrate(self._template_file(version), self.released[:version])

    @contextmanager
    def create(self, version: int) -> Iterator[str]:
        folder = self._folder / str(next(self._number))
        folder.mkdir()
        shutil.copy(self._template_file(version), folder / "listings.db")
        yield f"sqlite:///{folder}/listings.db"
        shutil.rmtree(folder)

    def compute_digests(self, url: str) -> dict[str, str]:
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
            integrity = connection.execute("PRAGMA integrity_check").fetchall()
            found = {"integrity": str(integrity)}
            schema = connection.execute("SELECT name, type, sql FROM sqlite_schema ORDER BY name").fetchall()
            found["schema"] = str(schema)
            for name in [row[0] for row in schema if row[1] == "table" and row[0] != "schema_migrations"]:
                digest = sha256()
                for row in connection.execute(f'SELECT * FROM "{name}"'):
                    digest.update(repr(row).encode())
                found[f"table {name}"] = digest.hexdigest()
            found["applied"] = str(connection.execute(migrations.APPLIED).fetchall())
        return found

    def restart(self) -> None:
        """Do nothing: there is no server."""

    def _template_file(self, version: int) -> Path:
        folder = self._folder / f"base-{version}"
        folder.mkdir(exist_ok=True)
        return folder / "listings.db"


class PostgresDatabases:
    name = "PostgreSQL"

    def __init__(self, server: PostgresServer) -> None:
        self.released = migrations.shipped_migrations("postgres")
        self._server = server
        self._number = count(1)

    def prepare(self, rows: int, schemas: int) -> None:
        for version in range(1, schemas + 1):
            template = f"TEMPLATE base_{version - 1}" if version > 1 else "TEMPLATE template0"
            self._server.execute(f"CREATE DATABASE base_{version} {template}")
            asyncio.run(postgres_migrate.migrate(self._server.url(f"base_{version}"), self.released[:version]))
            if version == 1:
                for statement in _postgres_rows(rows):
                    self._server.execute(statement, "base_1")

    @contextmanager
    def create(self, version: int) -> Iterator[str]:
        name = f"fresh_{next(self._number)}"
        self._server.execute(f"CREATE DATABASE {name} TEMPLATE base_{version}")
        yield self._server.url(name)
        self._server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def compute_digests(self, url: str) -> dict[str, str]:
        name = url.rpartition("/")[2].partition("?")[0]
        found = {"schema": str(self._server.execute(_POSTGRES_SCHEMA, name))}
        tables = self._server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)
        digests = " UNION ALL ".join(
            f"SELECT '{table}', md5(string_agg(md5(CAST(t AS text)), '' ORDER BY CAST(t AS text))) FROM {table} AS t"
            for table in sorted(str(row[0]) for row in tables if row[0] != "schema_migrations")
        )
        found |= {f"table {table}": str(digest) for table, digest in self._server.execute(digests, name)}
        found["applied"] = str(self._server.execute(migrations.APPLIED, name))
        return found

    def restart(self) -> None:
        self._server.restart()


def _sqlite_rows(rows: int) -> list[str]:
    return [
        _INSERT_ACCOUNTS + _NUMBERS_CTE.format(most=ACCOUNTS) + _SELECT_ACCOUNT + "numbers",
        _INSERT_STATE,
        _INSERT_LAST_IDS.format(rows=rows),
        f"INSERT INTO listings ({_LISTING}) {_NUMBERS_CTE.format(most=rows)}SELECT {_ROW} FROM numbers",
    ]


def _postgres_rows(rows: int) -> list[str]:
    return [
        _INSERT_ACCOUNTS + _SELECT_ACCOUNT + f"generate_series(1, {ACCOUNTS}) AS i",
        _INSERT_STATE,
        _INSERT_LAST_IDS.format(rows=rows),
        f"INSERT INTO listings ({_LISTING}) SELECT {_ROW} FROM generate_series(1, {rows}) AS i",
    ]
