"""The integrity check before a service starts: limited in time, and while other processes use the database."""

from contextlib import closing
from pathlib import Path

import pytest

from listings.domain.errors import Unavailable
from listings.store.sqlite.maintenance import inspection
from tests.store import databases
from tests.store.databases import connect


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return databases.make(tmp_path / "listings.db", listings=300, size=4000)


def test_a_sound_database_has_no_damage_while_another_process_writes(database: Path) -> None:
    with closing(connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert inspection.find_damage(database, 10) == ""


def test_a_damaged_page_is_reported(database: Path) -> None:
    databases.damage(database)
    assert "page" in inspection.find_damage(database, 10)


def test_a_text_file_is_reported_as_damaged(database: Path) -> None:
    database.write_bytes(b"not a database " * 1000)
    assert inspection.find_damage(database, 10) == "file is not a database"


def test_the_check_ends_after_its_time_limit(database: Path) -> None:
    databases.damage(database)
    assert inspection.find_damage(database, -1) == ""


def test_the_check_ends_when_the_caller_cancels_it(database: Path) -> None:
    databases.damage(database)
    assert inspection.find_damage(database, 10, lambda: True) == ""


def test_a_missing_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="can't be read"):
        inspection.find_damage(tmp_path / "listings.db", 10)
