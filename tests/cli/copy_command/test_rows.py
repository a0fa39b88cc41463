"""`listings copy` copies every row, and a second run copies only the differences."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from listings.domain.model import BUCKETS, MarketEntry
from tests.cli import terminal
from tests.cli.commands import Cli, Program
from tests.cli.copy_command.copies import (
    LISTINGS,
    PATHS,
    TABLES,
    UNICODE,
    UNUSUAL,
    Source,
    Target,
    are_equal,
    open_harness,
    read_postgres,
    read_sqlite,
)
from tests.cli.transfers import measure_memory
from tests.harness import Cast, Harness, Reply
from tests.store import databases


def test_every_row_of_every_table_is_copied(cli: Cli, source: Source, target: Target) -> None:
    done = cli.data("copy", "--to", target.url)
    for table in TABLES:
        assert read_sqlite(source.file, table) == read_postgres(target, source.file, table), table
    tables = TABLES[:-1]
    assert {name: done[name] for name in tables} == {name: len(read_sqlite(source.file, name)) for name in tables}
    assert (done["written"], done["removed"]) == (sum(done[name] for name in tables), 0)
    assert done["listings"] == LISTINGS + len(UNUSUAL)


def list_market(source: Source, database: str | None = None) -> list[MarketEntry]:
    with open_harness(source.folder, database) as harness:
        harness.clock.advance(60)  # until the lease of another indexer has expired
        harness.index_market()
        entries: list[MarketEntry] = harness.run(harness.store.page_newest(count=2_000))
        return sorted(entries, key=lambda entry: entry.id)


def test_the_target_indexes_its_own_market(cli: Cli, source: Source, target: Target) -> None:
    before = list_market(source)
    assert len(before) > LISTINGS / 2
    cli.data("copy", "--to", target.url)
    after = list_market(source, target.url)
    assert [msgspec.structs.replace(entry, serial=0) for entry in after] == [
        msgspec.structs.replace(entry, serial=0) for entry in before
    ]


def read_all(harness: Harness, cast: Cast) -> list[Any]:
    ids = [f"/{serial * BUCKETS + cast.alice.account.id}" for serial in (1, 2, 3, 500, LISTINGS + 1)]
    found = []
    for person in cast:
        for path in (*PATHS, *ids):
            reply = harness.fetch("GET", f"/api/v1/listings{path}", key=person.key)
            found.append((person.account.id, path, reply.status, reply.headers.get("etag"), reply.body))
    return found


def repeat_create(harness: Harness, cast: Cast) -> Reply:
    """Send the first of bob's creates again."""
    fields = {"title": f"{UNICODE} 0", "content": "Two wheels."}
    headers = {"Idempotency-Key": "odd-0"}
    return harness.fetch("POST", "/api/v1/listings", key=cast.bob.key, json=fields, headers=headers)


def test_the_api_works_as_before_after_the_copy(cli: Cli, source: Source, target: Target) -> None:
    with open_harness(source.folder) as harness:
        before, first_reply = read_all(harness, source.cast), repeat_create(harness, source.cast)
    cli.run_ok("copy", "--to", target.url)
    with open_harness(source.folder, target.url) as harness:
        assert read_all(harness, source.cast) == before
        reply = repeat_create(harness, source.cast)
        assert (reply.status, reply.body) == (201, first_reply.body)
        assert reply.headers["idempotent-replayed"] == first_reply.headers["idempotent-replayed"] == "true"
        highest = databases.rows(
            source.file, f"SELECT last FROM listing_ids WHERE bucket = {source.cast.bob.account.id}"
        )
        fields = {"title": "new", "content": "new"}
        created = harness.fetch("POST", "/api/v1/listings", key=source.cast.bob.key, json=fields).json()["id"]
        assert created // BUCKETS == int(str(highest[0][0])) + 1
        assert harness.person("erin", 1).account.id == 3001


