"""Open files and threads of a running process, from /proc. Those that end while they are listed are left out."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def list_open_files(pid: int) -> dict[Path, str]:
    """Return what each descriptor of a process refers to: a path, or a kind and an inode."""
    return _read_each(Path(f"/proc/{pid}/fd"), lambda link: str(link.readlink()))


def list_thread_names(pid: int) -> set[str]:
    names = _read_each(Path(f"/proc/{pid}/task"), lambda task: (task / "comm").read_text("utf-8").rstrip("\n"))
    return set(names.values())


def _read_each(folder: Path, read: Callable[[Path], str]) -> dict[Path, str]:
    found = {}
    for entry in folder.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found[entry] = read(entry)
    return found
