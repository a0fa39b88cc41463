"""Installs the peers, each into a folder below `.peers/`."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import BenchmarkError
from bench.peers.definitions import Peer, run_version_command

_TIMEOUT_SECONDS = 1200
_PRESERVED = {".venv", "node_modules", ".installed"}


def install_all(
    peers: tuple[Peer, ...], log_progress: Callable[[str], None]
) -> tuple[tuple[Peer, ...], Mapping[str, str]]:
    """Install the peers; return the installed ones, and the errors of the others by title."""
    installed, missing = [], {}
    for peer in peers:
        try:
            install(peer, log_progress)
            installed.append(peer)
        except BenchmarkError as error:
            missing[peer.title] = str(error)
            log_progress(f"{peer.title} is not measured, because its installation failed: {error}")
    return tuple(installed), missing


def install(peer: Peer, log_progress: Callable[[str], None]) -> None:
    """Install the pinned packages if necessary, and copy the source. Raise BenchmarkError if that fails."""
    stamp, expected = peer.home / ".installed", _digest(peer)
    if not stamp.is_file() or stamp.read_text("ascii") != expected:
        shutil.rmtree(peer.home, ignore_errors=True)
        peer.home.mkdir(parents=True)
        _copy(peer)
        log_progress(f"installing {peer.title} into {peer.home}")
        for command in peer.install:
            _run(peer, command)
        stamp.write_text(expected, "ascii")
    _copy(peer)


def format_command(peer: Peer, command: tuple[str, ...], **values: object) -> list[str]:
    """Fill the placeholders of a command."""
    return [part.format(home=peer.home, **values) for part in command]


def _copy(peer: Peer) -> None:
    for old in peer.home.iterdir():
        if old.name not in _PRESERVED:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    ignored = shutil.ignore_patterns("__pycache__", *_PRESERVED)
    shutil.copytree(peer.source, peer.home, ignore=ignored, dirs_exist_ok=True)


def _digest(peer: Peer) -> str:
    lock = (peer.source / peer.lock).read_bytes()
    runtime = sys.version if peer.lock == "requirements.txt" else run_version_command("node", "--version")
    return hashlib.sha256(lock + runtime.encode() + repr(peer.install).encode()).hexdigest()


def _run(peer: Peer, command: tuple[str, ...]) -> None:
    environment = {**os.environ, **dict(_find_node_headers())}
    with (peer.home / "install.log").open("ab") as log:
        try:
            outcome = subprocess.run(
                format_command(peer, command),
                cwd=peer.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(f"{command[0]} failed: {error}") from None
    if outcome.returncode:
        raise BenchmarkError(f"`{' '.join(command[:3])}` failed: {find_last_error(peer.home / 'install.log')}")


def find_last_error(log: Path) -> str:
    """Return the most informative line of a log."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and "complete log" not in line]
    return (errors or lines or ["its log is empty"])[-1][:200]


def _find_node_headers() -> Iterator[tuple[str, str]]:
    """Yield the folder of node's installed headers, so that native modules do not download them."""
    node = shutil.which("node")
    if node is None:
        return
    prefix = Path(node).resolve().parent.parent
    if (prefix / "include" / "node" / "node.h").is_file():
        yield "npm_config_nodedir", str(prefix)
