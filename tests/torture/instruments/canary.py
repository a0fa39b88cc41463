"""Canary: send secrets through all parts of the service, then search all outputs and files for them.

The values of an erased account are searched for in all tables, because SQLite leaves deleted bytes in the file until it
needs the space.
"""

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote

import apsw
import uvloop

from listings import wiring
from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.service.mail.messages import BuyerMessage
from listings.settings import Settings, load
from tests.cli.commands import PROGRAM
from tests.http.raw import PATH, AsyncConnection, ConnectionLostError
from tests.processes import run_program
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import RestartableService, find_children, start_in_fork

_PASSWORD, _WRONG_PASSWORD = "canary Sings at 6 in the morning", "canary Sleeps until 9 at least"
_EMAIL, _OTHER_EMAIL = "alice@example.com", "bob@example.com"
_ERASED_TEXT = "a text of the canary that was there once"
_BUYER = BuyerMessage("Ana", "ana@buyer.example", "Is the canary still there?")
_METRICS = re.compile(r"Metrics are at (?:http://)?([0-9.]+):(\d+)")


class Session:
    def __init__(self, service: RestartableService) -> None:
        self.secrets: dict[str, str] = {}
        self.outputs: dict[str, bytes] = {}  # by source
        self.values_found: list[str] = []  # tables with values of an erased account
        self._service = service
        self._number = 0

    # The command line

    def run(self, *arguments: str, prints_secret: bool = False) -> str:
        with tempfile.TemporaryDirectory() as name:  # not in the service's folder, whose files are searched
            output, errors = Path(name, "output"), Path(name, "errors")
            process = start_in_fork(arguments, self._service.environment, errors, output=output)
            process.wait()
            process.close()
            found = output.read_text("utf-8")
            assert not prints_secret or found, errors.read_text("utf-8")
            self._record(f"the errors of {arguments[:2]}", errors.read_bytes())
        if not prints_secret:
            self._record(f"the output of {arguments[:2]}", found.encode())
        return found

    def import_key(self, key: str) -> None:
        """Run the command that reads a key from standard input, which also prints it."""
        arguments = ("key", "create", _EMAIL, "--name", "imported", "--key-file", "-")
        result = run_program([PROGRAM, *arguments], env=self._service.environment, input=key)
        assert result.returncode == 0, result.stderr
        self._record(f"the errors of {arguments[:2]}", result.stderr.encode())

    def set_up(self) -> None:
        """Create an account with keys of all origins: created, imported, rotated and revoked."""
        self.run("migrate")
        self.run("account", "create", "--name", "Alice", "--email", _EMAIL, "--months", "12")
        created = json.loads(self.run("key", "create", _EMAIL, "--name", "created", "--json", prints_secret=True))
        self.secrets["a created key"] = created["key"]
        imported = "canary-brought-along-by-an-older-system"
        self.secrets["an imported key"] = imported
        self.import_key(imported)
        old = json.loads(self.run("key", "create", _EMAIL, "--name", "old", "--json", prints_secret=True))
        new = json.loads(self.run("key", "rotate", str(old["id"]), "--json", prints_secret=True))
        self.secrets |= {"a rotated key": old["key"], "a key that replaces a rotated one": new["key"]}
        self.secrets["an unknown key"] = api_keys.generate()

    def run_read_commands(self) -> None:
        """Run the commands that print something, and a backup."""
        folder = self._service.folder
        for arguments in (
            ("account", "list"), ("key", "list", _EMAIL), ("key", "revoke", "4"), ("settings",), ("doctor",),
            ("list", _EMAIL), ("export", _EMAIL, str(folder / "export.json")), ("backup", str(folder / "backup.db")),
            ("key", "create", "nobody@example.com", "--name", "none"), ("show", "7"),
        ):  # fmt: skip
            self.run(*arguments)

    # The console's use cases

    async def use_passwords(self) -> None:
        """Sign up and in, enter a wrong password, change the password, and accept an invitation."""
        self.secrets |= {
            "a password": _PASSWORD,
            "a wrong password": _WRONG_PASSWORD,
            "a new password": _PASSWORD[::-1],
        }
        settings = load(self._service.environment | {"LISTINGS_SIGN_UP": "on"}, {})
        async with wiring.open_services(settings) as services:
            self.secrets["an invitation"] = invitation = await services.invitations.create(_EMAIL)
            session_token = await services.invitations.accept(invitation, _PASSWORD, "canary's browser")
            self.secrets["a session from an invitation"] = session_token
            for password in (_WRONG_PASSWORD, _PASSWORD):
                with suppress(Problem):
                    self.secrets["a session"] = await services.sessions.sign_in(
                        _EMAIL, password, "127.0.0.1", "browser"
                    )
            member = await services.sessions.find_member(self.secrets["a session"])
            assert member is not None
            changed = await services.sessions.change_password(member, _PASSWORD, _PASSWORD[::-1])
            self.secrets["a session after a password change"] = changed
            with suppress(Problem):
                await services.sessions.sign_in("nobody@example.com", _WRONG_PASSWORD, "127.0.0.1")

    # Erasing

    async def erase_account(self) -> None:
        """Replace a text of another account's listing, erase the account, and search all tables for the text."""
        await self._sign_up_other_account()
        connection = AsyncConnection(self._service.port, await asyncio.to_thread(self._create_other_key))
        listing = await connection.fetch("POST", PATH, {"title": "t", "content": _ERASED_TEXT, "is_active": False})
        await connection.fetch("PATCH", f"{PATH}/{listing.json()['id']}", {"content": "c", "is_active": True})
        connection.close()
        assert await asyncio.to_thread(self._find_tables, _ERASED_TEXT) == ["changes"]
        await self._write_to_other_account(int(listing.json()["id"]))
        assert sorted(await asyncio.to_thread(self._find_tables, _BUYER.email)) == ["mails", "messages"]
        assert {"accounts", "mails", "email_tokens"} <= set(await asyncio.to_thread(self._find_tables, _OTHER_EMAIL))
        await asyncio.to_thread(self.run, "account", "erase", _OTHER_EMAIL, "--yes")
        for text in (_ERASED_TEXT, _OTHER_EMAIL, _BUYER.email, _BUYER.text):
            self.values_found += await asyncio.to_thread(self._find_tables, text)

    async def _sign_up_other_account(self) -> None:
        """Create an account whose mail can't be sent, so that its address stays in the queue."""
        async with wiring.open_services(self._load_mail_settings()) as services:
            self.secrets["a session after sign-up"] = await services.sessions.sign_up(
                "Bob", _OTHER_EMAIL, _PASSWORD, "127.0.0.1"
            )
            await services.mailer.send_due()

    async def _write_to_other_account(self, listing_id: int) -> None:
        """Send a message to the seller of a listing, which stays in the queue."""
        async with wiring.open_services(self._load_mail_settings()) as services:
            recipient = await services.messages.find_recipient(listing_id)
            await services.messages.send(recipient, _BUYER, "127.0.0.1", "browser")
            await services.mailer.send_due()

    def _load_mail_settings(self) -> Settings:
        mail = {"LISTINGS_SMTP_URL": "smtp://127.0.0.1:1", "LISTINGS_MAIL_FROM": "no-reply@market.example"}
        return load(self._service.environment | mail | {"LISTINGS_BASE_URL": "https://market.example"}, {})

    def _create_other_key(self) -> str:
        self.run("account", "plan", _OTHER_EMAIL, "--months", "12")
        created = self.run("key", "create", _OTHER_EMAIL, "--name", "b", "--json", prints_secret=True)
        return str(json.loads(created)["key"])

    def _find_tables(self, text: str) -> list[str]:
        with closing(apsw.Connection(str(self._service.database))) as connection:
            tables = [row[0] for row in connection.execute("SELECT name FROM pragma_table_list WHERE type = 'table'")]
            rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}  # noqa: S608 - above
        return [name for name, found in rows.items() if text in repr(found)]

    # Requests

    async def fetch(self) -> None:
        """Send each secret in each header, in valid and invalid requests, and where no secret belongs."""
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

    async def _send(self, name: str, head: str, body: str, is_echoed: bool) -> None:  # noqa: FBT001 - a single caller
        connection = AsyncConnection(self._service.port, "")
        try:
            response = await connection.send(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        except ConnectionLostError:
            return
        finally:
            connection.close()
        if not (is_echoed and "limit=" in head):  # the message quotes an invalid parameter
            self._record(f"a response to {name}", repr(response.headers).encode() + response.body)

    async def read_metrics(self) -> None:
        log = await asyncio.to_thread(self._service.log.read_text, "utf-8")
        found = _METRICS.search(log)
        assert found is not None, self._service.read_log()
        reader, writer = await asyncio.open_connection(found[1], int(found[2]))
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        self._record("the metrics", await reader.read())
        writer.close()

    def inspect_processes(self, pids: list[int]) -> None:
        """Record the command lines and environments of the processes."""
        for pid in pids:
            for name in ("cmdline", "environ"):
                self._record(f"the {name} of a process", Path(f"/proc/{pid}/{name}").read_bytes())

    # The search

    def find_secrets(self) -> list[str]:
        """Return where a secret was found in any encoding."""
        found = [f"an erased value is in the table {name}" for name in self.values_found]
        for source, data in [*self.outputs.items(), *_read_files(self._service.folder)]:
            for name, secret in self.secrets.items():
                if any(form in data for form in _encode_variants(secret)):
                    found.append(f"{name} is in {source}")
        return found

    def _record(self, source: str, data: bytes) -> None:
        self._number += 1
        self.outputs[f"{source} ({self._number})"] = data


def _encode_variants(secret: str) -> Iterator[bytes]:
    raw = secret.encode()
    yield raw
    yield quote(secret).encode()
    yield raw.hex().encode()
    yield base64.b64encode(raw).rstrip(b"=")[:-1]


def _read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_blocks * 512 < 2**28:
            yield f"the file {path.name}", path.read_bytes()


def work(scale: Scale, fault: str | None = None, workers: int = 1) -> tuple[Session, list[str]]:
    """Run a session; return it with the places where secrets were found."""
    settings = {"LISTINGS_LOG_LEVEL": "info", "LISTINGS_METRICS_ADDRESS": "0", "LISTINGS_WORKERS": str(workers)}
    with ExitStack() as stack:
        service = stack.enter_context(RestartableService(scale.folder, fault, **settings))
        session = Session(service)
        session.set_up()
        service.start()
        uvloop.run(_work(service, session, workers))
        return session, session.find_secrets()


async def _work(service: RestartableService, session: Session, workers: int) -> None:
    await service.wait_until_announced()
    assert service.process is not None
    await session.use_passwords()
    await session.fetch()
    if not service.is_broken:
        await asyncio.to_thread(session.run_read_commands)
        await session.erase_account()
    await session.read_metrics()
    pids = [service.process.pid, *find_children(service.process.pid)]
    assert len(pids) >= workers
    session.inspect_processes(pids)
    service.stop()


def run(scale: Scale) -> Outcome:
    """Use two workers in a full run, else one."""
    is_full = scale.fraction >= 1
    session, found = work(scale, workers=2 if is_full else 1)
    summary = (
        f"{len(session.secrets)} secrets, searched for in {len(session.outputs)} outputs and responses and in all files"
    )
    return Outcome(summary, found, is_full)


def control(scale: Scale) -> Outcome:
    """Log every API key."""
    _, found = work(scale, "log_api_keys")
    return Outcome("keys in the log", found)


INSTRUMENT = Instrument(
    12,
    "canary: search for keys, passwords, session tokens and erased values after a whole session",
    "found nowhere: logs, database, backup, metrics, responses, process list",
    0.5,
    run,
    control,
)
