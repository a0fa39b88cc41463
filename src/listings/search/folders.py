"""The folders of indexes: one for each version and attempt, below a folder of the data folder.

A process that reads or writes an index holds a lock on it. The writer removes other folders once nobody does.
"""

import fcntl
import json
import os
import shutil
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from listings.files import try_lock
from listings.search.schema import VERSION, is_readable

_STARTED, _COMPLETE, _DAMAGED, _LOCK = "started", "complete", "damaged", "in-use.lock"
_WRITER_LOCK = "writer.lock"
_END = struct.Struct("<II")  # at the end of each file: the length of the checksum's JSON before it, and a constant
_MAGIC, _CHUNK_BYTES = 1_337, 1024 * 1024


class Folder(NamedTuple):
    """A folder with an index. Its name is the version of its terms and files, and the time of its creation."""

    path: Path

    @property
    def is_readable(self) -> bool:
        """Whether this program can search the index."""
        return is_readable(self.path.name.rpartition("~")[0])

    @property
    def is_current(self) -> bool:
        """Whether the index has the terms of this program."""
        return self.path.name.rpartition("~")[0] == VERSION

    @property
    def created_at(self) -> float:
        """When the folder was created, in seconds since 1970."""
        return int(self.path.name.rpartition("~")[2]) / 1e9

    @property
    def is_complete(self) -> bool:
        """Whether the index has been built."""
        return (self.path / _COMPLETE).exists()

    @property
    def is_usable(self) -> bool:
        """Whether the index has its first commit, and no process has found damage."""
        return (self.path / _STARTED).exists() and not (self.path / _DAMAGED).exists()

    def mark_started(self) -> None:
        """Record that the index has its first commit, so that it can be searched."""
        (self.path / _STARTED).touch()

    def mark_complete(self) -> None:
        """Record that the index has been built."""
        (self.path / _COMPLETE).touch()

    def mark_damaged(self) -> None:
        """Tell the writer to build another index."""
        with suppress(OSError):
            (self.path / _DAMAGED).touch()

    def find_damaged_file(self) -> str | None:
        """Return the name of a file whose bytes don't match its checksum, or None. Raises OSError or ValueError.

        tantivy writes checksums, but does not compare them when it opens an index.
        """
        for segment in json.loads((self.path / "meta.json").read_bytes())["segments"]:
            name = segment["segment_id"].replace("-", "")
            deletes = f"{name}.{(segment['deletes'] or {}).get('opstamp')}.del"  # others may be about to be written
            for path in self.path.glob(f"{name}.*"):
                with suppress(FileNotFoundError):  # merged in the meantime
                    if (path.suffix != ".del" or path.name == deletes) and not _is_intact(path):
                        return path.name
        return None

    def lock(self) -> int:
        """Return a descriptor whose lock keeps the folder from being removed. Raises OSError."""
        descriptor = os.open(self.path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        try_lock(descriptor, fcntl.F_RDLCK, 0, 1)
        return descriptor


def find_root(database: Path) -> Path:
    """Return the folder for the indexes of a service whose files are called like this one."""
    return database.with_name(f"{database.name}.search")


def list_folders(root: Path) -> list[Folder]:
    """Return the folders, the newest first."""
    with suppress(OSError):
        folders = [Folder(it) for it in root.iterdir() if it.name.rpartition("~")[2].isdigit()]
        return sorted(folders, key=lambda it: it.created_at, reverse=True)
    return []


def choose_folder(root: Path) -> Folder | None:
    """Return the best folder to search: a complete one, if possible with the terms of this program, else the newest."""
    usable = [
        it for it in list_folders(root) if it.is_usable and (it.is_current or (it.is_readable and it.is_complete))
    ]
    return max(usable, key=lambda it: (it.is_complete, it.is_current, it.created_at), default=None)


def create_folder(root: Path) -> Folder:
    """Create an empty folder. Raises OSError."""
    folder = Folder(root / f"{VERSION}~{time.time_ns()}")
    folder.path.mkdir(mode=0o700, parents=True)
    (folder.path / _LOCK).touch()
    return folder


def remove_unused(root: Path, used: set[Path]) -> None:
    """Remove the folders that no process uses, except for those in `used`."""
    for folder in list_folders(root):
        if folder.path not in used and _is_unused(folder):
            shutil.rmtree(folder.path, ignore_errors=True)


def request_rebuild(root: Path) -> None:
    """Let the writer build another index, while this one serves."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    (root / "rebuild").touch()


def take_rebuild(root: Path) -> bool:
    """Return whether a rebuild was requested since the last call."""
    with suppress(FileNotFoundError):
        (root / "rebuild").unlink()
        return True
    return False


def lock_writer(root: Path) -> int | None:
    """Return a descriptor whose lock makes this process the only writer, or None if there is one. Raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(root / _WRITER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(descriptor, fcntl.F_WRLCK, 0, 1):
        return descriptor
    os.close(descriptor)
    return None


def has_writer(root: Path) -> bool:
    """Return whether a process follows the database with an index. Raises OSError."""
    descriptor = lock_writer(root)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _is_intact(path: Path) -> bool:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - _END.size
        file.seek(max(size, 0))
        length, magic = _END.unpack(file.read(_END.size)) if size >= 0 else (0, 0)
        left = size - length
        if magic != _MAGIC or left < 0:
            return False
        file.seek(left)
        try:
            expected = json.loads(file.read(length))["crc"]
        except (ValueError, KeyError, TypeError):
            return False
        file.seek(0)
        checksum = 0
        while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
            checksum, left = zlib.crc32(chunk, checksum), left - len(chunk)
    return bool(checksum == expected)


def _is_unused(folder: Folder) -> bool:
    try:
        descriptor = os.open(folder.path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return try_lock(descriptor, fcntl.F_WRLCK, 0, 1)
    finally:
        os.close(descriptor)
