"""`listings copy`: everything from SQLite to PostgreSQL, by the installed program and in this process."""

import asyncio
import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest

from listings.domain.errors import Problem
from listings.domain.model import BUCKETS, MarketEntry, MarketQuery
from listings.store.sqlite_to_postgres import copy as postgres_copy
from tests.cli import terminal
from tests.cli.commands import DEADLINE, Cli, Data, Program
from tests.cli.transfers import memory_of, start
from tests.harness import Cast, Harness, Reply
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.store import databases

TABLES = (
    *("accounts", "api_keys", "account_state", "listing_ids", "listings", "idempotency", "imports", "view_salts"),
    *("members", "sessions", "invitations", "sign_in_attempts", "payments", "activity", "usage_hours", "refusals"),
    *("views", "database_id"),
)
OF_THE_MARKET = {"marketed", "market_version"}  # columns that tell what is in the source's market, not in the target's
FLAGS = {"is_active", "indexed", "new_ids"}
MANY = 1_100
ODD = 'Ünïcode ☃ 株式会社 \u202e "quotes" \\ \t\r\n 𝄞 é'
PATHS = (
    *("", "?status=inactive", "?status=deleted&sort=-updated_at", "?limit=7&sort=price", "?q=wheels&limit=5"),
    *("?q=%C3%BCnicode&status=all", "?category=books&limit=3", "?price_min=10&price_max=20"),
)


class Source(NamedTuple):
    """A folder whose database has all kinds of rows."""

    folder: Path
    cast: Cast

    @property
    def file(self) -> Path:
        return self.folder / "data" / "listings.db"

    def change(self, *statements: str) -> None:
        databases.change(self.file, *statements)


