"""Kill a restore at every step: `python -m tests.store.sqlite.killed_restore FOLDER OLD BACKUP`.

OLD is a folder with a database as a killed service leaves it. A step is an operation on a file, by SQLite or by the
restore itself. Prints the state after each kill:

- the name of the first account, if a service can use the database
- "untouched" if it can't, and no file has changed
- "interrupted" if the service asks for the restore to be repeated
- otherwise the error
"""

import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.restore import restore
from tests.store import databases
from tests.store.sqlite.database_files import read_files

MAX_STEPS = 2000
UNUSABLE = re.compile("not_a_database|missing_or_empty")
_BASE_VFS = "unix"


class Countdown:
    """Kills the process before its n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class CountedFile(apsw.VFSFile):
    """A file that SQLite has open; each change is a step."""

    def __init__(self, step: Callable[[], None], name: Any, flags: Any) -> None:
        super().__init__(_BASE_VFS, name, flags)
        self._step = step

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._step()
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self._step()
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._step()
        super().xSync(flags)


class CountedFiles(apsw.VFS):
    """SQLite's access to the disk; each change is a step."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__("counted", _BASE_VFS, makedefault=True)
        self._step = step

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        self._step()
        return CountedFile(self._step, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: FBT001, N802 - SQLite's signature
        self._step()
        super().xDelete(name, sync)


def restore_with(step: Countdown, database: Path, backup: Path) -> None:
    """Restore the backup and call `step` before each operation on a file."""
    files = CountedFiles(step)
    sys.addaudithook(lambda event, _: step() if event in {"os.link", "os.rename", "os.remove"} else None)
    restore(database, backup, force=True)
    files.unregister()


def is_killed_at(steps: int, database: Path, backup: Path) -> bool:
    """Run a restore in a child process; return whether it was killed before it ended."""
    child = os.fork()
    if child == 0:
        try:
            restore_with(Countdown(steps), database, backup)
        except BaseException:  # noqa: BLE001 - no code of the parent may run in the child
            traceback.print_exc()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def read_state(database: Path) -> str:
    """Return what a service finds when it starts on the database."""
    try:
        migrate.migrate(database)
        if not databases.is_sound(database):
            return "damaged"
        return str(databases.rows(database, "SELECT name FROM accounts WHERE id = 1")[0][0])
    except Exception as error:  # noqa: BLE001 - printed for the test
        return f"{type(error).__name__}: {error}".replace(" ", "_")


def main(folder: Path, old: Path, backup: Path) -> None:
    states = []
    restore(folder / "first.db", backup)  # it caches the expected schema, which takes each child longer than the rest
    for steps in range(1, MAX_STEPS):
        copy = folder / str(steps)
        shutil.copytree(old, copy)
        database = copy / "listings.db"
        before = read_files(copy)
        killed = is_killed_at(steps, database, backup)
        is_untouched = read_files(copy).items() >= before.items()
        state = read_state(database)
        if is_untouched and UNUSABLE.search(state):
            state = "untouched"
        states.append("interrupted" if "A_restore_was_interrupted" in state else state)
        shutil.rmtree(copy)
        if not killed:
            break
    print(*states)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
