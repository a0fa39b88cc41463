"""Canary: secrets that go through a whole session of the service, and are then looked for wherever they may not be."""

import asyncio
import base64
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote

import uvloop

from listings import wiring
from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.settings import load
from tests.cli.commands import PROGRAM, clean_environment
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.serving import Place, Zygote, children_of
from tests.torture.wire import PATH, Line, LostError

_PASSWORD, _WRONG_PASSWORD = "canary Sings at 6 in the morning", "canary Sleeps until 9 at least"
_EMAIL = "alice@example.com"
_METRICS = re.compile(r"Metrics are at (?:http://)?([0-9.]+):(\d+)")


class Session:
    """What is done with the service, and all that comes of it."""

    def __init__(self, place: Place) -> None:
        self.secrets: dict[str, str] = {}
        self.seen: dict[str, bytes] = {}  # what came out, by where
        self._place = place
        self._number = 0

    # The command line

    def run(self, *arguments: str, stdin: str = "", tells_secrets: bool = False) -> str:
        """A command; returns what it prints."""
        environment = clean_environment() | self._place.environment
        done = subprocess.run(
            [PROGRAM, *arguments], env=environment, input=stdin, capture_output=True, text=True, check=False
        )
        assert not tells_secrets or done.returncode == 0, done.stderr
        self._note(f"the errors of {arguments[:2]}", done.stderr.encode())
        if not tells_secrets:
            self._note(f"the output of {arguments[:2]}", done.stdout.encode())
        return done.stdout

    def set_up(self) -> None:
        """An account with keys of all origins: made, brought along, rotated and revoked."""
        self.run("migrate")
        self.run("account", "create", "--name", "Alice", "--email", _EMAIL, "--months", "12")
        made = json.loads(self.run("key", "create", _EMAIL, "--name", "made", "--json", tells_secrets=True))
        self.secrets["a key that was made"] = made["key"]
        brought = "canary-brought-along-by-an-older-system"
        self.secrets["a key that was brought along"] = brought
        self.run("key", "create", _EMAIL, "--name", "brought", "--key-file", "-", stdin=brought, tells_secrets=True)
        old = json.loads(self.run("key", "create", _EMAIL, "--name", "old", "--json", tells_secrets=True))
        new = json.loads(self.run("key", "rotate", str(old["id"]), "--json", tells_secrets=True))
        self.secrets |= {"a key that was rotated": old["key"], "a key in its place": new["key"]}
        self.secrets["a key that is nobody's"] = api_keys.generate()

    def look_around(self) -> None:
        """Every command that tells something, and a backup."""
        folder = self._place.folder
        for arguments in (
            ("account", "list"), ("key", "list", _EMAIL), ("key", "revoke", "4"), ("settings",), ("doctor",),
            ("list", _EMAIL), ("export", _EMAIL, str(folder / "export.json")), ("backup", str(folder / "backup.db")),
            ("key", "create", "nobody@example.com", "--name", "none"), ("show", "7"),
        ):  # fmt: skip
            self.run(*arguments)

    # The console's use cases

    async def use_passwords(self) -> None:
        """Sign up, in, wrongly, out; change a password, accept an invitation."""
        self.secrets |= {
            "a password": _PASSWORD,
            "a wrong password": _WRONG_PASSWORD,
            "a new password": _PASSWORD[::-1],
        }
        settings = load(self._place.environment | {"LISTINGS_SIGN_UP": "on"}, {})
        async with wiring.open_service(settings) as service:
            self.secrets["an invitation"] = invitation = await service.invite(_EMAIL)
            accepted = await service.accept_invitation(invitation, _PASSWORD, "canary's browser")
            self.secrets["a session that was invited"] = accepted
            for password in (_WRONG_PASSWORD, _PASSWORD):
                with suppress(Problem):
                    self.secrets["a session"] = await service.sign_in(_EMAIL, password, "127.0.0.1", "browser")
            member = await service.find_member(self.secrets["a session"])
            assert member is not None
            changed = await service.change_password(member, _PASSWORD, _PASSWORD[::-1])
            self.secrets["a session after a change"] = changed
            with suppress(Problem):
                await service.sign_in("nobody@example.com", _WRONG_PASSWORD, "127.0.0.1")

    # Requests

    async def fetch(self) -> None:
        """With each secret in each header, well and badly, and where no secret belongs."""
        for name, secret in self.secrets.items():
            cookie = quote(secret)
            for field in (
                f"X-API-Key: {secret}", f"Authorization: Bearer {secret}", f"Authorization: Basic {secret}",
                f"Cookie: session={cookie}; __Host-session={cookie}", f"X-API-Key : {secret}",
            ):  # fmt: skip
                for method, path, body in (
                    ("GET", PATH, ""), ("POST", PATH, '{"title": "t", "content": "c"}'), ("POST", PATH, f'{{"{secret}'),
                    ("GET", f"{PATH}/7", ""), ("PUT", PATH, ""), ("GET", "/no/such/path", ""), ("GET", "/market", ""),
                    ("GET", f"{PATH}?api_key={quote(secret)}&limit={quote(secret)}", ""),
                ):  # fmt: skip
                    await self._send(
                        name, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{field}", body, secret in path + body
                    )

    async def _send(self, name: str, head: str, body: str, is_own: bool) -> None:  # noqa: FBT001 - of one caller
        line = Line(self._place.port, "")
        try:
            answer = await line.send(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        except LostError:
            return
        finally:
            line.close()
        if not (is_own and "limit=" in head):  # a refused parameter is shown to who has sent it
            self._note(f"an answer to {name}", repr(answer.headers).encode() + answer.body)

    async def read_metrics(self) -> None:
        """What Prometheus is told."""
        log = await asyncio.to_thread(self._place.log.read_text, "utf-8")
        found = _METRICS.search(log)
        assert found is not None, self._place.said()
        reader, writer = await asyncio.open_connection(found[1], int(found[2]))
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        self._note("the metrics", await reader.read())
        writer.close()

    def look_at_processes(self, pids: list[int]) -> None:
        """What anybody sees of the service's processes, and what they hand on."""
        for pid in pids:
            for name in ("cmdline", "environ"):
                self._note(f"the {name} of a process", Path(f"/proc/{pid}/{name}").read_bytes())

    # The search

    def hits(self) -> list[str]:
        """Where a secret was found, in any of the forms that it may be written in."""
        found = []
        for place, data in [*self.seen.items(), *_files(self._place.folder)]:
            for name, secret in self.secrets.items():
                if any(form in data for form in _forms(secret)):
                    found.append(f"{name} is in {place}")
        return found

    def _note(self, place: str, data: bytes) -> None:
        self._number += 1
        self.seen[f"{place} ({self._number})"] = data


def _forms(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield quote(secret).encode()
    yield raw.hex().encode()
    yield base64.b64encode(raw).rstrip(b"=")[:-1]


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_blocks * 512 < 2**28:
            yield f"the file {path.name}", path.read_bytes()


def work(scale: Scale, fault: str | None = None, workers: int = 1) -> tuple[Session, list[str]]:
    """A whole session; returns it with where secrets were found."""
    settings = {"LISTINGS_LOG_LEVEL": "info", "LISTINGS_METRICS_ADDRESS": "0", "LISTINGS_WORKERS": str(workers)}
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(scale.folder, zygote, fault, **settings))
        session = Session(place)
        session.set_up()
        place.start()
        uvloop.run(_work(place, session, workers))
        return session, session.hits()


async def _work(place: Place, session: Session, workers: int) -> None:
    await place.announced()
    assert place.process is not None
    await session.use_passwords()
    await session.fetch()
    if not place.is_broken:
        await asyncio.to_thread(session.look_around)
    await session.read_metrics()
    pids = [place.process.pid, *children_of(place.process.pid)]
    assert len(pids) >= workers
    session.look_at_processes(pids)
    place.stop()


def run(scale: Scale) -> Outcome:
    """With two workers in a long run."""
    is_long = scale.part >= 1
    session, hits = work(scale, workers=2 if is_long else 1)
    told = f"{len(session.secrets)} secrets, searched for in {len(session.seen)} outputs and responses and in all files"
    return Outcome(told, hits, is_long)


def control(scale: Scale) -> Outcome:
    """A service that logs the keys that it is asked with."""
    _, hits = work(scale, "log_the_keys")
    return Outcome("keys in the log", hits)


INSTRUMENT = Instrument(
    12,
    "canary: search for keys, passwords and session tokens after a whole session",
    "found nowhere: logs, database, backup, metrics, responses, process list",
    1,
    run,
    control,
)
