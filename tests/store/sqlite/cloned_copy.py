"""Migrate a database on a file system that can clone files: `python -m tests.store.sqlite.cloned_copy FOLDER`.

Prints the bytes of the database, those that the copy takes on the disk, and the rows of the copy and of the database.
"""

import os
import sys
from contextlib import closing
from pathlib import Path

from listings.store import migrations
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.maintenance import migrate
from tests.store import databases
from tests.store.sqlite.database_files import COUNT_LISTINGS, NEXT_MIGRATION


def main(folder: Path) -> None:
    database = databases.make(folder / "listings.db", listings=1000, size=8000)
    copies: list[Path] = []
    free: list[int] = []

    def measure(copy: Path | None = None) -> None:
        os.sync()
        free.append(os.statvfs(folder).f_bfree * os.statvfs(folder).f_frsize)
        if copy is not None:
            copies.append(copy)

    with closing(open_writer(database)) as writer:
        writer.execute("UPDATE listings SET view_count = 7").fetchall()  # in the WAL
        measure()
        migrate.migrate(database, [*migrations.shipped_migrations(), NEXT_MIGRATION], measure)
    print(database.stat().st_size, free[0] - free[1])  # noqa: T201
    print(*databases.rows(copies[0], COUNT_LISTINGS), *databases.rows(database, COUNT_LISTINGS))  # noqa: T201
    print(*databases.rows(copies[0], "SELECT DISTINCT view_count FROM listings"))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