def test_a_partly_indexed_account_is_copied_with_a_complete_index(cli: Cli, source: Source, target: Target) -> None:
    alice = source.cast.alice
    source.change(
        f"UPDATE account_state SET indexed = 2 WHERE account_id = {alice.account.id}",
        f"UPDATE listings SET indexed = FALSE WHERE account_id = {alice.account.id} AND id > {BUCKETS * 500}",
    )
    cli.run_ok("copy", "--to", target.url)
    of_alice = f"WHERE account_id = {alice.account.id}"
    assert target.run(f"SELECT indexed FROM account_state {of_alice}") == [(True,)]
    assert target.run(f"SELECT count(*) FROM listings {of_alice} AND indexed") == [(LISTINGS,)]
    assert target.run("SELECT count(*) FROM listing_words") == [(LISTINGS,)]
    with open_harness(source.folder, target.url) as harness:
        before = harness.fetch("GET", "/api/v1/listings?q=wheels&limit=5&sort=id", key=alice.key).body
        created = harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "new", "content": "new"})
        assert created.status == 201
        assert harness.fetch("GET", "/api/v1/listings?q=wheels&limit=5&sort=id", key=alice.key).body == before
    assert target.run(f"SELECT count(*) FROM listings {of_alice} AND indexed") == [(LISTINGS + 1,)]
    assert target.run("SELECT count(*) FROM listing_words") == [(LISTINGS + 1,)]


def test_an_empty_source_is_copied(cli: Cli, database: Path, target: Target) -> None:
    assert database.exists()
    assert cli.data("copy", "--to", target.url)["written"] == 0
    url = ("--database-url", target.url)
    assert cli.data(*url, "account", "create", "--name", "alice", "--email", "alice@example.com")["id"] == 1


def test_a_second_run_copies_only_the_differences(cli: Cli, source: Source, target: Target) -> None:
    cli.run_ok("copy", "--to", target.url)
    second = cli.data("copy", "--to", target.url)
    assert (second["written"], second["removed"]) == (0, 0)
    alice, bob = source.cast.alice.account, source.cast.bob.account
    source.change(
        f"UPDATE accounts SET email = 'swapped' WHERE id = {alice.id}",
        f"UPDATE accounts SET email = '{alice.email}' WHERE id = {bob.id}",
        f"UPDATE accounts SET email = '{bob.email}' WHERE id = {alice.id}",
        f"UPDATE listings SET title = 'Unicycle', version = 2 WHERE id = {BUCKETS + alice.id}",
        f"UPDATE listings SET is_active = 1 - is_active WHERE id = {BUCKETS + bob.id}",
        f"UPDATE listings SET external_id = NULL WHERE id = {2 * BUCKETS + bob.id}",
        f"UPDATE listings SET external_id = 'ü/1' WHERE id = {3 * BUCKETS + bob.id}",
        f"UPDATE listings SET external_id = 'ü/2' WHERE id = {2 * BUCKETS + bob.id}",
        "DELETE FROM idempotency WHERE key = 'odd-1'",
        "DELETE FROM account_state WHERE account_id = 2050",
        "DELETE FROM accounts WHERE id = 2050",
    )
    assert not are_equal(source, target)
    planned = cli.data("copy", "--to", target.url, "--dry-run")
    changed = cli.data("copy", "--to", target.url)
    assert (changed["written"], changed["removed"]) == (planned["written"], planned["removed"]) == (6, 3)
    assert are_equal(source, target)
    words = target.run(f"SELECT words FROM listing_words WHERE id = {BUCKETS + alice.id}")[0][0]
    assert f"{alice.id}:unicycle" in words


@pytest.mark.usefixtures("source")
def test_a_dry_run_changes_nothing(cli: Cli, target: Target) -> None:
    planned = cli.data("copy", "--to", target.url, "--dry-run")
    assert target.dump() == {}
    done = cli.data("copy", "--to", target.url)
    assert done | {"seconds": 0} == planned | {"rate_limits": done["rate_limits"], "seconds": 0}


def test_a_progress_bar_is_shown_on_a_terminal(source: Source, target: Target) -> None:
    code, output = terminal.run(source.folder, "copy", "--to", target.url, stream="stderr")
    assert (code, "Copying" in output) == (0, True)


@pytest.mark.uncovered
def test_a_copy_of_many_listings_needs_little_memory(program: Program, target: Target) -> None:
    assert program.run("migrate").code == 0
    with closing(apsw.Connection(str(program.folder / "data/listings.db"))) as connection:
        databases.add_account(connection, 1)
        with connection:
            for serial in range(1, 5_001):
                connection.execute(databases.LISTING, (serial, 1, "x" * 12_000, databases.CREATED)).fetchall()
    assert measure_memory(program.folder, "copy", "--to", target.url) < 60 * 1024
    assert target.run("SELECT count(*), sum(length(content)) FROM listings")[0] == (5_000, 60_000_000)
