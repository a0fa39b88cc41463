"""A look through the pages before a service begins: bounded in time, and beside others."""

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


def test_a_sound_database_has_no_damage_even_while_another_process_writes(database: Path) -> None:
    with closing(connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert inspection.find_damage(database, 10) == ""


def test_a_damaged_page_is_named(database: Path) -> None:
    databases.damage(database)
    assert "page" in inspection.find_damage(database, 10)


def test_what_is_no_database_is_damaged(database: Path) -> None:
    database.write_bytes(b"a letter to my grandmother " * 1000)
    assert inspection.find_damage(database, 10) == "file is not a database"


def test_a_look_ends_when_its_time_is_over(database: Path) -> None:
    databases.damage(database)
    assert inspection.find_damage(database, -1) == ""


def test_a_look_ends_when_nobody_waits_for_it_any_more(database: Path) -> None:
    databases.damage(database)
    assert inspection.find_damage(database, 10, lambda: True) == ""


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="can't be read"):
        inspection.find_damage(tmp_path / "listings.db", 10)