class Target:
    """A database of the server."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self.url = url
        self._name = url.rpartition("/")[2].partition("?")[0]

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self._server.execute(statement, self._name)

    def count(self) -> int:
        """Rows that were copied so far."""
        if not self.run("SELECT to_regclass('database_copy') IS NOT NULL")[0][0]:
            return 0
        return int(self.run("SELECT (SELECT count(*) FROM listings) + (SELECT count(*) FROM accounts)")[0][0])

    def empty(self) -> None:
        """As it was before the first copy."""
        self.run("DROP SCHEMA public CASCADE")
        self.run("CREATE SCHEMA public")

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, whosesoever, but for the moments at which the schema and the copy were made."""
        names = [row[0] for row in self.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")]
        rows = {name: self.run(f"SELECT CAST(t AS text) FROM {name} AS t ORDER BY 1") for name in names}
        rows.pop("schema_migrations", None)
        copied = rows.pop("database_copy", None)
        return rows | ({"copied": [(len(copied),)]} if copied else {})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """alice with many listings, so that they are indexed; bob with odd ones; charlie without a plan."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "data").mkdir()
    source = Source(folder, fill(folder))
    furnish(source)
    return source


def fill(folder: Path) -> Cast:
    """What comes by the API."""
    with open_house(folder) as harness:
        cast = harness.cast()
        for first in range(0, MANY, 100):
            items = [item(number) for number in range(first, first + 100)]
            reply = harness.fetch("POST", "/api/v1/listings/batch", key=cast.alice.key, json={"operations": items})
            assert {result["status"] for result in reply.json()["results"]} == {201}
        for number, more in enumerate(ODDITIES):
            fields = {"title": f"{ODD} {number}", "content": "Two wheels.", **more}
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
        harness.run(harness.service.index_accounts())
    return cast


ODDITIES: tuple[Data, ...] = (
    {},
    {"latitude": -90, "longitude": 179.99999999999997},
    {"price": 0.01, "images": ["https://example.com/ü.png"]},
    {"content": "'; DROP TABLE listings; --\ufffe\U0010ffff"},
)


def item(number: int) -> Data:
    category = ("books", "bikes", "boats")[number % 3]
    fields = {"title": f"Listing {number}", "content": "Two wheels.", "price": number / 4, "category": category}
    return {"op": "create", "listing": fields}


def furnish(source: Source) -> None:
    """What else there can be: keys that ended, an account that is disabled, an import, counters beyond the ids."""
    bob, charlie = source.cast.bob.account.id, source.cast.charlie.account.id
    key = "INSERT INTO api_keys (account_id, digest, hint, name, created_at, expires_at, revoked_at, last_used_at)"
    source.change(
        f"{key} VALUES ({bob}, randomblob(32), 'lst_…abcd', 'revoked', 1, 2, 3, 4)",
        f"{key} VALUES ({bob}, randomblob(32), 'lst_…efgh', 'expired ☃', 1, 2, NULL, NULL)",
        "INSERT INTO accounts (id, bucket, name, email, created_at, disabled_at) VALUES (2050, 2, 'dora', 'd@x', 1, 2)",
        "INSERT INTO account_state (bucket, account_id, revision) VALUES (2, 2050, 12345678901)",
        f"INSERT INTO imports VALUES ({bob}, {bob}, randomblob(32), 'csv', 1, 2, 3, 4, 5, 6, 7, 8, NULL, 9)",
        f"INSERT INTO imports VALUES ({bob}, {bob}, randomblob(32), 'jsonl', 0, 2, 3, 4, 5, 6, 7, 8, 9, NULL)",
        f"UPDATE listing_ids SET last = last + 1000 WHERE bucket = {bob}",
        "INSERT INTO listing_ids VALUES (99, 77)",
        "INSERT INTO view_salts VALUES (20000, randomblob(32))",
        f"INSERT INTO views VALUES (20000, {bob}, {1024 + bob}, randomblob(16))",
        f"UPDATE accounts SET plan_expires_at = NULL WHERE id = {charlie}",
        "UPDATE sqlite_sequence SET seq = 3000 WHERE name = 'accounts'",
        f"INSERT INTO members VALUES ({bob}, '$argon2id$☃', 1), ({charlie}, '', 2)",
        *(f"INSERT INTO sessions VALUES (randomblob(32), {bob}, '{it}', 's', 1, 2, 3, 'Ünïcode')" for it in "abc"),
        f"INSERT INTO invitations VALUES (randomblob(32), {bob}, 1, 2), (randomblob(32), {charlie}, 1, 2)",
        "INSERT INTO sign_in_attempts VALUES (randomblob(32), 1, 2), (randomblob(32), 3, 4)",
        f"INSERT INTO payments VALUES ('stripe', 'cs_1', {bob}, 1, 2, 3), ('manual', 'ü', {bob}, 1, 2, 3)",
        f"INSERT INTO activity VALUES ({bob}, {bob}, 900, 0, 1, -1, 'updated', 7, '{{}}')",
        f"INSERT INTO activity VALUES ({bob}, {bob}, 900, 1, 1, 0, 'key_added', 7, '')",
        f"INSERT INTO usage_hours VALUES ({bob}, {bob}, 400000, 7, 200, 12345678901), ({bob}, {bob}, 4, 7, 404, 1)",
        f"INSERT INTO refusals VALUES ({bob}, {bob}, 1790000000000000, 'r', 7, 'c', 403, 'GET', '/ü')",
    )


def open_house(folder: Path, database: str | None = None) -> Harness:
    return Harness(folder / "data", database=database or f"sqlite:///{folder}/data/listings.db")


@pytest.fixture
def source(filled: Source, cli: Cli) -> Source:
    """A copy of it for the test alone, in the folder of the commands."""
    (cli.folder / "data").mkdir()
    with closing(databases.connect(filled.file)) as connection:
        connection.execute("VACUUM INTO ?", (str(cli.folder / "data" / "listings.db"),)).fetchall()
    return filled._replace(folder=cli.folder)


@pytest.fixture
def target(postgres: PostgresServer) -> Iterator[Target]:
    with postgres.bare_database() as url:
        yield Target(postgres, url)


@pytest.fixture
def other(postgres: PostgresServer) -> Iterator[Target]:
    with postgres.bare_database() as url:
        yield Target(postgres, url)


def columns(file: Path, table: str) -> list[str]:
    names = [str(row[1]) for row in databases.rows(file, f"PRAGMA table_info({table})")]
    return [name for name in names if name not in OF_THE_MARKET]


def in_sqlite(file: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted(databases.rows(file, f"SELECT {', '.join(columns(file, table))} FROM {table}"), key=repr)


def in_postgres(target: Target, file: Path, table: str) -> list[tuple[Any, ...]]:
    names = columns(file, table)
    rows = target.run(f"SELECT {', '.join(names)} FROM {table}")
    return sorted(
        (tuple(int(it) if name in FLAGS else it for name, it in zip(names, row, strict=True)) for row in rows), key=repr
    )


def same(source: Source, target: Target) -> bool:
    return all(in_sqlite(source.file, table) == in_postgres(target, source.file, table) for table in TABLES)


# What is copied


def test_every_row_of_every_table_is_copied(cli: Cli, source: Source, target: Target) -> None:
    done = cli.data("copy", "--to", target.url)
    for table in TABLES:
        assert in_sqlite(source.file, table) == in_postgres(target, source.file, table), table
    tables = TABLES[:-1]
    assert {name: done[name] for name in tables} == {name: len(in_sqlite(source.file, name)) for name in tables}
    assert (done["written"], done["removed"]) == (sum(done[name] for name in tables), 0)
    assert done["listings"] == MANY + len(ODDITIES)


def market_of(source: Source, database: str | None = None) -> list[MarketEntry]:
    with open_house(source.folder, database) as harness:
        harness.clock.advance(60)  # the house before may have indexed a moment ago
        harness.run(harness.service.index_market())
        entries: list[MarketEntry] = harness.run(harness.service.search_market(MarketQuery(limit=2_000))).entries
        return sorted(entries, key=lambda entry: entry.id)


def test_the_target_makes_its_market_anew(cli: Cli, source: Source, target: Target) -> None:
    before = market_of(source)
    assert len(before) > MANY / 2
    cli.data("copy", "--to", target.url)
    after = market_of(source, target.url)
    assert [msgspec.structs.replace(entry, serial=0) for entry in after] == [
        msgspec.structs.replace(entry, serial=0) for entry in before
    ]


def answers(harness: Harness, cast: Cast) -> list[Any]:
    """What everybody reads."""
    ids = [f"/{serial * BUCKETS + cast.alice.account.id}" for serial in (1, 2, 3, 500, MANY + 1)]
    found = []
    for person in cast:
        for path in (*PATHS, *ids):
            reply = harness.fetch("GET", f"/api/v1/listings{path}", key=person.key)
            found.append((person.account.id, path, reply.status, reply.headers.get("etag"), reply.body))
    return found


def repeat(harness: Harness, cast: Cast) -> Reply:
    """The first of bob's creates, sent once more."""
    fields = {"title": f"{ODD} 0", "content": "Two wheels."}
    headers = {"Idempotency-Key": "odd-0"}
    return harness.fetch("POST", "/api/v1/listings", key=cast.bob.key, json=fields, headers=headers)


def test_the_api_answers_as_before_and_goes_on(cli: Cli, source: Source, target: Target) -> None:
    with open_house(source.folder) as harness:
        before, first = answers(harness, source.cast), repeat(harness, source.cast)
    cli.done("copy", "--to", target.url)
    with open_house(source.folder, target.url) as harness:
        assert answers(harness, source.cast) == before
        again = repeat(harness, source.cast)
        assert (again.status, again.body) == (201, first.body)
        assert again.headers["idempotent-replayed"] == first.headers["idempotent-replayed"] == "true"
        highest = databases.rows(
            source.file, f"SELECT last FROM listing_ids WHERE bucket = {source.cast.bob.account.id}"
        )
        fields = {"title": "new", "content": "new"}
        created = harness.fetch("POST", "/api/v1/listings", key=source.cast.bob.key, json=fields).json()["id"]
        assert created // BUCKETS == int(str(highest[0][0])) + 1
        assert harness.person("erin", 1).account.id == 3001


def test_an_account_that_is_being_indexed_is_indexed_whole_by_its_next_create(
    cli: Cli, source: Source, target: Target
) -> None:
    alice = source.cast.alice
    source.change(f"UPDATE account_state SET indexed = 2 WHERE account_id = {alice.account.id}")
    cli.done("copy", "--to", target.url)
    of_alice = f"WHERE account_id = {alice.account.id}"
    assert target.run(f"SELECT indexed FROM account_state {of_alice}") == [(False,)]
    assert target.run(f"SELECT count(*) FROM listings {of_alice} AND indexed") == [(0,)]
    assert target.run("SELECT count(*) FROM listing_words") == [(0,)]
    with open_house(source.folder, target.url) as harness:
        before = harness.fetch("GET", "/api/v1/listings?q=wheels&limit=5&sort=id", key=alice.key).body
        created = harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "new", "content": "new"})
        assert created.status == 201
        assert harness.fetch("GET", "/api/v1/listings?q=wheels&limit=5&sort=id", key=alice.key).body == before
    assert target.run(f"SELECT count(*) FROM listings {of_alice} AND indexed") == [(MANY + 1,)]
    assert target.run("SELECT count(*) FROM listing_words") == [(MANY + 1,)]


