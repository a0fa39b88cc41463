"""Helpers for tests that check a database's files, or leave them as another process would."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from listings.store import migrations
from listings.store.migrations import Migration
from listings.store.sqlite.connections import open_writer

ROOT = Path(__file__).parents[3]
NEXT_MIGRATION = Migration(len(migrations.shipped_migrations()) + 1, "next", "CREATE TABLE next (a INTEGER) STRICT")
COUNT_LISTINGS = "SELECT count(*) FROM listings"


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file except empty WALs and the lock file, whose counters always change."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
    return {name: content for name, content in files.items() if content or not name.endswith("-wal")}


def copy_as_killed(folder: Path, database: Path, *, with_index: bool = True) -> Path:
    """Copy the files as a killed process leaves them: the account's name "from the WAL" is only in the WAL."""
    folder.mkdir()
    with closing(open_writer(database)) as writer:
        writer.execute("UPDATE accounts SET name = 'from the WAL'").fetchall()
        for suffix in ("", "-wal", "-shm") if with_index else ("", "-wal"):
            shutil.copy(f"{database}{suffix}", folder / f"listings.db{suffix}")
    return folder / "listings.db"


@contextmanager
def open_in_another_process(database: Path) -> Iterator[None]:
    """Keep the database open in another process, as an idle service does after it has written."""
    program = (
        "import sys; from pathlib import Path; from listings.store.sqlite.connections import open_writer\n"
        "writer = open_writer(Path(sys.argv[1])); writer.execute(\"UPDATE accounts SET name = 'elsewhere'\")\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield
        finally:
            process.kill()
