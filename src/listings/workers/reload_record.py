"""The reloads of a service in a file, from which `listings reload` learns how its reload ended."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from listings.files import replace_file

_ATTEMPTS, _PAUSE_SECONDS = 20, 0.01


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
        text = msgspec.json.encode(self._reloads)
        try:
            with replace_file(self._path) as file:
                file.write(text)
        except OSError:  # on a full disk, a reload works all the same, and the present file has room for its record
            with suppress(OSError):
                _overwrite(self._path, text)


def _overwrite(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def get_path(folder: Path, pid: int | str) -> Path:
    """Return the path of a service's record."""
    return folder / f"reloads-{pid}.json"


def read_reloads(path: Path) -> Reloads | None:
    """Return the reloads in a record, or None if there is none."""
    for _ in range(_ATTEMPTS):
        try:
            return msgspec.json.decode(path.read_bytes(), type=Reloads)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:  # it is being overwritten
            time.sleep(_PAUSE_SECONDS)
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
