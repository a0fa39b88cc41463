"""The installed program with a terminal for one of its streams."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[tuple[str, list[str]]]:
    """Run `serve --demo` with a terminal for both streams; yields its URL and the lines written, until it is stopped.

    The list is complete once the block has ended.
    """
    ours, theirs = pty.openpty()
    lines: list[str] = []
    command = [str(PROGRAM), "serve", "--demo", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = ""
        while "Stop: " not in text:
            read = _read(ours)
            assert read, text
            text += read.decode()
        url = re.search(r"http://[\d.]+:\d+", text)
        assert url is not None
        try:
            yield url[0], lines
        finally:
            process.terminate()
            lines += (text + b"".join(iter(lambda: _read(ours), b"")).decode()).splitlines()
    os.close(ours)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # nobody has the other side any more
        return b""
