"""`listings restore`, and the copy that is kept before a migration."""

from pathlib import Path

import apsw
import pytest

from listings.store.migrations import Migration, shipped_migrations
from listings.store.sqlite.maintenance import migrate, restore
from tests.cli.commands import Cli, Data, Program, Serving
from tests.store.databases import rows

NEXT = Migration(len(shipped_migrations()) + 1, "next", "CREATE TABLE next (a INTEGER) STRICT")


@pytest.fixture
def backup(cli: Cli, alice: Data) -> Path:  # noqa: ARG001 - she is in it
    return Path(cli.data("backup", "backup.db")["backup"])


def test_a_restore_tells_what_it_did(cli: Cli, backup: Path, database: Path) -> None:
    told = cli.data("restore", str(backup))
    assert list(told) == ["database", "kept", "pending"]
    assert (told["database"], told["pending"]) == (str(database), [])
    assert Path(told["kept"]).name.startswith("listings.db.before-restore-")
    assert rows(Path(told["kept"]), "SELECT id FROM accounts") == [(1,)]
    said = cli.done("restore", str(backup)).err
    assert "is kept in" in said
    assert f"Restored {database} from" in said


def test_a_restore_to_where_there_is_no_database_keeps_nothing(cli: Cli, backup: Path) -> None:
    told = cli.data("--database-url", "sqlite:///new/other.db", "restore", str(backup))
    assert told == {"database": str(cli.folder / "new/other.db"), "kept": None, "pending": []}


def test_the_service_runs_on_a_restored_database(cli: Cli, alice: Data, program: Program) -> None:
    key = cli.key(alice)["key"]
    with program.serve() as service:
        kept = service.create(key, "kept")
        assert program.run("backup", "backup.db").code == 0
        lost = service.create(key, "lost")
        assert service.stop().code == 0
    assert "has 1 edit that the backup lacks" in cli.refused("restore", "backup.db")
    cli.done("restore", "--force", "backup.db")
    with program.serve() as service:
        assert service.read(key, kept).status_code == 200
        assert service.read(key, lost).status_code == 404
        assert service.create(key) == lost
        assert service.stop().code == 0


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_restore_beside_the_running_service_is_refused(
    cli: Cli, backup: Path, service: Serving, force: list[str]
) -> None:
    assert "stop the service first" in cli.refused("restore", str(backup), *force)
    key = cli.key({"id": 1})["key"]
    assert service.status(key) == 200
    assert [path.name for path in cli.folder.glob("data/*before*")] == []


def test_what_would_be_lost_is_told(cli: Cli, backup: Path, alice: Data) -> None:
    cli.account("bob")
    cli.key(alice)
    said = cli.refused("restore", str(backup))
    assert "has 1 account and 1 key that the backup lacks" in said
    assert "--force" in said
    assert cli.data("account", "plan", "bob@example.com", "--months", "1")["id"] == 2


def test_what_is_no_backup_is_one_sentence(cli: Cli, backup: Path) -> None:
    backup.write_text("no database " * 1000)
    assert cli.refused("restore", str(backup)).startswith(f"{backup} can't be restored: ")
    assert cli.refused("restore", "nowhere.db") == "nowhere.db can't be restored: No such file or directory"


def test_an_older_backup_is_restored_and_migrated(
    cli: Cli, backup: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = [*shipped_migrations(), NEXT]
    for module in (migrate, restore):
        monkeypatch.setattr(module, "shipped_migrations", lambda: shipped)
    name = f"{NEXT.version:04}_next"
    assert cli.data("restore", str(backup))["pending"] == [name]
    assert "`listings migrate`" in cli.done("restore", str(backup)).err
    assert cli.data("migrate", "--dry-run") == {"database": str(database), "pending": [name]}
    assert name in cli.done("migrate", "--dry-run").err
    told = cli.data("migrate")
    assert told["applied"] == [name]
    assert Path(told["backup"]).name.startswith(f"listings.db.before-{NEXT.version:04}-")
    assert rows(Path(told["backup"]), "SELECT max(version) FROM schema_migrations") == [(NEXT.version - 1,)]
    cli.done("restore", told["backup"])
    assert "is kept in" in cli.done("migrate").err


def test_a_new_database_is_made_without_a_copy(cli: Cli) -> None:
    assert cli.data("migrate")["backup"] is None
    assert cli.data("migrate")["backup"] is None


def test_a_dry_run_makes_nothing(cli: Cli) -> None:
    told = cli.data("migrate", "--dry-run")
    assert told["pending"][0].startswith("0001_")
    assert list(cli.folder.iterdir()) == []


def test_a_database_of_an_older_schema_than_the_backups_is_judged_by_what_both_have(cli: Cli, alice: Data) -> None:
    cli.done("backup", "backup.db")
    path = cli.folder / "data" / "listings.db"
    path.unlink()
    migrate.migrate(path, shipped_migrations()[:1])
    older = apsw.Connection(str(path))
    new, old = apsw.Connection(str(cli.folder / "backup.db")), older.cursor()
    old.execute("UPDATE database_id SET id = ?", new.execute("SELECT id FROM database_id").fetchall()[0])
    new.close()
    older.close()
    cli.done("restore", "backup.db")
    assert cli.data("account", "show", str(alice["id"]))["email"] == alice["email"]


def test_an_account_that_was_disabled_since_is_told(cli: Cli, alice: Data) -> None:
    cli.done("backup", "backup.db")
    cli.done("account", "disable", str(alice["id"]))
    assert "has 1 account disabled or enabled that the backup lacks" in cli.refused("restore", "backup.db")
    cli.done("restore", "backup.db", "--force")
    assert cli.data("account", "show", str(alice["id"]))["disabled_at"] is None


def test_a_dry_run_beside_a_newer_schema_is_refused(cli: Cli, database: Path) -> None:
    newer = apsw.Connection(str(database))
    newer.execute("INSERT INTO schema_migrations VALUES (9999, 'newer', 'checksum', 0)")
    newer.close()
    assert "newer" in cli.refused("migrate", "--dry-run")
