"""A small database and a backup of it, and a database of notes."""

from pathlib import Path

import pytest

from listings.store.sqlite.maintenance import backup as backups
from tests.store import databases
from tests.store.sqlite.writer_runs import create_notes


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return databases.make(tmp_path / "data" / "listings.db")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where to write a backup."""
    return tmp_path / "backup.db"


@pytest.fixture
def backup(database: Path, file: Path) -> Path:
    return backups.back_up(database, file)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create_notes(tmp_path)
