"""Databases for the tests of `listings copy`: a SQLite source with all kinds of rows, and a PostgreSQL target."""

from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.commands import Data
from tests.harness import Cast, Harness
from tests.postgres_server import PostgresServer
from tests.store import databases

TABLES = (
    *("accounts", "api_keys", "account_state", "listing_ids", "listings", "idempotency", "imports", "view_salts"),
    *("members", "sessions", "invitations", "sign_in_attempts", "payments", "activity", "changes", "usage_hours"),
    *(
        "reverts",
        "revert_conflicts",
        "change_groups",
        "refusals",
        "sign_in_devices",
        "plan_requests",
        "periodic_tasks",
        "mails",
        "email_tokens",
        "confirmed_emails",
    ),
    *("closed_accounts", "pictures", "picture_usage", "blocked_pictures", "plan_reminders", "views", "database_id"),
)
MARKET_COLUMNS = {"marketed", "market_version"}  # the state of the market index, which is not copied
FLAGS = {"is_active", "indexed", "new_ids", "overwrite"}
LISTINGS = 1_100
UNICODE = 'Ünïcode ☃ 株式会社 \u202e "quotes" \\ \t\r\n 𝄞 é'
PATHS = (
    *("", "?status=inactive", "?status=deleted&sort=-updated_at", "?limit=7&sort=price", "?q=wheels&limit=5"),
    *("?q=%C3%BCnicode&status=all", "?category=books&limit=3", "?price_min=10&price_max=20"),
)


class Source(NamedTuple):
    """A folder with a SQLite database that has all kinds of rows."""

    folder: Path
    cast: Cast

    @property
    def file(self) -> Path:
        return self.folder / "data" / "listings.db"

    def change(self, *statements: str) -> None:
        databases.change(self.file, *statements)


