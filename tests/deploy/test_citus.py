"""Check deploy/citus.sql against the schema, with stand-ins for the functions of Citus on plain PostgreSQL."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from listings.store.postgres.inspection import inspect
from listings.store.postgres.pool import connect
from tests.citus_cluster import ADDRESS, FILE, CitusCluster, find_problem, split_statements
from tests.postgres_server import PostgresServer, find_programs
from tests.processes import run_program
from tests.tables import RESETS, TABLES

TEXT = FILE.read_text("utf-8")
STATEMENTS = split_statements(TEXT)
LOCAL = set(re.findall(r"\w+", re.findall(r"^-- Local tables, on the coordinator: (.*)$", TEXT, re.MULTILINE)[0]))
REFERENCE = re.findall(r"create_reference_table\('(\w+)'\)", TEXT)
DISTRIBUTED = re.findall(r"create_distributed_table\('(\w+)', 'bucket'", TEXT)
# Stand-ins with the signatures of Citus's functions. They check what the catalogue can tell.
STAND_IN = """
CREATE FUNCTION create_reference_table(table_name regclass) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION create_distributed_table(table_name regclass, distribution_column text, colocate_with text = 'default')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM CAST(colocate_with AS regclass) WHERE colocate_with <> 'default';
    ASSERT (SELECT CAST(atttypid AS regtype) = CAST('smallint' AS regtype) FROM pg_attribute
            WHERE attrelid = table_name AND attname = distribution_column), table_name;
    ASSERT NOT EXISTS (
        SELECT FROM pg_index JOIN pg_attribute AS its ON its.attrelid = table_name AND its.attname = distribution_column
        WHERE indrelid = table_name AND indisunique AND NOT its.attnum = ANY (indkey)), 'UNIQUE without the bucket';
    ASSERT NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = table_name AND NOT tgisinternal), 'a trigger';
END
$$;
CREATE FUNCTION truncate_local_data_after_distributing_table(table_name regclass) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION create_distributed_function(
    function_name regprocedure, distribution_arg_name text, colocate_with text = 'default')
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM CAST(colocate_with AS regclass);
    ASSERT (SELECT proargnames[1] = distribution_arg_name AND proargtypes[0] = CAST('smallint' AS regtype)
            FROM pg_proc WHERE oid = function_name);
