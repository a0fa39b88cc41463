"""Compacting a database: a smaller file with the same rows, or the file as it was."""

from pathlib import Path

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite.maintenance import snapshot
from listings.store.sqlite.maintenance.compact import compact
from tests.store.databases import change, is_sound, rows
from tests.store.sqlite.database_files import COUNT_LISTINGS, open_in_another_process, read_files

ALL = "SELECT * FROM listings ORDER BY id"


def fill(database: Path) -> None:
    """Leave free pages in the database."""
    change(database, "UPDATE listings SET content = hex(zeroblob(500000))")
    change(database, "UPDATE listings SET content = 'c'")


def test_the_file_becomes_smaller_and_keeps_all_rows(database: Path) -> None:
    fill(database)
    before, size = rows(database, ALL), database.stat().st_size
    compact(database)
    assert database.stat().st_size < size / 2
    assert rows(database, ALL) == before
    assert is_sound(database)
    assert [file.name for file in database.parent.iterdir() if file.suffix != ".lock"] == [database.name]
    change(database, "UPDATE listings SET content = 'd'")


def test_a_database_in_use_is_not_compacted(database: Path) -> None:
    with open_in_another_process(database), pytest.raises(Problem, match="stop the service first"):
        compact(database)


def test_a_missing_database_is_not_compacted(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="There is no database"):
        compact(tmp_path / "missing.db")


def test_a_failed_copy_changes_nothing(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(database)
    before = rows(database, ALL)

    def fail(*_: object) -> None:
        raise OSError(5, "The disk failed")

    monkeypatch.setattr(snapshot, "copy_pages", fail)
    with pytest.raises((Problem, Unavailable), match="The disk failed"):
        compact(database)
    assert rows(database, ALL) == before
    assert rows(database, COUNT_LISTINGS) == [(3,)]
    assert not [name for name in read_files(database.parent) if str(name).endswith(".part")]
