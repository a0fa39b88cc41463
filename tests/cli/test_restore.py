"""`listings restore`, and the backup before a migration."""

from pathlib import Path

import apsw
import pytest

from listings.store.migrations import shipped_migrations
from listings.store.sqlite.maintenance import migrate
from tests.cli.commands import Cli, Data, Program, Serving
from tests.store.databases import rows


@pytest.fixture
def backup(cli: Cli, alice: Data) -> Path:  # noqa: ARG001 - part of the backup
    return Path(cli.data("backup", "backup.db")["backup"])


def test_a_restore_prints_its_result(cli: Cli, backup: Path, database: Path) -> None:
    result = cli.data("restore", str(backup))
    assert list(result) == ["database", "kept"]
    assert result["database"] == str(database)
    assert Path(result["kept"]).name.startswith("listings.db.before-restore-")
    assert rows(Path(result["kept"]), "SELECT id FROM accounts") == [(1,)]
    messages = cli.run_ok("restore", str(backup)).err
    assert "Saved the previous database as " in messages
    assert f"Restored {database} from" in messages


def test_a_restore_without_an_existing_database_saves_nothing(cli: Cli, backup: Path) -> None:
    result = cli.data("--database-url", "sqlite:///new/other.db", "restore", str(backup))
    assert result == {"database": str(cli.folder / "new/other.db"), "kept": None}


def test_the_service_works_on_a_restored_database(cli: Cli, alice: Data, program: Program) -> None:
    key = cli.key(alice)["key"]
    with program.serve() as service:
        saved = service.create(key, "saved")
        assert program.run("backup", "backup.db").code == 0
        lost = service.create(key, "lost")
        assert service.stop().code == 0
    assert "has new or changed rows that the backup lacks: 1 listing, the newest of " in cli.get_error(
        "restore", "backup.db"
    )
    cli.run_ok("restore", "--force", "backup.db")
    with program.serve() as service:
        assert service.read(key, saved).status_code == 200
        assert service.read(key, lost).status_code == 404
        assert service.create(key) > lost
        assert service.stop().code == 0


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_restore_is_rejected_while_the_service_runs(
    cli: Cli, backup: Path, service: Serving, force: list[str]
) -> None:
    assert "stop the service first" in cli.get_error("restore", str(backup), *force)
    key = cli.key({"id": 1})["key"]
    assert service.status(key) == 200
    assert [path.name for path in cli.folder.glob("data/*before*")] == []


def test_an_invalid_backup_is_a_one_line_error(cli: Cli, backup: Path) -> None:
    backup.write_text("no database " * 1000)
    assert cli.get_error("restore", str(backup)).startswith(f"{backup} can't be restored: ")
    assert cli.get_error("restore", "nowhere.db") == "nowhere.db can't be restored: No such file or directory"


def test_a_dry_run_creates_nothing(cli: Cli) -> None:
    result = cli.data("migrate", "--dry-run")
    assert result["pending"][0].startswith("0001_")
    assert list(cli.folder.iterdir()) == []


def test_a_restore_compares_an_older_database_by_common_tables(cli: Cli, alice: Data) -> None:
    cli.run_ok("backup", "backup.db")
    path = cli.folder / "data" / "listings.db"
    path.unlink()
    migrate.migrate(path, shipped_migrations()[:1])
    older = apsw.Connection(str(path))
    new, old = apsw.Connection(str(cli.folder / "backup.db")), older.cursor()
    old.execute("UPDATE database_id SET id = ?", new.execute("SELECT id FROM database_id").fetchall()[0])
    new.close()
    older.close()
    cli.run_ok("restore", "backup.db")
    assert cli.data("account", "show", str(alice["id"]))["email"] == alice["email"]


def test_a_restore_lists_disabled_accounts(cli: Cli, alice: Data) -> None:
    cli.run_ok("backup", "backup.db")
    cli.run_ok("account", "disable", str(alice["id"]))
    assert "backup lacks: 1 account and 1 audit event, the newest of " in cli.get_error("restore", "backup.db")
    cli.run_ok("restore", "backup.db", "--force")
    assert cli.data("account", "show", str(alice["id"]))["disabled_at"] is None


@pytest.mark.usefixtures("database")
def test_a_restore_of_sqlite_needs_no_further_command(cli: Cli, backup: Path) -> None:
    assert "`listings restore` has done this already" in cli.get_error("restored")
    assert "Everybody must sign in again: sessions, known browsers" in cli.run_ok("restore", str(backup)).err


@pytest.mark.usefixtures("database")
def test_the_id_of_a_listing_is_not_mistaken_for_a_backup(cli: Cli) -> None:
    assert cli.get_error("restore", "1025").endswith("to restore a deleted listing, run `listings undelete 1025`")
    assert "'backup.db' is not an id" in cli.get_usage_error("undelete", "backup.db")
