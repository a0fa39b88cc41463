"""Restores that are killed at every step: `python -m tests.store.sqlite.killed_restore FOLDER OLD BACKUP`.

OLD is a folder with a database as a killed service left it. Each step is an operation on a file, of SQLite's or of the
restore's own. Prints for each what the database then is: the name of its first account when a service could go on
with it, "untouched" when it is no database and byte by byte as it was, else what is wrong with it.
"""

import os
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

TRIES = 2000
_PLAIN = "unix"  # the way that is counted


class Countdown:
    """Ends the process, as a kill does, before its n-th step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class CountedFile(apsw.VFSFile):
    """A file of SQLite's, each change of which is a step."""

    def __init__(self, step: Callable[[], None], name: Any, flags: Any) -> None:
        super().__init__(_PLAIN, name, flags)
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
    """SQLite's way to the disk, each change of which is a step."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__("counted", _PLAIN, makedefault=True)
        self._step = step

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        self._step()
        return CountedFile(self._step, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: FBT001, N802 - SQLite's signature
        self._step()
        super().xDelete(name, sync)


def restore_until(step: Countdown, database: Path, backup: Path) -> None:
    """In a process of its own."""
    files = CountedFiles(step)
    sys.addaudithook(lambda event, _: step() if event in {"os.link", "os.rename", "os.remove"} else None)
    restore(database, backup, force=True)
    files.unregister()


def is_killed_at(steps: int, database: Path, backup: Path) -> bool:
    child = os.fork()
    if child == 0:
        try:
            restore_until(Countdown(steps), database, backup)
        except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
            traceback.print_exc()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def state_of(database: Path) -> str:
    """As a service finds it that starts on it."""
    try:
        migrate.migrate(database)
        if not databases.is_sound(database):
            return "damaged"
        return str(databases.rows(database, "SELECT name FROM accounts WHERE id = 1")[0][0])
    except Exception as error:  # noqa: BLE001 - it is what the test is told
        return f"{type(error).__name__}: {error}".replace(" ", "_")


def main(folder: Path, old: Path, backup: Path) -> None:
    states = []
    for steps in range(1, TRIES):
        here = folder / str(steps)
        shutil.copytree(old, here)
        database = here / "listings.db"
        before = database.read_bytes()
        killed = is_killed_at(steps, database, backup)
        is_untouched = database.read_bytes() == before
        state = state_of(database)
        states.append("untouched" if is_untouched and "not_a_database" in state else state)
        shutil.rmtree(here)
        if not killed:
            break
    print(*states)  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
