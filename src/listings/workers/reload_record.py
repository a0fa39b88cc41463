"""The reloads of a service in a file, from which `listings reload` learns how its reload ended."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from listings.files import replace_file


class Reloads(msgspec.Struct):
    """How many reloads a service has started and finished. `error` says why the last one failed."""

    started: int = 0
    finished: int = 0
    error: str | None = None


class ReloadRecord:
    """Writes the reloads of this process to its file, for the length of a `with` block."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the service's data folder."""
        self._folder = folder
        self._path = get_path(folder, os.getpid())
        self._reloads = Reloads()

    def __enter__(self) -> Self:
        for path in self._folder.glob(get_path(self._folder, "*").name):  # those of killed services
            with suppress(OSError, ValueError):
                if not is_running(int(path.stem.rpartition("-")[2])):
                    path.unlink(missing_ok=True)
        self._write()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # the disk may be read-only
            self._path.unlink(missing_ok=True)

    def begin(self) -> None:
        self._reloads.started += 1
        self._write()

    def end(self, error: str | None) -> None:
        """Record the end of the reload, with the reason if it failed."""
        self._reloads.finished, self._reloads.error = self._reloads.started, error
        self._write()

    def _write(self) -> None:
        with suppress(OSError), replace_file(self._path) as file:  # on a full disk, a reload works all the same
            file.write(msgspec.json.encode(self._reloads))


def get_path(folder: Path, pid: int | str) -> Path:
    """Return the path of a service's record."""
    return folder / f"reloads-{pid}.json"


def read_reloads(path: Path) -> Reloads | None:
    """Return the reloads in a record, or None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reloads)
    except FileNotFoundError:
        return None


def is_running(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