def test_an_empty_source_is_copied(cli: Cli, database: Path, target: Target) -> None:
    assert database.exists()
    assert cli.data("copy", "--to", target.url)["written"] == 0
    url = ("--database-url", target.url)
    assert cli.data(*url, "account", "create", "--name", "alice", "--email", "alice@example.com")["id"] == 1


def test_a_second_run_copies_only_what_differs(cli: Cli, source: Source, target: Target) -> None:
    cli.done("copy", "--to", target.url)
    again = cli.data("copy", "--to", target.url)
    assert (again["written"], again["removed"]) == (0, 0)
    alice, bob = source.cast.alice.account, source.cast.bob.account
    source.change(
        f"UPDATE accounts SET email = 'swapped' WHERE id = {alice.id}",
        f"UPDATE accounts SET email = '{alice.email}' WHERE id = {bob.id}",
        f"UPDATE accounts SET email = '{bob.email}' WHERE id = {alice.id}",
        f"UPDATE listings SET title = 'Unicycle', version = 2 WHERE id = {BUCKETS + alice.id}",
        f"UPDATE listings SET is_active = 1 - is_active WHERE id = {BUCKETS + bob.id}",
        "DELETE FROM idempotency WHERE key = 'odd-1'",
        "DELETE FROM account_state WHERE account_id = 2050",
        "DELETE FROM accounts WHERE id = 2050",
    )
    assert not same(source, target)
    planned = cli.data("copy", "--to", target.url, "--dry-run")
    changed = cli.data("copy", "--to", target.url)
    assert (changed["written"], changed["removed"]) == (planned["written"], planned["removed"]) == (4, 3)
    assert same(source, target)
    words = target.run(f"SELECT words FROM listing_words WHERE id = {BUCKETS + alice.id}")[0][0]
    assert f"{alice.id}:unicycle" in words


