"""Send the queued mail in the background. Retry for up to three days, unless the failure is permanent."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from listings.domain.errors import Unavailable
from listings.domain.mail import NewMail, QueuedMail
from listings.domain.model import Account, ListingQuery, bucket_of
from listings.domain.number_text import format_count
from listings.domain.pictures import find_name
from listings.domain.timestamps import DAY_SECONDS
from listings.queues import FairQueue
from listings.service.listings import find_of_any_size
from listings.service.mail.html import write_html
from listings.service.mail.smtp_types import MAX_SECONDS, MailError, OutgoingMail, SmtpServer, UnansweredError
from listings.service.mail.texts import Context, write_text
from listings.service.tokens import RESET, create_token, hash_token
from listings.store.store import Store

_log = logging.getLogger(__name__)

MailOutcome: TypeAlias = Literal["sent", "failed", "given_up"]

RESET_SECONDS = 3600
EMAIL_LINK_SECONDS = DAY_SECONDS
_CLAIM_SECONDS = MAX_SECONDS + 60  # if the process dies meanwhile, another one sends the mail after this time
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 60, 4 * 3600
_MAX_AGE_SECONDS = 3 * DAY_SECONDS
_STORED_SECONDS = 30 * DAY_SECONDS  # after queueing; until then, `listings doctor` counts mail that was given up
_MAX_MAILS = 100  # in one run
STOP_SECONDS = 2.0  # that the mail being sent still has when the service stops


class Mailer:
    """Sends the queue's mail through an SMTP server."""

    def __init__(
        self,
        store: Store,
        server: SmtpServer | None,
        clock: Callable[[], float],
        contact: str,
        on_outcome: Callable[[MailOutcome], None],
        media_url: str = "",
    ) -> None:
        """`server` is None if mail is off. `on_outcome` is called after each attempt. `media_url`: of pictures."""
        self._store = store
        self._server = server
        self._clock = clock
        self._base_url = server.base_url if server is not None else ""
        self._media_url = media_url or f"{self._base_url}/media"
        self._market = server.sender_name if server is not None else ""
        self._contact = f" at {contact}" if contact else ""
        self._contact_email = "" if "://" in contact else contact
        self._on_outcome = on_outcome

    @property
    def is_on(self) -> bool:
        return self._server is not None

    async def list_given_up(self) -> list[NewMail]:
        """Return the emails of the last 30 days that could not be sent, oldest first, without their detail."""
        return await self._store.list_given_up_mails()

    async def send_due(self) -> None:
        """Send the mail that is due. Several processes may do this: each email is claimed by one of them.

        If this is cancelled, the mail that is being sent has two more seconds. After that it is due again: immediately,
        or if the server may already have accepted it, five minutes after this attempt began.
        """
        if self._server is None:
            return
        for _ in range(_MAX_MAILS):
            if not await _finish(self._send_next(self._server)):
                return

    async def _send_next(self, server: SmtpServer) -> bool:
        now = int(self._clock())
        queued = await self._store.claim_mail(now, now + _CLAIM_SECONDS)
        if queued is not None:
            await self._process(server, queued)
        return queued is not None

    async def purge(self) -> None:
        """Delete emails that were queued a month ago: given up, or left in the queue when mail was turned off."""
        await self._store.purge_mails(int(self._clock()) - _STORED_SECONDS)

    async def _process(self, server: SmtpServer, queued: QueuedMail) -> None:
        from listings.service.mail.smtp import send  # noqa: PLC0415 - few processes send mail

        mail = queued.mail
        try:
            if self._clock() > mail.created_at + _MAX_AGE_SECONDS:
                raise MailError("it is too old", is_permanent=True)  # noqa: TRY301 - handled like other failures
            outgoing = await self._write(mail)
            if outgoing is not None:
                await send(server, outgoing)
                self._on_outcome("sent")
                _log.info("Sent mail %s (%s)", mail.id, mail.kind)
        except MailError as error:
            await self._handle_failure(queued, error)
        except asyncio.CancelledError:
            await self._store.postpone_mail(mail.id, int(self._clock()))  # another process can send it
            raise
        except UnansweredError:
            _log.warning("Stopped before the server accepted mail %s (%s), which may arrive twice", mail.id, mail.kind)
        except Exception as error:  # noqa: BLE001 - one failure must not keep the others in the queue
            _log.exception("Mail %s (%s) failed unexpectedly", mail.id, mail.kind)
            await self._handle_failure(queued, MailError(type(error).__name__, is_permanent=False))
        else:
            await self._store.delete_mail(mail.id)

    async def _handle_failure(self, queued: QueuedMail, error: MailError) -> None:
        mail, now = queued.mail, int(self._clock())
        delay = min(_FIRST_RETRY_SECONDS * 2 ** (queued.attempts - 1), _MAX_RETRY_SECONDS)
        is_over = error.is_permanent or now + delay > mail.created_at + _MAX_AGE_SECONDS
        await self._store.postpone_mail(mail.id, None if is_over else now + delay)
        self._on_outcome("given_up" if is_over else "failed")
        if is_over:
            _log.error("Gave up on mail %s (%s) at attempt %d: %s", mail.id, mail.kind, queued.attempts, error)
        else:
            _log.warning("Mail %s (%s) was not sent, next attempt in %d s: %s", mail.id, mail.kind, delay, error)

    async def _write(self, mail: NewMail) -> OutgoingMail | None:
        account = await self._find_account(mail)
        detail = msgspec.json.decode(mail.detail)
        if account is None or account.disabled_at is not None:
            return None
        plan_end = str(account.plan_expires_at)
        if detail.get("plan_expires_at", plan_end) != plan_end:  # it is about an earlier end
            return None
        link = await self._create_link(mail, account)
        if link is None:
            return None
        recipient, reply_to = mail.recipient, None
        if mail.kind == "buyer_message":  # to the seller's current address
            recipient, reply_to = account.email, (detail["name"], detail["email"])
        elif mail.kind == "listing_taken_down" and self._contact_email:
            reply_to = (self._market, self._contact_email)
        if mail.kind == "plan_started":
            detail |= {"drafts": await self._count_drafts(account)}
        name = account.name if await self._store.get_confirmed_email(account.id) == recipient else ""
        now = int(self._clock())
        context = Context(account, detail, self._base_url, now, self._contact, self._market, name, link)
        text = write_text(mail.kind, context)
        shown = find_name(detail.get("picture", ""))
        picture = f"{self._media_url}/{shown}.jpg" if shown is not None else ""
        html = write_html(*text, self._base_url, picture)
        return OutgoingMail(mail.id, recipient, *text, html, mail.created_at, reply_to)

    async def _count_drafts(self, account: Account) -> str:
        drafts = ListingQuery(status="inactive", view_count=0, limit=1, count=True)
        with suppress(Unavailable):
            found = await find_of_any_size(self._store, FairQueue(), bucket_of(account.id), account.id, drafts)
            return format_count(found.total, "draft") if found.total else ""
        return ""

    async def _find_account(self, mail: NewMail) -> Account | None:
        if mail.account_id is None:
            return await self._store.find_account(mail.recipient)
        return await self._store.get_account(mail.account_id)

    async def _create_link(self, mail: NewMail, account: Account) -> str | None:
        # "": the email has no link. None: the link must not be sent any more, because a confirmation is no longer
        # queued, or the account of a reset was disabled or has another address.
        token, now = create_token(), int(self._clock())
        token = RESET + token if mail.kind == "password_reset" else token
        digest = hash_token(token)
        if mail.kind == "confirm_email":
            is_queued = await self._store.add_email_token(account.id, mail, digest, now, now + EMAIL_LINK_SECONDS)
            return f"{self._base_url}/confirm-email/{token}" if is_queued else None
        if mail.kind != "password_reset":
            return ""
        is_owner = await self._store.add_invitation(account.id, digest, now, now + RESET_SECONDS, email=mail.recipient)
        return f"{self._base_url}/invitations/{token}" if is_owner else None


async def _finish(work: Coroutine[Any, Any, bool]) -> bool:
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=STOP_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()
