"""The peers: what each is made of, and how it is installed, loaded and served.

A peer's source is a folder beside this module. What is installed of it goes into `.peers/`, apart from the project's
own environment. Commands run in the peer's folder there; `{home}`, `{source}` and `{port}` are filled in.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from bench import RejectedRequest

SOURCES = Path(__file__).parent
HOMES = SOURCES.parent.parent / ".peers"

_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


class Peer(NamedTuple):
    """A way that users would take instead of the service."""

    name: str
    title: str
    lock: str
    """The file that pins its packages."""
    packages: tuple[str, ...]
    """Those whose versions are told."""
    install: tuple[tuple[str, ...], ...]
    load: tuple[tuple[str, ...], ...]
    """Fills the database that DATABASE names; the last command prints new keys by account."""
    serve: tuple[str, ...]

    @property
    def source(self) -> Path:
        """The folder of its source."""
        return SOURCES / self.name

    @property
    def home(self) -> Path:
        """The folder that it is installed in, with a copy of its source, which it runs in."""
        return HOMES / self.name

    def versions(self) -> str:
        """Its packages with their versions."""
        found = pinned(self.source / self.lock)
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
        ("fastify", "better-sqlite3"),
        install=(("npm", "ci", "--no-audit", "--no-fund"),),
        load=(("node", "load.js", "{source}"),),
        serve=("node", "server.js"),
    ),
)


def pinned(lock: Path) -> dict[str, str]:
    """The versions of packages in a requirements.txt or a package-lock.json, by their names."""
    text = lock.read_text("utf-8")
    if lock.suffix != ".json":
        return dict(_PINNED.findall(text))
    packages = json.loads(text)["packages"]
    return {name.removeprefix("node_modules/"): entry["version"] for name, entry in packages.items() if name}


def said(*command: str) -> str:
    """What a program says of its version, in one line; raises Refusal when it is missing."""
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise RejectedRequest(f"{command[0]} is missing") from None
    return (outcome.stdout or outcome.stderr).strip()
