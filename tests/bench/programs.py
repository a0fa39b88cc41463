"""The benchmark's programs, as people start them."""

import os
import subprocess
import sys
from pathlib import Path

_HOME = Path(__file__).parent.parent.parent


def run_program(module: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m module` in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=_HOME,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
