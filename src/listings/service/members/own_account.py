"""Changes that owners make to their accounts: name, email address, closing."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, Actor
from listings.domain.model import Account
from listings.service.accounts import Accounts, validate_email, validate_name
from listings.service.mail.composer import MailComposer
from listings.service.members.invitations import invalid_link
from listings.service.members.sessions import Member, Sessions
from listings.service.tokens import hash_token, is_token
from listings.store.store import Store

_log = logging.getLogger(__name__)

_ERASE_SECONDS = 120  # after which another process may join an erasure, which is harmless


@dataclass(eq=False)
class OwnAccount:
    """Changes and closes an account for its owner."""

    _store: Store
    _accounts: Accounts
    _sessions: Sessions
    _clock: Callable[[], float]
    _composer: MailComposer

    @property
    def confirms_emails(self) -> bool:
        """Whether an email address is confirmed with a link, which needs mail."""
        return self._composer.is_on

    async def change_name(self, member: Member, name: str) -> None:
        """Change the name of the account. Raises Problem: invalid_request, account_disabled."""
        await self._accounts.change_own(member.account, {"name": validate_name(name)})

    async def change_email(self, member: Member, email: str, password: str) -> None:
        """Change the email address. If mail is on, it changes only when a link sent to the new one is used.

        The present address can be confirmed that way, too.

        Raises Problem: invalid_request, email_taken, account_disabled, wrong_credentials, too_many_attempts.
        """
        email = validate_email(email)
        stored = await self._sessions.require_password(member, password)
        await self._sessions.count_mail(member, email)  # even without mail: email_taken reveals that an account exists
        is_new = email != member.account.email
        if is_new and await self._store.find_account(email) is not None:
            raise _email_taken(email)
        mail, actor = self._composer.compose("confirm_email", member.account, email), Actor(CONSOLE, int(self._clock()))
        if mail is not None:
            await self._store.queue_confirmation(member.account.id, mail, stored)
        elif is_new and await self._store.change_email(member.account.id, email, actor, stored) is None:
            raise _email_taken(email)

    async def send_confirmation(self, member: Member) -> None:
        """Send a link that confirms the current email address. Raises Problem("too_many_attempts")."""
        await self._sessions.count_mail(member, member.account.email)
        mail = self._composer.compose("confirm_email", member.account)
        if mail is not None:
            await self._store.add_mail(mail)

    async def is_email_confirmed(self, account: Account) -> bool:
        return await self._store.get_confirmed_email(account.id) == account.email

    async def find_confirmation(self, token: str) -> tuple[Account, str]:
        """Return the account and the email address of a link. Raises Problem("invitation_invalid")."""
        found = await self._store.find_email_token(hash_token(token), int(self._clock())) if is_token(token) else None
        if found is None or found[0].disabled_at is not None:
            raise invalid_link()
        return found

    async def confirm_email(self, token: str) -> None:
        """Confirm the email address of a link, which becomes the account's. The former address gets a notice.

        Raises Problem: invitation_invalid, email_taken, account_disabled.
        """
        account, email = await self.find_confirmation(token)
        notice = self._composer.compose("email_changed", account, email=email)
        if await self._store.confirm_email(hash_token(token), int(self._clock()), notice) is None:
            await self.find_confirmation(token)  # raises if the link was used meanwhile
            raise _email_taken(email)
        _log.info("Confirmed the email of account %d", account.id)

    async def close(self, member: Member, email: str, password: str) -> None:
        """Close the account: disable it, end its sessions, and erase it in the background.

        `email` confirms that the owner means this account. Raises Problem: invalid_request, wrong_credentials,
        too_many_attempts.
        """
        if email.strip().lower() != member.account.email:
            raise Problem("invalid_request", f"To close the account, type its email: {member.account.email}")
        stored = await self._sessions.require_password(member, password)
        await self._store.close_account(member.account.id, int(self._clock()), stored)
        _log.info("The owner closed account %d", member.account.id)

    async def erase_closed(self) -> None:
        """Erase the closed accounts, in one of the processes. An erasure that was interrupted is continued."""
        found = await self._store.list_closed_accounts()
        if found and await self._store.claim_task("erase closed accounts", int(self._clock()), _ERASE_SECONDS):
            for account_id in found:
                if account_id in await self._store.list_closed_accounts():  # not if it was enabled meanwhile
                    with suppress(Problem):  # enabled by the operator, or the store is unavailable
                        await self._accounts.erase_disabled(await self._accounts.find(str(account_id)))


def _email_taken(email: str) -> Problem:
    return Problem("email_taken", f"Another account has the email {email}")
