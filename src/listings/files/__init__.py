"""Replace files atomically, notice that one was replaced, and flush folders to disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replace_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a file, readable only by its owner, that replaces `path` if the block succeeds and is removed if it fails.

    Until then it is called `path` with the suffix ".new"; a file that a killed process left there is removed. With
    `durable`, the replacement also survives a power cut.
    """
    new_path = path.with_name(f"{path.name}.new")
    new_path.unlink(missing_ok=True)
    descriptor = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        new_path.replace(path)
    except BaseException:
        new_path.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def has_name(descriptor: int, path: Path) -> bool:
    """Return whether the path, which may be a link, still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