END
$$;
CREATE FUNCTION run_command_on_shards(table_name regclass, command text)
RETURNS TABLE (shardid bigint, success boolean, result text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(command, table_name);
    RETURN QUERY SELECT CAST(1 AS bigint), true, 'ALTER TABLE';
END
$$;
"""
FOREIGN_KEYS = """
SELECT CAST(conrelid AS regclass)::text, CAST(confrelid AS regclass)::text,
    (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
     WHERE attrelid = conrelid AND attnum = ANY (conkey))
FROM pg_constraint WHERE contype = 'f'
"""
SWITCHED_OFF = """
SELECT name FROM pg_settings
WHERE source = 'client' AND setting = 'off' AND (name = 'jit' OR starts_with(name, 'enable_'))
"""


@pytest.fixture(scope="module")
def name(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(altered=True) as url:
        yield url.rpartition("/")[2].partition("?")[0]


def test_every_table_appears_exactly_once(postgres: PostgresServer, name: str) -> None:
    tables = [row[0] for row in postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)]
    assert sorted([*LOCAL, *REFERENCE, *DISTRIBUTED]) == sorted(tables)
    truncated = re.findall(r"truncate_local_data_after_distributing_table\('(\w+)'\)", TEXT)
    assert sorted(truncated) == sorted([*REFERENCE, *DISTRIBUTED])


def test_foreign_keys_stay_in_a_bucket_or_refer_to_reference_tables(postgres: PostgresServer, name: str) -> None:
    keys = postgres.execute(FOREIGN_KEYS, name)
    assert len(keys) >= 5
    for table, other, columns in keys:
        is_within_bucket = table in DISTRIBUTED and other in DISTRIBUTED and "bucket" in columns
        assert is_within_bucket or other in REFERENCE, (table, other)
        assert not (table in REFERENCE and other not in REFERENCE), (table, other)


@pytest.mark.decision("G43")
def test_the_unique_index_of_external_ids_has_the_bucket_and_the_account(postgres: PostgresServer, name: str) -> None:
    """Citus rejects a unique index without the column by which a table is distributed."""
    [(definition,)] = postgres.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'listings_external_id'", name)
    assert "CREATE UNIQUE INDEX" in definition
    assert "(bucket, account_id, external_id, " in definition
    assert definition.endswith("WHERE (external_id IS NOT NULL)")


def test_every_statement_matches_the_schema(postgres: PostgresServer, name: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(postgres.url(name))
        try:
            await connection.execute(STAND_IN)
            for statement in STATEMENTS:
                assert await connection.fetch(statement) == [] or not statement.endswith("WHERE NOT success;")
        finally:
            await connection.close()

    asyncio.run(run())
    settings = postgres.execute("SELECT unnest(setconfig) FROM pg_db_role_setting", name)
    assert ("lock_timeout=3s",) in settings


def test_the_role_has_the_planner_settings_of_searches(postgres: PostgresServer, name: str) -> None:
    async def list_settings() -> list[asyncpg.Record]:
        connection = await connect(postgres.url(name), 60, searching=True)
        try:
            return await connection.fetch(SWITCHED_OFF)
        finally:
            await connection.close()

    of_session = {row[0] for row in asyncio.run(list_settings())}
    assert {"jit", "enable_seqscan", "enable_sort"} < of_session
    assert set(re.findall(r"'(jit|enable_\w+) = off'", TEXT)) == of_session


def test_a_plain_role_can_restore_a_dump_without_the_extension(postgres: PostgresServer, tmp_path: Path) -> None:
    """Use the commands of docs/scaling.md, with another extension that only a superuser may create."""
    postgres.execute("CREATE ROLE plain LOGIN")
    postgres.execute("CREATE DATABASE restored TEMPLATE template0 OWNER plain")
    target = postgres.url("restored").replace("listings@", "plain@")
    dump, contents = tmp_path / "dump", tmp_path / "list"
    with postgres.database(altered=True) as url:
        for database in (url.rpartition("/")[2].partition("?")[0], "restored"):
            postgres.execute("CREATE EXTENSION pg_stat_statements", database)
        run_tool("pg_dump", "--format=custom", f"--file={dump}", url)
    lines = run_tool("pg_restore", "--list", str(dump)).splitlines(keepends=True)
    contents.write_text("".join(line for line in lines if "EXTENSION" not in line), "utf-8")
    options = ("--no-owner", "--exit-on-error", f"--dbname={target}", str(dump))
    with pytest.raises(subprocess.CalledProcessError, match="pg_restore"):
        run_tool("pg_restore", *options)
    run_tool("pg_restore", f"--use-list={contents}", *options)
    assert postgres.execute("SELECT count(*) FROM listings", "restored") == [(0,)]


def run_tool(name: str, *arguments: str) -> str:
    command = [str(find_programs() / name), *arguments]
    return run_program(command, check=True).stdout


def test_a_database_that_the_tests_cannot_use_is_explained_on_one_line(postgres: PostgresServer) -> None:
    plain = str(find_problem(postgres.url("postgres")))
    unreachable = find_problem("postgresql://listings@127.0.0.1:1/listings")
    assert plain.startswith("The database of LISTINGS_TEST_CITUS_URL is plain PostgreSQL: run `CREATE EXTENSION citus`")
    assert "can't be reached: " in str(unreachable)
    assert "\n" not in str(unreachable)


if ADDRESS:

    def test_the_check_of_the_schema_ignores_shards(citus: CitusCluster) -> None:
        with citus.database() as url:
            assert asyncio.run(inspect(url)).differences == []


def test_every_table_is_emptied_after_a_test(postgres: PostgresServer, name: str) -> None:
    tables = [row[0] for row in postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)]
    assert sorted([*TABLES, *RESETS, "schema_migrations"]) == sorted(tables)


def test_statements_are_split_as_in_psql() -> None:
    assert split_statements("-- a; b\nSELECT 'x;y';\nDO $$ a; b; $$;\n") == ["SELECT 'x;y';", "DO $$ a; b; $$;"]
