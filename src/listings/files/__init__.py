"""Replace files atomically, notice that one was replaced, lock their bytes, and flush folders to disk.

The locks are open file description (OFD) locks: a process loses its traditional locks when it closes any descriptor of
the file.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_FLOCK = struct.Struct("hhqqi4x")


@contextmanager
def replace_file(
    path: Path, *, durable: bool = False, overwrite: bool = True, suffix: str = ".new"
) -> Iterator[BinaryIO]:
    """Yield a file, readable only by its owner, that replaces `path` if the block succeeds and is removed if it fails.

    Until then it is called `path` with the suffix; a file that a killed process left there is removed. With `durable`,
    the replacement also survives a power cut. Raises FileExistsError if meanwhile another process began to replace the
    same file or, without `overwrite`, created it.
    """
    new_path = path.with_name(f"{path.name}{suffix}")
    new_path.unlink(missing_ok=True)
    descriptor = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w+b") as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
            _require_name(descriptor, new_path)
            if overwrite:
                new_path.replace(path)
            else:
                _rename_to_absent(new_path, path)
        except BaseException:
            if has_name(descriptor, new_path):
                new_path.unlink()
            raise
    if durable:
        sync_folder(path.parent)


def _rename_to_absent(path: Path, target: Path) -> None:
    try:
        os.link(path, target)  # detects that the target exists
    except FileExistsError:
        raise
    except OSError:  # some file systems have no links
        path.replace(target)
    else:
        path.unlink()


def has_name(descriptor: int, path: Path) -> bool:
    """Return whether the path, which may be a link, still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _require_name(descriptor: int, path: Path) -> None:
    if not has_name(descriptor, path):
        raise FileExistsError(errno.EEXIST, "Another process is writing this file", str(path))


def try_lock(descriptor: int, kind: int, start: int, length: int) -> bool:
    """Lock bytes of a file, or change the kind of their lock, without waiting. Return whether it succeeded."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, pack_lock(kind, start, length))
    except BlockingIOError:
        return False
    return True


def pack_lock(kind: int, start: int, length: int) -> bytes:
    """Return a `struct flock`."""
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
