"""Whether the files that are open are still the ones that their names stand for.

A file that is removed or replaced lives on for whoever has it open, and what is written to it is gone with them.
"""

import os
from pathlib import Path
from typing import TypeAlias

_Number: TypeAlias = tuple[int, int] | None
"""A file's device and inode; None where there is none of its name."""


class OpenFiles:
    """The database and its WAL, as a connection that has begun to write has them open."""

    def __init__(self, path: Path) -> None:
        """`path` is the database's, by whatever name it is reached."""
        self._names = (str(path), f"{path.resolve()}-wal")
        self._known = self._look()

    def are_there(self) -> bool:
        """Whether their names stand for the same files as at first. May be asked from any thread."""
        found = self._look()
        return found[0] is not None and found == self._known

    def _look(self) -> tuple[_Number, ...]:
        return tuple(map(_number_of, self._names))


def _number_of(name: str) -> _Number:
    try:
        status = os.stat(name)  # noqa: PTH116 - with every batch of writes, and a Path takes as long again
    except OSError:
        return None
    return status.st_dev, status.st_ino
