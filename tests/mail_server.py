"""A real SMTP server that stores the mail it receives."""

import asyncio
import email
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.harness import Harness, Person, unused_port

USER, SECRET = "listings", "swordfish"


class Mailbox:
    """Receives mail, or refuses it with the status in `refusals`, one for each attempt.

    The responses to these commands are delayed by the seconds in `delays`, and `received` lists the commands.
    """

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.refusals: list[str] = []
        self.delays = {"RCPT": 0.0, "DATA": 0.0, "QUIT": 0.0}
        self.received: list[str] = []
        self.url = ""

    @property
    def text(self) -> str:
        return read_text(self.messages[-1])

    @property
    def subjects(self) -> list[str]:
        return [str(message["Subject"]) for message in self.messages]

    @property
    def link(self) -> str:
        return str(re.findall(r"https://market\.example(/\S+)", self.text)[-1])


def read_text(message: EmailMessage, kind: str = "plain") -> str:
    body = message.get_body((kind,))
    assert body is not None
    content: str = body.get_content()
    return content


class _Handler:
    """Receives the server's mail. It is a class of its own, because aiosmtpd reads all its attributes."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name and arguments
        self, _server: Any, _session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        await self._delay("RCPT")
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options += options
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if self._mailbox.refusals:
            return self._mailbox.refusals.pop(0)
        self._mailbox.messages.append(email.message_from_bytes(envelope.content, policy=default))
        self._mailbox.recipients += envelope.rcpt_tos
        await self._delay("DATA")
        return "250 OK"

    async def handle_QUIT(self, _server: Any, _session: Any, _envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        await self._delay("QUIT")
        return "221 Bye"

    async def _delay(self, command: str) -> None:
        self._mailbox.received.append(command)
        await asyncio.sleep(self._mailbox.delays[command])


@contextmanager
def run_mail_server(certificate: tuple[Path, Path] | None = None) -> Iterator[Mailbox]:
    """Run a server on this machine. With a certificate, it requires STARTTLS and a password."""
    mailbox = Mailbox()
    options: dict[str, Any] = {}
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        options = {
            "tls_context": context,
            "require_starttls": True,
            "authenticator": _authenticate,
            "auth_required": True,
        }
    with unused_port() as port:
        pass
    controller = Controller(_Handler(mailbox), hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        mailbox.url = f"smtp://127.0.0.1:{port}"
        if certificate is not None:
            mailbox.url = f"smtp+starttls://{USER}:{SECRET}@localhost:{port}"
        yield mailbox
    finally:
        controller.stop()


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    is_right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), SECRET.encode())
    return AuthResult(success=is_right)


def mail_flags(mailbox: Mailbox) -> dict[str, str]:
    return {
        "smtp_url": mailbox.url,
        "mail_from": "no-reply@market.example",
        "base_url": "https://market.example",
        "contact": "help@market.example",
    }


def deliver(harness: Harness) -> None:
    harness.run(harness.services.mailer.send_due())


def create_alice(harness: Harness, mailbox: Mailbox) -> Person:
    """Create alice, and deliver and discard the notice of her new key."""
    alice = harness.person("alice")
    deliver(harness)
    mailbox.messages.clear()
    mailbox.recipients.clear()
    return alice
