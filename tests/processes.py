"""Run programs, and list the open files and threads of a process, from /proc, but those that end meanwhile."""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def run_program(
    command: Sequence[str | Path], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends, at most ten minutes, and return its output as text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=check, **options)


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


def is_indexer(pid: int, parent: int) -> bool:
    """Return whether a child process keeps the search index current, instead of serving requests."""
    while (command := _read_command(pid)) in {b"", _read_command(parent)} and not has_ended(pid):
        time.sleep(0.001)  # it has not executed its program yet, or is just about to
    return b"listings.cli.indexer" in command


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or only waits for its parent to read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _read_command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
