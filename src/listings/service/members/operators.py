"""Operators: owners of accounts who may open the operator's page, with a second factor."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import NamedTuple

from listings.domain.accounts import require_enabled
from listings.domain.errors import Problem
from listings.domain.members import Operator
from listings.domain.model import Account
from listings.domain.timestamps import HOUR_SECONDS
from listings.service.accounts import Accounts
from listings.service.members.attempts import Attempts, build_limit
from listings.service.members.sessions import Member, Sessions
from listings.store.store import Store

_log = logging.getLogger(__name__)

_SESSION_SECONDS = 12 * HOUR_SECONDS
_STEP_SECONDS = 30  # RFC 6238, 5.2
_MAX_SKEW_STEPS = 1
_MAX_CLOCK_SKEW_SECONDS = 300  # between machines
_MAX_ATTEMPTS = 10  # in 15 minutes


class SecondFactor(NamedTuple):
    """The new second factor of an operator: the secret, in base32, and the link that an authenticator app reads."""

    account: Account
    secret: str
    link: str


@dataclass(eq=False)
class Operators:
    """Adds and removes operators, and checks their codes."""

    _store: Store
    _attempts: Attempts
    _accounts: Accounts
    _sessions: Sessions
    _clock: Callable[[], float]
    _market_name: str  # that an authenticator app shows

    async def add(self, reference: str) -> SecondFactor:
        """Make the owner of an enabled account an operator, or replace an operator's secret, which is shown once.

        Raises Problem: account_not_found, account_disabled.
        """
        from pyotp import TOTP, random_base32  # noqa: PLC0415 - few processes need it

        account = await self._accounts.find(reference)
        require_enabled(account)
        secret = random_base32()
        await self._store.set_operator(Operator(account.id, secret, 0, int(self._clock())))
        _log.info("Account %d is an operator with a new second factor", account.id)
        return SecondFactor(
            account, secret, TOTP(secret).provisioning_uri(name=account.email, issuer_name=self._market_name)
        )

    async def remove(self, reference: str) -> Account:
        """Remove an operator. Raises Problem: account_not_found, invalid_request."""
        account = await self._accounts.find(reference)
        if not await self._store.delete_operator(account.id):
            raise Problem("invalid_request", f"Account {account.id} is not an operator")
        _log.info("Account %d is no longer an operator", account.id)
        return account

    async def list_all(self) -> list[tuple[Account, int]]:
        """Return the accounts of all operators, with the time of each secret in seconds since 1970."""
        found = await self._store.list_operators()
        return [(await self._accounts.find(str(one.account_id)), one.added_at) for one in found]

    async def has_session(self, member: Member) -> bool:
        """Return whether the member has entered a code in this session, in the last 12 hours.

        Raises Problem("path_not_found") if the member is not an operator.
        """
        await self._require_operator(member)
        started_at = await self._store.get_operator_session(member.account.id, member.session_handle)
        return started_at is not None and -_MAX_CLOCK_SKEW_SECONDS <= self._clock() - started_at < _SESSION_SECONDS

    async def sign_in(self, member: Member, code: str) -> None:
        """Check a code, which works once, and start the session as an operator.

        Raises Problem: path_not_found, confirmation_required, too_many_attempts, wrong_credentials.
        """
        operator = await self._require_operator(member)
        if not self._sessions.is_confirmed(member):
            raise Problem("confirmation_required", "Enter your password again")
        limits = [build_limit(_MAX_ATTEMPTS, "operator", str(member.account.id))]
        await self._attempts.count(limits)
        step, now = _find_step(operator.secret, "".join(code.split()), self._clock()), int(self._clock())
        if step is None or not await self._store.use_operator_code(operator, step, member.session_handle, now):
            _log.warning("Wrong code of operator %d", member.account.id)
            raise Problem("wrong_credentials", "The code is wrong or was used before. Wait for the next one")
        await self._attempts.undo(limits)
        _log.info("Operator %d signed in", member.account.id)

    async def _require_operator(self, member: Member) -> Operator:
        operator = await self._store.get_operator(member.account.id)
        if operator is None:
            raise Problem("path_not_found", "We can't find that page")
        return operator


def _find_step(secret: str, code: str, now: float) -> int | None:
    from pyotp import TOTP  # noqa: PLC0415 - as above

    factor, current = TOTP(secret), int(now) // _STEP_SECONDS
    steps = range(current - _MAX_SKEW_STEPS, current + _MAX_SKEW_STEPS + 1)
    return next((one for one in steps if compare_digest(factor.generate_otp(one).encode(), code.encode())), None)
