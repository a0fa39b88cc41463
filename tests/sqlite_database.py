"""Migrated SQLite files for tests. Copying one takes a fiftieth of the time of migrating it."""

import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from uuid import uuid4

import apsw

from listings.store.sqlite.connections import create_file
from listings.store.sqlite.maintenance import migrate


def create_database(path: Path) -> None:
    """Create a file as `migrate` does, with all tables, no rows, an id of its own and a file of its write lock."""
    database_id, content = _migrate_once()
    for file in (path, Path(f"{path}.lock")):
        create_file(file)
    path.write_bytes(content.replace(database_id, uuid4().hex.encode()))


@cache
def _migrate_once() -> tuple[bytes, bytes]:
    """Return the id and the content of a migrated file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "listings.db"
        migrate.migrate(path)
        with closing(apsw.Connection(str(path))) as connection:
            database_id = str(connection.execute("SELECT id FROM database_id").fetchall()[0][0])
        content = path.read_bytes()
    assert content.count(database_id.encode()) == 1
    return database_id.encode(), content