@pytest.mark.usefixtures("source")
def test_a_dry_run_changes_nothing(cli: Cli, target: Target) -> None:
    planned = cli.data("copy", "--to", target.url, "--dry-run")
    assert target.everything() == {}
    done = cli.data("copy", "--to", target.url)
    assert done | {"seconds": 0} == planned | {"rate_limits": done["rate_limits"], "seconds": 0}


# Interruptions


def test_a_copy_that_is_killed_goes_on_and_ends_the_same(
    cli: Cli, source: Source, target: Target, other: Target
) -> None:
    add_listings(source, 12_000)
    began = time.monotonic()
    with start(cli.folder, "copy", "--to", other.url) as process:
        process.communicate(timeout=DEADLINE)
    lasts, chance = time.monotonic() - began, random.Random(7)
    while kill_when_more_is_there(cli.folder, target, chance) == other.count():
        target.empty()  # it had ended before we came to kill it
    assert 0 < target.count() < other.count()
    kill_when_more_is_there(cli.folder, target, chance)
    kills = 0
    while kills < 5:
        if kill_after(cli.folder, target, chance.uniform(0.3, 0.9) * lasts):
            kills += 1
        else:
            lasts *= 0.9  # the first one was slow
    cli.done("copy", "--to", target.url)
    assert same(source, target)
    assert target.everything() == other.everything()


