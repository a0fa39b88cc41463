"""Runs the benchmark commands."""

import os
import subprocess
import sys
from pathlib import Path

_PROJECT_FOLDER = Path(__file__).parent.parent.parent


def run_program(module: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE` in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=_PROJECT_FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
