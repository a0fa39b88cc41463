"""Installs peers, each into a folder of its own below `.peers/`."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import RejectedRequest
from bench.peers.roster import Peer, said

_LONGEST_SECONDS = 1200
_KEPT = {".venv", "node_modules", ".installed"}


def installed(peers: tuple[Peer, ...], tell: Callable[[str], None]) -> tuple[tuple[Peer, ...], Mapping[str, str]]:
    """Install peers; returns those that are, and of the others by their titles why they are not."""
    there, missing = [], {}
    for peer in peers:
        try:
            install(peer, tell)
            there.append(peer)
        except RejectedRequest as refusal:
            missing[peer.title] = str(refusal)
            tell(f"{peer.title} is left out, since it can't be installed: {refusal}")
    return tuple(there), missing


def install(peer: Peer, tell: Callable[[str], None]) -> None:
    """Install what the peer's lock pins, unless it is there; its source is copied anew. Raises Refusal."""
    stamp, wanted = peer.home / ".installed", _digest(peer)
    if not stamp.is_file() or stamp.read_text("ascii") != wanted:
        shutil.rmtree(peer.home, ignore_errors=True)
        peer.home.mkdir(parents=True)
        _copy(peer)
        tell(f"installing {peer.title} into {peer.home}")
        for command in peer.install:
            _run(peer, command)
        stamp.write_text(wanted, "ascii")
    _copy(peer)


def filled_in(peer: Peer, command: tuple[str, ...], **values: object) -> list[str]:
    """A command of the roster with its values."""
    return [part.format(home=peer.home, **values) for part in command]


def _copy(peer: Peer) -> None:
    for old in peer.home.iterdir():
        if old.name not in _KEPT:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    ignored = shutil.ignore_patterns("__pycache__", *_KEPT)
    shutil.copytree(peer.source, peer.home, ignore=ignored, dirs_exist_ok=True)


def _digest(peer: Peer) -> str:
    lock = (peer.source / peer.lock).read_bytes()
    runtime = sys.version if peer.lock == "requirements.txt" else said("node", "--version")
    return hashlib.sha256(lock + runtime.encode() + repr(peer.install).encode()).hexdigest()


def _run(peer: Peer, command: tuple[str, ...]) -> None:
    environment = {**os.environ, **dict(_headers_of_node())}
    with (peer.home / "install.log").open("ab") as log:
        try:
            outcome = subprocess.run(
                filled_in(peer, command),
                cwd=peer.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_LONGEST_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RejectedRequest(f"{command[0]} fails: {error}") from None
    if outcome.returncode:
        raise RejectedRequest(f"`{' '.join(command[:3])}` fails: {last_error(peer.home / 'install.log')}")


def last_error(log: Path) -> str:
    """The line of a log that tells most of what went wrong."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and "complete log" not in line]
    return (errors or lines or ["it has said nothing"])[-1][:200]


def _headers_of_node() -> Iterator[tuple[str, str]]:
    """Where a native module finds node's headers, when they are installed with it, so that none are downloaded."""
    node = shutil.which("node")
    if node is None:
        return
    prefix = Path(node).resolve().parent.parent
    if (prefix / "include" / "node" / "node.h").is_file():
        yield "npm_config_nodedir", str(prefix)