class Target:
    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self.url = url
        self._name = url.rpartition("/")[2].partition("?")[0]

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self._server.execute(statement, self._name)

    def count(self) -> int:
        if not self.run("SELECT to_regclass('database_copy') IS NOT NULL")[0][0]:
            return 0
        return int(self.run("SELECT (SELECT count(*) FROM listings) + (SELECT count(*) FROM accounts)")[0][0])

    def empty(self) -> None:
        """Delete everything, including the schema."""
        self.run("DROP SCHEMA public CASCADE")
        self.run("CREATE SCHEMA public")

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of all tables, without the times of migrations and copies."""
        names = [row[0] for row in self.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")]
        rows = {name: self.run(f"SELECT CAST(t AS text) FROM {name} AS t ORDER BY 1") for name in names}
        rows.pop("schema_migrations", None)
        copied = rows.pop("database_copy", None)
        return rows | ({"copied": [(len(copied),)]} if copied else {})


def fill(folder: Path) -> Cast:
    with open_harness(folder) as harness:
        cast = harness.cast()
        for first in range(0, LISTINGS, 100):
            operations = [build_operation(number) for number in range(first, first + 100)]
            body = {"operations": operations}
            reply = harness.fetch("POST", "/api/v1/listings/batch", key=cast.alice.key, json=body)
            assert {result["status"] for result in reply.json()["results"]} == {201}
        for number, values in enumerate(UNUSUAL):
            fields = {"title": f"{UNICODE} {number}", "content": "Two wheels.", **values}
            headers = {"Idempotency-Key": f"odd-{number}"}
            reply = harness.fetch("POST", "/api/v1/listings", key=cast.bob.key, json=fields, headers=headers)
            assert reply.status == 201, reply
        ids = [
            listing["id"] for listing in harness.fetch("GET", "/api/v1/listings", key=cast.alice.key).json()["listings"]
        ]
        for listing_id in ids[::9]:
            assert harness.fetch("DELETE", f"/api/v1/listings/{listing_id}", key=cast.alice.key).status == 200
        for listing_id in ids[1::9]:
            reply = harness.fetch(
                "PATCH", f"/api/v1/listings/{listing_id}", key=cast.alice.key, json={"is_active": False}
            )
            assert reply.status == 200
        harness.run(harness.services.market.index_accounts())
        harness.run(harness.services.test_mode.create_key(cast.alice.account, "rehearsal"))
    return cast


UNUSUAL: tuple[Data, ...] = (
    {},
    {"latitude": -90, "longitude": 179.99999999999997, "external_id": "ü/1"},
    {"external_id": "ü/2", "price": 0.01, "images": ["https://example.com/ü.png"]},
    {"content": "'; DROP TABLE listings; --\ufffe\U0010ffff"},
)


def build_operation(number: int) -> Data:
    category = ("books", "bikes", "boats")[number % 3]
    fields = {"title": f"Listing {number}", "content": "Two wheels.", "price": number / 4, "category": category}
    return {"op": "create", "listing": fields}


def add_rows(source: Source) -> None:
    """Add ended keys, a disabled account, imports, counters above all ids, and rows in the other tables."""
    bob, charlie = source.cast.bob.account.id, source.cast.charlie.account.id
    key = "INSERT INTO api_keys (account_id, digest, hint, name, created_at, expires_at, revoked_at, last_used_at)"
    source.change(
        f"{key} VALUES ({bob}, randomblob(32), 'lst_…abcd', 'revoked', 1, 2, 3, 4)",
        f"{key} VALUES ({bob}, randomblob(32), 'lst_…efgh', 'expired ☃', 1, 2, NULL, NULL)",
        "UPDATE api_keys SET access = 'read' WHERE name = 'revoked'",
        "INSERT INTO accounts (id, bucket, name, email, created_at, disabled_at) VALUES (2050, 2, 'dora', 'd@x', 1, 2)",
        "INSERT INTO account_state (bucket, account_id, revision) VALUES (2, 2050, 12345678901)",
        f"INSERT INTO imports VALUES ({bob}, {bob}, randomblob(32), 'csv', 1,"
        " 2, 3, 4, 5, 6, 7, 8, NULL, 9, 10, 11, 12, 13, 'a.csv')",
        f"INSERT INTO imports VALUES ({bob}, {bob}, randomblob(32), 'jsonl', 0,"
        " 2, 3, 4, 5, 6, 7, 8, 9, NULL, NULL, 0, 0, 0, '')",
        f"UPDATE listing_ids SET last = last + 1000 WHERE bucket = {bob}",
        "INSERT INTO listing_ids VALUES (99, 77)",
        "INSERT INTO view_salts VALUES (20000, randomblob(32))",
        f"INSERT INTO views VALUES (20000, {bob}, {1024 + bob}, randomblob(16))",
        f"UPDATE accounts SET plan_expires_at = NULL WHERE id = {charlie}",
        "UPDATE sqlite_sequence SET seq = 3000 WHERE name = 'accounts'",
        f"INSERT INTO members VALUES ({bob}, '$argon2id$☃', 1), ({charlie}, '', 2)",
        *(
            f"INSERT INTO sessions VALUES (randomblob(32), {bob}, '{it}', 's', 1, 2, 3, 'Ünïcode', NULL)"
            for it in "abc"
        ),
        f"INSERT INTO invitations VALUES (randomblob(32), {bob}, 1, 2), (randomblob(32), {charlie}, 1, 2)",
        "INSERT INTO sign_in_attempts VALUES (randomblob(32), 1, 2), (randomblob(32), 3, 4)",
        f"INSERT INTO sign_in_devices VALUES ({bob}, randomblob(32), 1), ({charlie}, randomblob(32), 2)",
        f"INSERT INTO plan_requests (account_id, requested_at) VALUES ({bob}, 1), ({charlie}, 2)",
        f"INSERT INTO mails VALUES ('a', 'key_created', 'bob@ü', {bob}, '{{}}', 1, 2, 3)",
        "INSERT INTO mails VALUES ('b', 'password_reset', 'nobody@x', NULL, '{}', 1, NULL, 3)",
        f"INSERT INTO email_tokens VALUES (randomblob(32), {bob}, 'ü@x', 1), (randomblob(32), {bob}, 'b@x', 2)",
        f"INSERT INTO confirmed_emails VALUES ({bob}, 'ü@x', 1), ({charlie}, 'c@x', 2)",
        f"INSERT INTO closed_accounts VALUES ({charlie}, 1)",
        f"INSERT INTO pictures VALUES ('{'a' * 32}', {bob}, randomblob(32), 16, 9, 7, 1, NULL, 'Ü.jpg', 'ü.jpg', NULL),"
        f" ('{'b' * 32}', {charlie}, randomblob(32), 1600, 1, 8, 2, 3, '', '', NULL)",
        f"INSERT INTO picture_usage VALUES ({bob}, 7, NULL), ({charlie}, 8, 5)",
        "INSERT INTO blocked_pictures VALUES (randomblob(32), 1)",
        f"INSERT INTO plan_reminders VALUES ({bob}, 1, 14), ({charlie}, 2, 0)",
        "INSERT INTO periodic_tasks VALUES ('daily report', 1)",
        f"INSERT INTO payments VALUES ('stripe', 'cs_1', {bob}, 1, 2, 3, 'in_1'), ('manual', 'ü', {bob}, 1, 2, 3, '')",
        f"INSERT INTO activity VALUES ({bob}, {bob}, 900, 0, 1, -1, 'updated', 7, '{{}}')",
        f"INSERT INTO activity VALUES ({bob}, {bob}, 900, 1, 1, 0, 'key_added', 7, '')",
        f"INSERT INTO changes VALUES ({bob}, {bob}, 900, 1, 7, 1, -1, 'import', 3, NULL, 0,"
        " '[]', '[[\"ü\", null]]', 5)",
        f"INSERT INTO reverts VALUES ({bob}, {bob}, 900, 'key', 7, 1, 899, 0, 9223372036854775807, 1, 7, 900, 1, 1, "
        "-3, 1, 2, 1, 5, randomblob(16), 9, 901)",
        f"INSERT INTO change_groups VALUES ({bob}, {bob}, 901, 'named', 'ü', 7, 1, 2, 905, 2, 3, NULL)",
        f"INSERT INTO revert_conflicts VALUES ({bob}, {bob}, 900, 1, 7, 'changed_later', '[\"title\"]', NULL)",
        f"INSERT INTO usage_hours VALUES ({bob}, {bob}, 400000, 7, 200, 12345678901), ({bob}, {bob}, 4, 7, 404, 1)",
        f"INSERT INTO refusals VALUES ({bob}, {bob}, 1790000000000000, 'r', 7, 'c', 403, 'GET', '/ü', 'ü')",
    )


def open_harness(folder: Path, database: str | None = None) -> Harness:
    return Harness(folder / "data", database=database or f"sqlite:///{folder}/data/listings.db")


def list_columns(file: Path, table: str) -> list[str]:
    names = [str(row[1]) for row in databases.rows(file, f"PRAGMA table_info({table})")]
    return [name for name in names if name not in MARKET_COLUMNS]


def read_sqlite(file: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted(databases.rows(file, f"SELECT {', '.join(list_columns(file, table))} FROM {table}"), key=repr)


def read_postgres(target: Target, file: Path, table: str) -> list[tuple[Any, ...]]:
    names = list_columns(file, table)
    rows = target.run(f"SELECT {', '.join(names)} FROM {table}")
    return sorted(
        (tuple(int(it) if name in FLAGS else it for name, it in zip(names, row, strict=True)) for row in rows), key=repr
    )


def are_equal(source: Source, target: Target) -> bool:
    return all(read_sqlite(source.file, table) == read_postgres(target, source.file, table) for table in TABLES)
