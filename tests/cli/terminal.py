"""Run the installed program with a terminal as one of its streams."""

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
    """Return the exit code of a command and its output on the stream."""
    primary, secondary = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: secondary}
    variables = clean_environment() | {"TERM": "xterm-256color"} | (environment or {})
    with subprocess.Popen(
        [PROGRAM, *arguments], cwd=folder, env=variables, stdout=streams["stdout"], stderr=streams["stderr"]
    ) as process:
        os.close(secondary)
        output = b"".join(iter(lambda: _read(primary), b""))
        code = process.wait(DEADLINE)
    os.close(primary)
    return code, output.decode()


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[tuple[str, list[str]]]:
    """Run `serve --demo` on a terminal. Yield its URL and a list, which contains all lines after the block."""
    primary, secondary = pty.openpty()
    lines: list[str] = []
    command = [str(PROGRAM), "serve", "--demo", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=secondary, stderr=secondary) as process:
        os.close(secondary)
        text = ""
        while "Stop: " not in text:
            chunk = _read(primary)
            assert chunk, text
            text += chunk.decode()
        url = re.search(r"http://[\d.]+:\d+", text)
        assert url is not None
        try:
            yield url[0], lines
        finally:
            process.terminate()
            lines += (text + b"".join(iter(lambda: _read(primary), b"")).decode()).splitlines()
    os.close(primary)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other side is closed
        return b""
