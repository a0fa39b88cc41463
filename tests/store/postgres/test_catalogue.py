"""The schema of a PostgreSQL database, compared with the one that its migrations create."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from listings.store.migrations import Difference, shipped_migrations
from listings.store.postgres import catalogue
from tests.postgres_server import PostgresServer

FUNCTION = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
TRIGGER = "CREATE TRIGGER foreign_one BEFORE INSERT ON listings FOR EACH ROW EXECUTE FUNCTION f()"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(altered=True) as url:
        yield url


def find_differences(url: str, *statements: str) -> list[Difference]:
    async def find() -> list[Difference]:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
            return await catalogue.find_differences(connection, shipped_migrations("postgres"))
        finally:
            await connection.close()

    return asyncio.run(find())


def test_a_migrated_database_has_no_differences_and_is_not_changed(url: str, postgres: PostgresServer) -> None:
    assert find_differences(url) == []
    assert find_differences(url, "CREATE TABLE database_copy (source_id text)") == []
    schemas = postgres.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'check%'", url.rpartition("/")[2].partition("?")[0]
    )
    assert schemas == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DROP INDEX listings_active", "index listings_active is missing"),
        ("ALTER TABLE accounts ADD COLUMN foo integer", "column accounts.foo is not part of it"),
        ("ALTER TABLE listings DROP CONSTRAINT listings_check", "constraint listings.listings_check is missing"),
        ("ALTER TABLE listings ALTER COLUMN title DROP NOT NULL", "column listings.title was changed"),
        ("ALTER TABLE mails SET UNLOGGED", "table mails was changed"),
        ("DROP STATISTICS listings_place", "statistics listings_place is missing"),
        ("DROP TABLE payments", "column payments.account_id is missing"),
        (f"{FUNCTION}; {TRIGGER}", "trigger listings.foreign_one is not part of it"),
        (
            "CREATE TABLE other (id bigint CONSTRAINT to_account REFERENCES accounts)",
            "constraint other.to_account is not part of it",
        ),
        (
            "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'listings_active'::regclass",
            "index listings_active was changed",
        ),
    ],
)
def test_what_changes_writes_or_slows_reads_is_a_fault(url: str, statement: str, found: str) -> None:
    assert found in [one.found for one in find_differences(url, statement) if one.is_fault]


def test_additional_objects_are_no_faults(url: str) -> None:
    other = "CREATE TABLE other (id integer PRIMARY KEY)"
    found = find_differences(url, "CREATE INDEX extra ON listings (title)", other, FUNCTION)
    assert [one.found for one in found if one.is_fault] == []
    assert Difference("index extra is not part of it", "DROP INDEX extra", is_fault=False) in found
    assert Difference("table other is not part of it", "DROP TABLE other", is_fault=False) in found


@pytest.mark.parametrize(
    "statement",
    [
        "DROP INDEX listings_active",
        "ALTER TABLE accounts ADD COLUMN foo integer",
        "ALTER TABLE listings DROP CONSTRAINT listings_check",
        "ALTER TABLE account_state DROP COLUMN purged_serial",
        "DROP FUNCTION record_edit",
        f"{FUNCTION}; {TRIGGER}",
    ],
)
def test_the_repairs_remove_the_differences(url: str, statement: str) -> None:
    order = ("trigger", "function")
    found = sorted(
        find_differences(url, statement),
        key=lambda one: (one.found.split()[0] in order, one.found.startswith("function")),
    )
    assert found
    assert find_differences(url, *(one.repair for one in found)) == []


def test_a_role_that_may_not_create_a_schema_gets_a_warning(url: str) -> None:
    weak = "CREATE ROLE weak_role LOGIN", "SET ROLE weak_role"
    (found,) = find_differences(url, *weak)
    assert (found.is_fault, "permission denied" in found.found) == (False, True)
