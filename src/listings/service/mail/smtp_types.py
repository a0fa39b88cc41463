"""The values with which mail is sent. `listings.service.mail.smtp` is imported only when there is mail to send."""

from typing import Literal, NamedTuple, TypeAlias

Security: TypeAlias = Literal["starttls", "tls", "none"]

MAX_SECONDS = 240  # the longest time in which an email is sent, before QUIT


class MailError(Exception):
    """An email could not be sent. `is_permanent`: another attempt would fail, too. The text contains no address."""

    def __init__(self, text: str, *, is_permanent: bool) -> None:
        super().__init__(text)
        self.is_permanent = is_permanent


class UnansweredError(Exception):
    """Sending was cancelled after the text was sent, so the server may have accepted the email."""


class SmtpServer(NamedTuple):
    """An SMTP server, the address and name from which mail is sent, and the public URL, with which links begin."""

    host: str
    port: int
    security: Security
    user: str
    password: str
    sender: str
    sender_name: str
    base_url: str


class OutgoingMail(NamedTuple):
    """An email with its text, also as HTML.

    `queued_at` is the Unix time of its queueing, and `id` is the same in each attempt. `reply_to` is the name and the
    address of the person to reply to.
    """

    id: str
    recipient: str
    subject: str
    text: str
    html: str
    queued_at: int
    reply_to: tuple[str, str] | None = None
