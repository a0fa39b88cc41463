"""Sources and targets that `listings copy` rejects, and how the target is given."""

from pathlib import Path

import pytest

from listings.domain.model import BUCKETS
from tests.cli.commands import Cli, Program
from tests.cli.copy_command.copies import UNUSUAL, Source, Target, are_equal
from tests.postgres_server import PostgresServer


def test_a_row_that_differs_after_the_copy_is_named(cli: Cli, source: Source, target: Target) -> None:
    cli.run_ok("--database-url", target.url, "migrate")
    victim = 3 * BUCKETS + source.cast.alice.account.id
    target.run(
        "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.title = 'spoilt'; RETURN NEW; END $$"
    )
    target.run(
        f"CREATE TRIGGER spoil BEFORE INSERT ON listings FOR EACH ROW WHEN (NEW.id = {victim}) EXECUTE FUNCTION spoil()"
    )
    assert cli.get_error("copy", "--to", target.url) == f"1 difference after the copy: listings {victim} (title)"
    target.run("DROP TRIGGER spoil ON listings")
    assert cli.data("copy", "--to", target.url)["written"] == 1
    assert are_equal(source, target)


def test_many_rows_that_differ_are_counted(cli: Cli, source: Source, target: Target) -> None:
    cli.run_ok("--database-url", target.url, "migrate")
    target.run("CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    target.run("CREATE TRIGGER lose BEFORE INSERT ON idempotency FOR EACH ROW EXECUTE FUNCTION lose()")
    bob = source.cast.bob.account.id
    message = cli.get_error("copy", "--to", target.url)
    assert message.startswith(f"{len(UNUSUAL)} differences after the copy: idempotency {bob} {bob} odd-0 (missing), ")


@pytest.mark.parametrize("kind", ["other tables", "other data", "another copy", "changed copy"])
def test_a_target_with_other_data_is_rejected_and_not_changed(
    cli: Cli, source: Source, target: Target, kind: str, tmp_path: Path
) -> None:
    assert source.file.exists()
    url = ("--database-url", target.url)
    if kind == "other tables":
        target.run("CREATE TABLE poems (text text)")
    if kind == "other data":
        cli.run_ok(*url, "migrate")
        cli.run_ok(*url, "account", "create", "--name", "erin", "--email", "erin@example.com")
    if kind == "another copy":
        another = Program(tmp_path, LISTINGS_DATABASE_URL="sqlite:///another.db")
        assert another.run("migrate").code == 0
        assert another.run("copy", "--to", target.url).code == 0
    if kind == "changed copy":
        cli.run_ok("copy", "--to", target.url)
        cli.run_ok(*url, "account", "disable", "1")
    before = target.dump()
    for options in ([], ["--dry-run"] if kind != "changed copy" else []):
        message = cli.get_error("copy", "--to", target.url, *options)
        assert message.endswith(": name an empty database")
    assert target.dump() == before


def test_text_that_postgresql_cannot_store_is_reported(cli: Cli, source: Source, target: Target) -> None:
    source.change("UPDATE accounts SET name = 'a' || char(0) || 'b' WHERE id = 2050")
    assert cli.get_error("copy", "--to", target.url).startswith("accounts 2050 has the character U+0000")


def test_a_database_with_another_encoding_is_rejected(
    cli: Cli, source: Source, postgres: PostgresServer, target: Target
) -> None:
    assert source.file.exists()
    target.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    assert "`createdb --encoding=UTF8`" in cli.get_error("copy", "--to", postgres.url("latin"))
    target.run("DROP DATABASE latin")


def test_a_postgresql_database_is_rejected_as_the_source(cli: Cli, target: Target) -> None:
    assert "in PostgreSQL already" in cli.get_error("--database-url", target.url, "copy", "--to", target.url)


def test_a_missing_source_is_reported(cli: Cli, target: Target) -> None:
    assert "There is no database" in cli.get_error("copy", "--to", target.url)
    assert target.dump() == {}


def test_the_target_may_be_in_a_file_and_its_password_is_never_shown(
    cli: Cli, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source.file.exists()
    secret = target.url.replace("listings@", "listings:hunter2@")
    (cli.folder / "target").write_text(f"{secret}\n")
    monkeypatch.setenv("LISTINGS_COPY_TO_FILE", "target")
    for options in (["--dry-run"], ["--json"], []):
        outcome = cli.run_ok("copy", *options)
        assert "hunter2" not in outcome.out + outcome.err
        assert target.url.partition("@")[2].partition("?")[0] in outcome.out
    monkeypatch.setenv("LISTINGS_COPY_TO", secret)
    message = cli.get_error("copy")
    assert "LISTINGS_COPY_TO and LISTINGS_COPY_TO_FILE are both set" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("wrong", ["mysql://a:hunter2@host/x", "postgresql://a:hunter2@host", "hunter2@host"])
def test_an_invalid_target_is_rejected_without_showing_its_password(
    cli: Cli, database: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database.exists()
    assert "hunter2" not in cli.get_usage_error("copy", "--to", wrong)
    monkeypatch.setenv("LISTINGS_COPY_TO", wrong)
    message = cli.get_error("copy")
    assert message.startswith("LISTINGS_COPY_TO must ")
    assert "hunter2" not in message


def test_the_target_is_required(cli: Cli, database: Path) -> None:
    assert database.exists()
    assert "LISTINGS_COPY_TO_FILE" in cli.get_error("copy")


def test_an_unreachable_server_is_reported_without_the_password(cli: Cli, database: Path) -> None:
    assert database.exists()
    message = cli.get_error("copy", "--to", "postgresql://listings:hunter2@127.0.0.1:1/listings")
    assert message.startswith("The database can't be reached: ")
    assert "hunter2" not in message
