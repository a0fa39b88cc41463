"""Send mail through an SMTP server (RFC 5321)."""

import asyncio
import re
from contextlib import suppress
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from urllib.parse import urlsplit

import aiosmtplib

from listings.service.mail.smtp_types import MAX_SECONDS, MailError, OutgoingMail, SmtpServer, UnansweredError

TIMEOUT_SECONDS = 30  # of a command. A text may be answered until MAX_SECONDS: a repeated text is a second mail
_PERMANENT = 500
# RFC 5322, 3.2.3, without the dot; and the beginning of an encoded word (RFC 2047), which Python would decode
_SPECIAL_CHARACTERS = re.compile(r'(?:[()<>\[\]:;@\\,"]|=\?)+')
_INVALID = (ValueError, MessageError, IndexError, AttributeError)  # raised by the email package for an unusual address


class _Client(aiosmtplib.SMTP):
    is_text_sent = False

    async def data(self, message: str | bytes, /, **_: object) -> aiosmtplib.SMTPResponse:
        self.is_text_sent = True
        return await super().data(message, timeout=None)


async def send(server: SmtpServer, mail: OutgoingMail) -> None:
    """Send an email, in at most MAX_SECONDS.

    Raises MailError. If it is cancelled, raises CancelledError, or UnansweredError once the text was sent.
    """
    client = _Client(
        hostname=server.host,
        port=server.port,
        username=server.user or None,
        password=server.password or None,
        use_tls=server.security == "tls",
        start_tls=server.security == "starttls",
        local_hostname=urlsplit(server.base_url).hostname,
        timeout=TIMEOUT_SECONDS,
    )
    try:
        message = _build_message(server, mail)
        async with asyncio.timeout(MAX_SECONDS):
            await client.connect()
            await client.send_message(message, sender=server.sender, recipients=[mail.recipient])
    except asyncio.CancelledError:
        if client.is_text_sent:
            raise UnansweredError from None
        raise
    except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPRecipientRefused, aiosmtplib.SMTPDataError) as refusal:
        refusals = refusal.recipients if isinstance(refusal, aiosmtplib.SMTPRecipientsRefused) else [refusal]
        code = min(one.code for one in refusals)
        raise MailError(f"{type(refusal).__name__} {code}", is_permanent=code >= _PERMANENT) from refusal
    except (aiosmtplib.SMTPException, OSError) as failure:
        is_unreachable = isinstance(failure, aiosmtplib.SMTPConnectError)  # so nothing was said about a recipient
        detail = str(failure) if is_unreachable else getattr(failure, "code", "")
        raise MailError(f"{type(failure).__name__} {detail}".strip(), is_permanent=False) from failure
    except _INVALID as error:  # after OSError, because an SSLCertVerificationError is both
        raise MailError(type(error).__name__, is_permanent=True) from error
    else:
        with suppress(aiosmtplib.SMTPException, OSError, asyncio.CancelledError):  # sent: not to be sent again
            await client.quit()
    finally:
        client.close()  # no QUIT after a failure: its response may take another 30 seconds


def _build_message(server: SmtpServer, mail: OutgoingMail) -> EmailMessage:
    message = EmailMessage(SMTP)
    message["From"] = _build_address(server.sender_name, server.sender)
    message["To"] = Address(addr_spec=mail.recipient)
    if mail.reply_to is not None:
        message["Reply-To"] = _build_address(*mail.reply_to)
    message["Subject"] = mail.subject.replace("=?", "= ?")
    message["Date"] = formatdate(mail.queued_at)
    message["Message-ID"] = f"<{mail.id}@{server.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic replies
    message.set_content(mail.text)
    message.add_alternative(mail.html, subtype="html")
    return message


def _build_address(name: str, address: str) -> Address:
    # Python's email package removes quotes when it folds a long line, and a comma then starts another address.
    return Address(" ".join(_SPECIAL_CHARACTERS.sub(" ", name).split()), addr_spec=address)
