"""Invitations: links with which the owner of an account sets a password, also after forgetting it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from listings.domain.accounts import require_not_erased
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.domain.timestamps import DAY_SECONDS
from listings.service.accounts import Accounts
from listings.service.mail.composer import MailComposer
from listings.service.members.passwords import Passwords, validate_password
from listings.service.members.sessions import Sessions
from listings.service.tokens import RESET, create_token, hash_token, is_token
from listings.store.store import Store

_log = logging.getLogger(__name__)

INVITATION_SECONDS = 7 * DAY_SECONDS


@dataclass(eq=False)
class Invitations:
    """Creates and accepts invitations. The mailer creates those for forgotten passwords."""

    _store: Store
    _accounts: Accounts
    _sessions: Sessions
    _passwords: Passwords
    _clock: Callable[[], float]
    _composer: MailComposer

    async def create(self, reference: str) -> str:
        """Return a token with which the owner can set a password once, within 7 days. Earlier tokens become invalid.

        Raises Problem: account_not_found, account_disabled.
        """
        account = await self._accounts.find(reference)
        require_not_erased(account)
        if account.disabled_at is not None:
            advice = f"enable it with `listings account enable {account.id}`"
            raise Problem("account_disabled", f"{account.email} is disabled and can't be invited: {advice}")
        token = create_token()
        now = int(self._clock())
        await self._store.add_invitation(account.id, hash_token(token), now, now + INVITATION_SECONDS)
        _log.info("Invited the owner of account %d", account.id)
        return token

    async def find(self, token: str) -> Account:
        """Return the account of an invitation. Raises Problem("invitation_invalid")."""
        account = None
        if is_token(token):
            account = await self._store.find_invitation(hash_token(token), int(self._clock()))
        if account is None or account.disabled_at is not None:
            raise invalid_link()
        return account

    async def accept(self, token: str, password: str, agent: str = "", *, device: str = "") -> str:
        """Set the password and sign in. Return the session token.

        If it replaces a password, the owner gets a notice by mail. Raises Problem: invitation_invalid,
        invalid_request, or wrong_credentials if the account is disabled meanwhile.
        """
        account = await self.find(token)
        validate_password(password, account.name, account.email)
        hashed = await self._passwords.hash(password, account.id)
        is_first = await self._store.get_password(account.id) is None
        notice = None if is_first else self._composer.compose("password_changed", account)
        accepted = await self._store.accept_invitation(
            hash_token(token), hashed, int(self._clock()), notice, is_reset=token.startswith(RESET)
        )
        if accepted is None:
            raise invalid_link()
        _log.info("The owner of account %d set its password with a link", accepted.id)
        return await self._sessions.start(accepted, hashed, agent, device=device)


def invalid_link() -> Problem:
    """Return the error for a link that is no longer valid."""
    return Problem("invitation_invalid", "This link was used or has expired. Request a new one")
