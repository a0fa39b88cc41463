"""The peers: their packages, and the commands that install, load and serve them.

The source of a peer is a folder next to this module. It is installed into `.peers/`, separate from the project's own
environment. Commands run in that folder, and `{home}`, `{source}` and `{port}` are replaced.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench import BenchmarkError

SOURCES = Path(__file__).parent
HOMES = SOURCES.parent.parent / ".peers"

_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


class Peer(NamedTuple):
    """A program that users might choose instead of the service."""

    name: str
    title: str
    lock: str
    """The file with its pinned packages."""
    packages: tuple[str, ...]
    """The packages whose versions are reported."""
    install: tuple[tuple[str, ...], ...]
    load: tuple[tuple[str, ...], ...]
    """Commands that fill the database in DATABASE; the last one prints new keys by account."""
    serve: tuple[str, ...]
    scenarios: frozenset[str] | None = frozenset({"get one", "list of 100", "create"})
    """The scenarios that it supports; None if it supports all."""

    @property
    def source(self) -> Path:
        """The folder with its source."""
        return SOURCES / self.name

    @property
    def home(self) -> Path:
        """The folder where it is installed, with a copy of its source."""
        return HOMES / self.name

    def versions(self) -> str:
        """Return its packages with their versions."""
        found = read_pinned_versions(self.source / self.lock)
        return ", ".join(f"{name} {found[name]}" for name in self.packages)


_VENV = (
    (sys.executable, "-m", "venv", "{home}/.venv"),
    (
        *("{home}/.venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "-r", "requirements.txt"),
    ),
)

PEERS = (
    Peer(
        "fastapi",
        "FastAPI",
        "requirements.txt",
        ("fastapi", "sqlalchemy", "aiosqlite", "pydantic", "uvicorn", "uvloop", "httptools"),
        install=_VENV,
        load=(("{home}/.venv/bin/python", "load.py", "{source}"),),
        serve=("{home}/.venv/bin/uvicorn", "main:app", "--port", "{port}", "--no-access-log"),
    ),
    Peer(
        "django",
        "Django REST",
        "requirements.txt",
        ("django", "djangorestframework", "djangorestframework-api-key", "gunicorn"),
        install=_VENV,
        load=(
            ("{home}/.venv/bin/python", "manage.py", "migrate"),
            ("{home}/.venv/bin/python", "manage.py", "load", "{source}"),
        ),
        serve=(
            *("{home}/.venv/bin/gunicorn", "config.wsgi", "--bind", "127.0.0.1:{port}"),
            *("--workers", "1", "--threads", "4", "--no-control-socket"),
        ),
    ),
    Peer(
        "fastify",
        "fastify",
        "package-lock.json",
        ("fastify", "@fastify/etag", "@fastify/compress", "better-sqlite3"),
        install=(("npm", "ci", "--no-audit", "--no-fund"),),
        load=(("node", "load.js", "{source}"),),
        serve=("node", "server.js"),
        scenarios=None,
    ),
)


def read_pinned_versions(lock: Path) -> dict[str, str]:
    """Read the package versions from a requirements.txt or a package-lock.json."""
    text = lock.read_text("utf-8")
    if lock.suffix != ".json":
        return dict(_PINNED.findall(text))
    packages = json.loads(text)["packages"]
    return {name.removeprefix("node_modules/"): entry["version"] for name, entry in packages.items() if name}


def run_version_command(*command: str) -> str:
    """Return the output of a version command. Raise BenchmarkError if the program is missing."""
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise BenchmarkError(f"{command[0]} is missing") from None
    return (outcome.stdout or outcome.stderr).strip()
