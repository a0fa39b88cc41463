"""Send mail through an SMTP server (RFC 5321), over TLS."""

from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

Security: TypeAlias = Literal["starttls", "tls", "none"]

_TIMEOUT_SECONDS = 30
_PERMANENT = 500


class MailError(Exception):
    """A mail could not be sent. `is_permanent`: another attempt would fail, too. The text contains no address."""

    def __init__(self, text: str, *, is_permanent: bool) -> None:
        super().__init__(text)
        self.is_permanent = is_permanent


class SmtpServer(NamedTuple):
    """An SMTP server, the address from which mail is sent, and the public URL, with which links in mail begin."""

    host: str
    port: int
    security: Security
    user: str
    password: str
    sender: str
    base_url: str


class Letter(NamedTuple):
    """A mail with its text. `moment` is the Unix time at which it was queued, and `id` is the same in each attempt."""

    id: str
    recipient: str
    subject: str
    text: str
    moment: int


async def send(server: SmtpServer, letter: Letter) -> None:
    """Send a mail. Raises MailError."""
    from aiosmtplib import SMTPDataError, SMTPException, SMTPRecipientRefused, SMTPRecipientsRefused  # noqa: PLC0415
    from aiosmtplib import send as send_message  # noqa: PLC0415 - imported on first use, because few commands need it

    try:
        message = _build_message(server, letter)
        await send_message(
            message,
            sender=server.sender,
            recipients=[letter.recipient],
            hostname=server.host,
            port=server.port,
            username=server.user or None,
            password=server.password or None,
            use_tls=server.security == "tls",
            start_tls=server.security == "starttls",
            local_hostname=urlsplit(server.base_url).hostname,
            timeout=_TIMEOUT_SECONDS,
        )
    except (SMTPRecipientsRefused, SMTPRecipientRefused, SMTPDataError) as refusal:
        refusals = refusal.recipients if isinstance(refusal, SMTPRecipientsRefused) else [refusal]
        code = min(one.code for one in refusals)
        raise MailError(f"{type(refusal).__name__} {code}", is_permanent=code >= _PERMANENT) from refusal
    except (SMTPException, OSError) as failure:
        code_text = getattr(failure, "code", "")
        raise MailError(f"{type(failure).__name__} {code_text}".strip(), is_permanent=False) from failure
    except (ValueError, MessageError) as error:  # the address can't be a header; after OSError, since some are both
        raise MailError(type(error).__name__, is_permanent=True) from error


def _build_message(server: SmtpServer, letter: Letter) -> EmailMessage:
    message = EmailMessage(SMTP)
    message["From"] = Address("Listings", addr_spec=server.sender)
    message["To"] = Address(addr_spec=letter.recipient)
    message["Subject"] = letter.subject
    message["Date"] = formatdate(letter.moment)
    message["Message-ID"] = f"<{letter.id}@{server.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic replies
    message.set_content(letter.text)
    return message
