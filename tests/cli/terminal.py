"""The installed program with a terminal for one of its streams."""

import os
import pty
import subprocess
from pathlib import Path
from typing import Literal

from tests.cli.commands import DEADLINE, PROGRAM, clean_environment


def run(
    folder: Path, *arguments: str, stream: Literal["stdout", "stderr"], environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to that stream."""
    ours, theirs = pty.openpty()
    into = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    variables = clean_environment() | {"TERM": "xterm-256color"} | (environment or {})
    with subprocess.Popen(
        [PROGRAM, *arguments], cwd=folder, env=variables, stdout=into["stdout"], stderr=into["stderr"]
    ) as process:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
        code = process.wait(DEADLINE)
    os.close(ours)
    return code, written.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # nobody has the other side any more
        return b""