def add_listings(source: Source, number: int) -> None:
    """To dora's account, so many that they are written in several batches."""
    with closing(databases.connect(source.file)) as connection, connection:
        for serial in range(1000, 1000 + number):
            values = (serial, 2050, "Tandem", databases.CREATED)
            connection.execute(databases.LISTING, values).fetchall()


def kill_when_more_is_there(folder: Path, target: Target, chance: random.Random) -> int:
    """Returns how many rows a copy has left that was killed a moment after it had written."""
    before = target.count()
    with start(folder, "copy", "--to", target.url) as process:
        while process.poll() is None and target.count() <= before:
            pass
        end(process, chance.uniform(0, 0.02))
    return target.count()


def kill_after(folder: Path, target: Target, seconds: float) -> bool:
    """Whether a copy was still at work then."""
    with start(folder, "copy", "--to", target.url) as process:
        end(process, seconds)
        return process.returncode == -signal.SIGKILL


def end(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate(timeout=DEADLINE)


def test_nothing_uses_a_copy_that_is_not_finished(cli: Cli, source: Source, target: Target) -> None:
    with pytest.raises(Stopped):
        copy(source.file, target.url, Stop(after=800))
    assert target.run("SELECT count(*) FROM accounts")[0][0] > 0
    for command in (["account", "list"], ["migrate"], ["serve", "--port", "0"]):
        assert "`listings copy` again" in cli.refused("--database-url", target.url, *command)
    cli.done("copy", "--to", target.url)
    assert "alice" in cli.done("--database-url", target.url, "account", "list").out


class Stopped(Exception):
    """In the middle of a copy."""


class Stop:
    """Progress that ends a copy after so many rows."""

    def __init__(self, after: int) -> None:
        self._after = after

    def __call__(self, done: int, total: int) -> None:
        assert done <= total
        if done >= self._after:
            raise Stopped


def copy(file: Path, url: str, progress: Any) -> None:
    asyncio.run(postgres_copy.copy(file, url, progress=progress))


def test_what_is_written_meanwhile_is_told_and_copied_by_the_next_run(cli: Cli, source: Source, target: Target) -> None:
    with open_house(source.folder) as harness:
        written: list[int] = []

        def write(done: int, total: int) -> None:
            assert done <= total
            if len(written) < 1:
                fields = {"title": "Meanwhile", "content": "Two wheels."}
                written.extend(
                    harness.fetch("POST", "/api/v1/listings", key=person.key, json=fields).status
                    for person in source.cast[:2]
                )

        with pytest.raises(Problem) as raised:
            copy_in_a_thread(source.file, target.url, write)
    assert written == [201, 201]
    assert raised.value.message.startswith("2 accounts were written meanwhile: stop the service and run it again")
    assert "Meanwhile" not in str(target.run("SELECT title FROM listings"))
    assert "`listings copy` again" in cli.refused("--database-url", target.url, "account", "list")
    assert cli.data("copy", "--to", target.url)["written"] <= 8
    assert same(source, target)


def copy_in_a_thread(file: Path, url: str, progress: Any) -> None:
    """The house's own loop can be run meanwhile only where no other runs."""
    asked: Queue[Any] = Queue()
    answered: Queue[Any] = Queue()

    def fetch(done: int, total: int) -> None:
        asked.put((done, total))
        answered.get()

    def run() -> None:
        try:
            copy(file, url, fetch)
        finally:
            asked.put(None)

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(run)
        while (now := asked.get()) is not None:
            progress(*now)
            answered.put(None)
        ended.result()


# Refusals


def test_a_row_that_differs_after_the_copy_is_named(cli: Cli, source: Source, target: Target) -> None:
    cli.done("--database-url", target.url, "migrate")
    victim = 3 * BUCKETS + source.cast.alice.account.id
    target.run(
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.title = 'spoilt'; RETURN NEW; END $$"
    )
    target.run(
        f"CREATE TRIGGER spoil BEFORE INSERT ON listings FOR EACH ROW WHEN (NEW.id = {victim}) EXECUTE FUNCTION spoil()"
    )
    assert cli.refused("copy", "--to", target.url) == f"1 row differs after the copy: listings {victim} (title)"
    target.run("DROP TRIGGER spoil ON listings")
    assert cli.data("copy", "--to", target.url)["written"] == 1
    assert same(source, target)


def test_many_rows_that_differ_are_counted(cli: Cli, source: Source, target: Target) -> None:
    cli.done("--database-url", target.url, "migrate")
    target.run("CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    target.run("CREATE TRIGGER lose BEFORE INSERT ON idempotency FOR EACH ROW EXECUTE FUNCTION lose()")
    bob = source.cast.bob.account.id
    said = cli.refused("copy", "--to", target.url)
    assert said.startswith(f"{len(ODDITIES)} rows differ after the copy: idempotency {bob} {bob} odd-0 (missing), ")


@pytest.mark.parametrize("kind", ["tables", "data", "another", "written"])
def test_a_target_that_holds_anything_else_is_refused_and_untouched(
    cli: Cli, source: Source, target: Target, kind: str, tmp_path: Path
) -> None:
    assert source.file.exists()
    url = ("--database-url", target.url)
    if kind == "tables":
        target.run("CREATE TABLE poems (text text)")
    if kind == "data":
        cli.done(*url, "migrate")
        cli.done(*url, "account", "create", "--name", "erin", "--email", "erin@example.com")
    if kind == "another":
        another = Program(tmp_path, LISTINGS_DATABASE_URL="sqlite:///another.db")
        assert another.run("migrate").code == 0
        assert another.run("copy", "--to", target.url).code == 0
    if kind == "written":
        cli.done("copy", "--to", target.url)
        cli.done(*url, "account", "disable", "1")
    before = target.everything()
    for options in ([], ["--dry-run"] if kind != "written" else []):
        said = cli.refused("copy", "--to", target.url, *options)
        assert said.endswith(": name an empty database")
    assert target.everything() == before


def test_text_that_postgresql_cannot_store_is_named(cli: Cli, source: Source, target: Target) -> None:
    source.change("UPDATE accounts SET name = 'a' || char(0) || 'b' WHERE id = 2050")
    assert cli.refused("copy", "--to", target.url).startswith("accounts 2050 has the character U+0000")


def test_a_database_of_another_encoding_is_refused(
    cli: Cli, source: Source, postgres: PostgresServer, target: Target
) -> None:
    assert source.file.exists()
    target.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "`createdb --encoding=UTF8`" in cli.refused("copy", "--to", postgres.url("latin"))
    target.run("DROP DATABASE latin")


def test_data_that_is_in_postgresql_is_no_source(cli: Cli, target: Target) -> None:
    assert "in PostgreSQL already" in cli.refused("--database-url", target.url, "copy", "--to", target.url)


def test_a_source_must_be_there(cli: Cli, target: Target) -> None:
    assert "There is no database" in cli.refused("copy", "--to", target.url)
    assert target.everything() == {}


# Where to


def test_the_target_is_told_by_a_file_and_its_password_by_nothing(
    cli: Cli, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source.file.exists()
    secret = target.url.replace("listings@", "listings:hunter2@")
    (cli.folder / "target").write_text(f"{secret}\n")
    monkeypatch.setenv("LISTINGS_COPY_TO_FILE", "target")
    for options in (["--dry-run"], ["--json"], []):
        outcome = cli.done("copy", *options)
        assert "hunter2" not in outcome.out + outcome.err
        assert target.url.partition("@")[2].partition("?")[0] in outcome.out
    monkeypatch.setenv("LISTINGS_COPY_TO", secret)
    said = cli.refused("copy")
    assert "LISTINGS_COPY_TO and LISTINGS_COPY_TO_FILE are both set" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("wrong", ["mysql://a:hunter2@host/x", "postgresql://a:hunter2@host", "hunter2@host"])
def test_what_is_no_address_is_refused_without_its_password(
    cli: Cli, database: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database.exists()
    assert "hunter2" not in cli.misused("copy", "--to", wrong)
    monkeypatch.setenv("LISTINGS_COPY_TO", wrong)
    said = cli.refused("copy")
    assert said.startswith("LISTINGS_COPY_TO must ")
    assert "hunter2" not in said


def test_a_target_has_to_be_told(cli: Cli, database: Path) -> None:
    assert database.exists()
    assert "LISTINGS_COPY_TO_FILE" in cli.refused("copy")


def test_a_server_that_is_away_is_one_sentence_without_the_password(cli: Cli, database: Path) -> None:
    assert database.exists()
    said = cli.refused("copy", "--to", "postgresql://listings:hunter2@127.0.0.1:1/listings")
    assert said.startswith("The database can't be reached: ")
    assert "hunter2" not in said


# How it goes


def test_a_bar_is_shown_on_a_terminal(source: Source, target: Target) -> None:
    code, shown = terminal.run(source.folder, "copy", "--to", target.url, stream="stderr")
    assert (code, "Copying" in shown) == (0, True)


def test_many_listings_are_copied_in_little_memory(program: Program, target: Target) -> None:
    assert program.run("migrate").code == 0
    with closing(apsw.Connection(str(program.folder / "data/listings.db"))) as connection:
        databases.add_account(connection, 1)
        with connection:
            for serial in range(1, 15_001):
                connection.execute(databases.LISTING, (serial, 1, "x" * 4000, databases.CREATED)).fetchall()
    assert memory_of(program.folder, "copy", "--to", target.url) < 60 * 1024
    assert target.run("SELECT count(*), sum(length(content)) FROM listings")[0] == (15_000, 60_000_000)


def test_the_rate_limit_goes_on_where_it_was(cli: Cli, source: Source, target: Target) -> None:
    key = source.cast.bob.key
    with open_house(source.folder) as harness:
        left = [harness.fetch("GET", "/api/v1/listings", key=key).headers["x-ratelimit-remaining"] for _ in range(4)][
            -1
        ]
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    with Harness(source.folder / "data", database=target.url) as harness:
        assert json.loads(harness.fetch("GET", "/api/v1/rate_limit", key=key).body)["remaining"] == int(left)


def test_the_rate_limit_goes_on_in_redis_too(
    cli: Cli, source: Source, target: Target, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = source.cast.bob.key
    with open_house(source.folder) as harness:
        replies = [harness.fetch("GET", "/api/v1/listings", key=key) for _ in range(4)]
    left = int(replies[-1].headers["x-ratelimit-remaining"])
    monkeypatch.setenv("LISTINGS_REDIS_URL", redis_server.url)
    for _ in range(2):
        assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
    empty = cli.folder / "another machine"
    with Harness(empty, database=target.url, redis=redis_server.url, redis_timeout="10000") as harness:
        assert json.loads(harness.fetch("GET", "/api/v1/rate_limit", key=key).body)["remaining"] == left


def test_a_redis_that_is_away_is_told_and_the_next_run_goes_on(
    cli: Cli, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_house(source.folder) as harness:
        harness.fetch("GET", "/api/v1/listings", key=source.cast.bob.key)
    monkeypatch.setenv("LISTINGS_REDIS_URL", "redis://127.0.0.1:1")
    said = cli.refused("copy", "--to", target.url)
    assert said.startswith("All rows are copied, but not what the rate limit has counted: ")
    assert same(source, target)
    monkeypatch.delenv("LISTINGS_REDIS_URL")
    assert cli.data("copy", "--to", target.url)["rate_limits"] == 1
