"""Back up and restore on a disk that is too small: `python -m tests.store.sqlite.small_disk FOLDER ELSEWHERE`.

FOLDER is on the small disk. Prints the error message of each operation, then the names of the files in FOLDER, and the
state of its databases.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from listings.domain.errors import Problem
from listings.store import migrations
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.backup import back_up
from listings.store.sqlite.maintenance.restore import restore
from tests.store import databases
from tests.store.sqlite.database_files import NEXT_MIGRATION


def get_message(operation: Callable[[], object]) -> str:
    try:
        operation()
    except Problem as problem:
        return problem.message
    return "done"


def main(folder: Path, elsewhere: Path) -> None:
    databases.make(elsewhere / "small.db", listings=100, size=8000)
    small = Path(shutil.copy(elsewhere / "small.db", folder / "listings.db"))
    large = databases.make(elsewhere / "large.db", listings=300, size=8000)
    large_backup = back_up(large, elsewhere / "large-backup.db")
    databases.make(elsewhere / "tiny.db")
    back_up(small, elsewhere / "backup.db")
    (folder / "lost.db-journal").write_bytes(b"journal")
    operations: list[Callable[[], object]] = [
        lambda: back_up(small, folder / "backup.db"),
        lambda: migrate.migrate(small, [*migrations.shipped_migrations(), NEXT_MIGRATION]),
        lambda: restore(small, elsewhere / "backup.db"),
        lambda: restore(Path(shutil.copy(elsewhere / "tiny.db", folder / "tiny.db")), large_backup, force=True),
        lambda: restore(folder / "new.db", large_backup),
        lambda: restore(folder / "lost.db", large_backup, force=True),
    ]
    for operation in operations:
        print(get_message(operation))  # noqa: T201 - the test reads it
    print(*sorted(path.name for path in folder.iterdir()))  # noqa: T201
    for database in (small, folder / "tiny.db"):
        print(databases.is_sound(database), len(databases.rows(database, "SELECT id FROM listings")))  # noqa: T201


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
