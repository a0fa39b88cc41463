"""The SQL statements: their parameters, buckets and query plans."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from listings.store import change_groups, change_sql, member_sql, pictures, report, retention, sql
from listings.store.reverts import sql as revert_sql
from listings.store.sqlite.connections import open_reader, open_writer
from listings.store.sqlite.maintenance import migrate

STATEMENTS = {
    name: value
    for name, value in (
        vars(sql)
        | vars(change_sql)
        | vars(revert_sql)
        | vars(change_groups)
        | vars(report)
        | vars(retention)
        | vars(member_sql)
        | vars(pictures)
    ).items()
    if name.isupper() and isinstance(value, str) and not name.endswith(("COLUMNS", "_BYTES"))
    if "[])" not in value  # of PostgreSQL, with arrays
} | {
    "change_listing": sql.build_listing_update(("title", "price_cents", "is_active")),
    "change_account": sql.build_account_update(("name", "plan_expires_at")),
    **{f"ERASE_ROWS[{number}]": statement for number, statement in enumerate(member_sql.ERASE_ROWS)},
    **{f"ERASE_BY_PARTITION[{number}]": text for number, text in enumerate(member_sql.ERASE_BY_PARTITION)},
}
HOT_TABLES = ("listings", "listing_ids", "account_state", "imports", "activity", "changes", "usage_hours", "refusals")


@pytest.fixture
def connection(tmp_path: Path) -> apsw.Connection:
    migrate.migrate(tmp_path / "listings.db")
    return open_writer(tmp_path / "listings.db")


def find_parameters(statement: str) -> list[int]:
    return sorted({int(number) for number in re.findall(r"\$(\d+)", statement)})


def test_the_statements_are_found() -> None:
    assert len(STATEMENTS) >= 16


def test_every_parameter_binds_to_its_number(connection: apsw.Connection) -> None:
    for statement in STATEMENTS.values():
        numbers = find_parameters(statement)
        assert numbers == list(range(1, len(numbers) + 1)), statement
        cursor = connection.cursor()
        expanded = None
        for _ in cursor.execute("EXPLAIN " + sql.to_sqlite(statement), [9_000 + number for number in numbers]):
            expanded = cursor.expanded_sql
        assert expanded == "EXPLAIN " + re.sub(r"\$(\d+)", lambda match: str(9_000 + int(match[1])), statement)


def test_dollar_numbers_are_translated_for_sqlite(connection: apsw.Connection) -> None:
    assert connection.execute("SELECT $2, $1", ("a", "b")).fetchall() == [("a", "b")]
    assert connection.execute(sql.to_sqlite("SELECT $2, $1"), ("a", "b")).fetchall() == [("b", "a")]


def test_every_statement_on_a_hot_table_has_the_bucket() -> None:
    for name, statement in STATEMENTS.items():
        is_hot = re.search(rf"\b(FROM|INTO|UPDATE|JOIN) ({'|'.join(HOT_TABLES)})\b", statement)
        if is_hot and name not in {
            "LIST_LARGE_ACCOUNTS",
            "READ_BACKLOG",
        }:  # which read all accounts, a few times a minute
            assert re.search(r"\bbucket = \$\d|INTO \w+ \(\s*(id, )?bucket,", statement), name


def test_no_statement_casts_with_colons_or_selects_all_columns() -> None:
    for name, statement in STATEMENTS.items():
        assert "::" not in statement, name
        assert not re.search(r"SELECT \*|RETURNING \*", statement), name


def get_plan(connection: apsw.Connection, statement: str) -> str:
    values = range(1, len(find_parameters(statement)) + 1)
    cursor = connection.execute("EXPLAIN QUERY PLAN " + sql.to_sqlite(statement), tuple(values))
    return "; ".join(str(row[3]) for row in cursor.fetchall())


@pytest.mark.parametrize("connect", [open_reader, open_writer])
def test_reads_use_their_index_and_do_not_sort(tmp_path: Path, connect: Callable[[Path], apsw.Connection]) -> None:
    migrate.migrate(tmp_path / "listings.db")
    connection = connect(tmp_path / "listings.db")
    assert get_plan(connection, sql.GET_LISTING) == "SEARCH listings USING INTEGER PRIMARY KEY (rowid=?)"
    listing_plan = "SEARCH listings USING INDEX listings_active (bucket=? AND account_id=?)"
    assert get_plan(connection, sql.LIST_LISTINGS) == listing_plan
    caller_plan = get_plan(connection, sql.FIND_CALLER)
    assert caller_plan == (
        "SEARCH k USING INDEX sqlite_autoindex_api_keys_1 (digest=?); SEARCH a USING INTEGER PRIMARY KEY (rowid=?)"
        "; SEARCH live USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN"
    )


def test_a_page_of_all_listings_merges_two_indexes_without_sorting(connection: apsw.Connection) -> None:
    assert get_plan(connection, sql.PAGE_LISTINGS) == (
        "MERGE (UNION ALL); LEFT; SEARCH listings USING INDEX listings_active (bucket=? AND account_id=? AND id>?); "
        "RIGHT; SEARCH listings USING INDEX listings_hidden (bucket=? AND account_id=? AND id>?)"
    )


@pytest.mark.parametrize("connect", [open_reader, open_writer])
def test_a_statement_is_not_replanned_for_other_values(
    tmp_path: Path, connect: Callable[[Path], apsw.Connection]
) -> None:
    migrate.migrate(tmp_path / "listings.db")
    with closing(connect(tmp_path / "listings.db")) as connection:
        assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1


def test_statements_that_erase_some_rows_follow_an_index(connection: apsw.Connection) -> None:
    plans = [get_plan(connection, statement) for statement in member_sql.ERASE_ROWS]
    assert [plan for plan in plans if "SCAN" in plan or "TEMP B-TREE" in plan or "account_id=?" not in plan] == []
    assert "listings_external_id" in plans[-1]


def test_statements_of_reverts_follow_an_index(connection: apsw.Connection) -> None:
    names = [name for name in vars(revert_sql) if name.isupper() and name in STATEMENTS]
    plans = {name: get_plan(connection, getattr(revert_sql, name)) for name in names}
    assert {name for name, plan in plans.items() if "SCAN" in plan or "TEMP B-TREE" in plan} == {"LIST_RUNNING_REVERTS"}
    running = "reverts USING INDEX reverts_running"
    assert plans["LIST_RUNNING_REVERTS"].startswith(f"SCAN {running}; ")
    assert "SEARCH accounts USING INTEGER PRIMARY KEY" in plans["LIST_RUNNING_REVERTS"]
    assert plans["FIND_UNFINISHED_REVERT"] == f"SEARCH {running} (bucket=? AND account_id=?)"


def test_old_idempotency_records_are_found_by_their_age(connection: apsw.Connection) -> None:
    plan = get_plan(connection, sql.PURGE_IDEMPOTENCY_RECORDS)
    assert "SEARCH idempotency USING COVERING INDEX idempotency_age (created_at<?)" in plan
    assert "SEARCH idempotency USING PRIMARY KEY (bucket=? AND account_id=? AND key=?)" in plan
    assert "SCAN idempotency" not in plan
    assert "TEMP B-TREE" not in plan


def test_no_console_statement_scans_a_table_or_sorts(connection: apsw.Connection) -> None:
    names = [name for name in vars(member_sql) if name.isupper() and name in STATEMENTS]
    assert len(names) > 40
    for name in names:
        plan = get_plan(connection, getattr(member_sql, name))
        assert "SCAN" not in plan, (name, plan)
        few = name in {"LIST_SESSIONS", "LIST_USAGE_BY_DAY", "TRIM_DEVICES"}  # a few rows of one account
        assert "TEMP B-TREE" not in plan or few, (name, plan)


def test_the_report_reads_only_the_period_and_indexes(connection: apsw.Connection) -> None:
    assert "usage_hours_age (bucket=? AND hour>?)" in get_plan(connection, report.SUM_USAGE)
    assert "refusals_age (bucket=? AND moment>?)" in get_plan(connection, report.COUNT_REJECTIONS)
    assert "SEARCH market_listings USING INTEGER PRIMARY KEY (rowid<?)" in get_plan(connection, report.COUNT_NEWEST)
    assert (
        get_plan(connection, report.COUNT_MARKET) == "SCAN market_listings USING COVERING INDEX market_listings_account"
    )
