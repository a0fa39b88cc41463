"""Sign-up, sign-in, sessions and passwords of members. A member is an account owner with a password."""

import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import CONSOLE, Actor
from listings.domain.mail import NewMail
from listings.domain.members import AttemptLimit, NewSession, Session, SessionCutoffs
from listings.domain.model import Account, Caller, bucket_of
from listings.domain.timestamps import DAY_SECONDS
from listings.service.accounts import validate_email, validate_name
from listings.service.mail.composer import MailComposer
from listings.service.members.attempts import MAX_SECONDS, Attempts, build_limit, find_network
from listings.service.members.passwords import Passwords, validate_password
from listings.service.tokens import create_token, hash_token, is_token
from listings.store.store import Store

_log = logging.getLogger(__name__)

SESSION_IDLE_SECONDS = 7 * DAY_SECONDS
MAX_SESSION_SECONDS = 30 * DAY_SECONDS
PASSWORD_CONFIRMATION_SECONDS = 15 * 60
_TOUCH_SECONDS = 60  # between two updates of a session's last use
_MAX_CLOCK_SKEW_SECONDS = 5 * 60  # between machines; a session from further in the future is invalid
_WRONG_CREDENTIALS = "Wrong email or password"
_WRONG_PASSWORD = "The password is wrong"  # noqa: S105 - a message
_MAX_ATTEMPTS = 10  # in 15 minutes: on an account from one network, from a known device, or by a signed-in member
_MAX_ATTEMPTS_PER_NETWORK = 30  # in 15 minutes
_MAX_ATTEMPTS_FROM_ALL_NETWORKS = 100  # on an account, in an hour
_MAX_DEVICES = 10  # per account
_MAX_SIGN_UPS_PER_NETWORK = 10  # in 15 minutes
_MAX_RESETS_PER_NETWORK = 10  # in 15 minutes
_MAX_RESETS = 3  # per email, in an hour
_MAX_MAILS = 5  # in an hour: sent at one member's request, or to one address at the request of all members
_MAX_AGENT_LENGTH = 200


class Member(msgspec.Struct, frozen=True):
    """The signed-in owner of an account: the account and the session. Times are in seconds since 1970.

    `session_handle` identifies the session without revealing its token, for example when its owner ends it.
    """

    account: Account
    session_handle: str
    confirmed_at: int
    csrf_secret: str

    @property
    def caller(self) -> Caller:
        """The member as a caller of the listing use cases. The audit log attributes its changes to the console."""
        return Caller(
            key_id=CONSOLE,
            account_id=self.account.id,
            bucket=bucket_of(self.account.id),
            plan_expires_at=self.account.plan_expires_at,
            account_disabled_at=self.account.disabled_at,
            key_expires_at=None,
            key_revoked_at=None,
            key_access="write",
        )


@dataclass(eq=False)
class Sessions:
    """Signs sellers up and in, and reads and ends their sessions."""

    _store: Store
    _attempts: Attempts
    _passwords: Passwords
    _clock: Callable[[], float]
    _composer: MailComposer
    sign_up_open: bool  # whether anyone may create an account

    async def sign_up(
        self, name: str, email: str, password: str, address: str, agent: str = "", *, device: str = ""
    ) -> str:
        """Create an account without a plan, and sign in. Return the session token.

        `address` is the client's IP address, `agent` its User-Agent, `device` the browser's token. Raises Problem:
        sign_up_closed, invalid_request, too_many_attempts, email_taken. Raises Unavailable like `sign_in`.
        """
        if not self.sign_up_open:
            raise Problem("sign_up_closed", "Sign-up is closed: ask the operator for an account")
        name, email = validate_name(name), validate_email(email)
        validate_password(password, name, email)
        with self._passwords.admit():  # as in `sign_in`
            network = find_network(address)
            await self._attempts.count([build_limit(_MAX_SIGN_UPS_PER_NETWORK, "sign-up", network)])
            hashed = await self._passwords.hash(password, network)
        mail = self._composer.compose_to_address("confirm_email", email)
        account = await self._store.add_member(name, email, hashed, int(self._clock()), mail)
        if account is None:
            raise Problem("email_taken", "An account with this email already exists: sign in instead")
        _log.info("Account %d signed up", account.id)
        return await self.start(account, hashed, agent, device=device)

    async def sign_in(self, email: str, password: str, address: str, agent: str = "", *, device: str = "") -> str:
        """Create a session and return its token, which is not stored.

        Raises Problem: wrong_credentials, too_many_attempts, account_disabled. Raises Unavailable if too many sign-ins
        are in progress. Neither the text nor the timing of wrong_credentials reveals whether the account exists.
        """
        email = email.strip().lower()
        with self._passwords.admit():  # before counting, so that a sign-in rejected here is not an attempt
            limits = await self._choose_limits(email, address, device)
            await self._attempts.count(limits)
            found = await self._store.find_account(email) if email.isprintable() else None
            account, hashed = await self._check_password(found, password, find_network(address))
        await self._attempts.undo(limits)
        if account.disabled_at is not None:
            if account.id in await self._store.list_closed_accounts():
                raise Problem("account_disabled", "You closed this account. It is being erased")
            raise Problem("account_disabled", "This account is disabled: ask the operator")
        notice = self._composer.compose("new_sign_in", account)
        if notice is not None and is_token(device):
            is_known = await self._store.is_known_device(account.email, hash_token(device))
            notice = None if is_known else notice
        return await self.start(account, hashed, agent, device=device, notice=notice)

    async def _choose_limits(self, email: str, address: str, device: str) -> list[AttemptLimit]:
        if is_token(device) and email.isprintable() and await self._store.is_known_device(email, hash_token(device)):
            return [build_limit(_MAX_ATTEMPTS, "device", device)]
        network = find_network(address)
        return [
            build_limit(_MAX_ATTEMPTS_PER_NETWORK, "address", network),
            build_limit(_MAX_ATTEMPTS, "network", f"{network}\0{email}"),
            # It counts only attempts that the others permit, so that one network can't exhaust it.
            build_limit(_MAX_ATTEMPTS_FROM_ALL_NETWORKS, "account", email, MAX_SECONDS),
        ]

    async def find_member(self, token: str) -> Member | None:
        """Return a token's member, or None if the session is invalid or the account is disabled."""
        found = await self._find_session(token)
        if found is None:
            return None
        session, account = found
        now = int(self._clock())
        if account.disabled_at is not None or _is_expired(session, now):
            return None
        if now - session.seen_at >= _TOUCH_SECONDS:
            with suppress(Unavailable):
                await self._store.touch_session(account.id, session.handle, now)
        return Member(account, session.handle, session.confirmed_at, session.csrf_secret)

    async def sign_out(self, token: str) -> None:
        """End the session of a token, if there is one."""
        found = await self._find_session(token)
        if found is not None:
            session, account = found
            await self.end(account, session.handle)

    async def list_active(self, member: Member) -> list[Session]:
        """Return the active sessions of the member's account, newest first."""
        now = int(self._clock())
        return [
            session for session in await self._store.list_sessions(member.account.id) if not _is_expired(session, now)
        ]

    async def list_stored(self, account: Account) -> list[Session]:
        """Return all stored sessions of an account, including expired ones, newest first."""
        return await self._store.list_sessions(account.id)

    async def end(self, account: Account, handle: str) -> bool:
        """End a session of an account. Return False if it has no session with this handle."""
        ended = await self._store.end_session(account.id, handle, Actor(CONSOLE, int(self._clock())))
        if ended:
            _log.info("Ended a session of account %d", account.id)
        return ended

    async def end_others(self, member: Member) -> int:
        """End all sessions of the account except the member's own. Return the number of ended sessions."""
        count = await self._store.end_sessions(member.account.id, member.session_handle)
        _log.info("Ended %d other sessions of account %d", count, member.account.id)
        return count

    async def purge(self) -> None:
        """Delete expired sessions and old attempts of all kinds, such as sign-ins, sign-ups and messages."""
        now = int(self._clock())
        with suppress(Unavailable):
            await self._store.purge_sessions(_compute_oldest(now))
            await self._store.purge_attempts(now - MAX_SECONDS, now)

    async def confirm_password(self, member: Member, password: str) -> str:
        """Confirm the password for sensitive actions. Return the session's new token, which replaces the old one.

        Raises Problem: wrong_credentials, too_many_attempts.
        """
        await self.require_password(member, password)
        return await self._renew_session(member)

    async def change_password(self, member: Member, old: str, new: str, *, device: str = "") -> str:
        """Set a new password, end all other sessions and forget all other devices. Return the session's new token.

        The owner gets a notice by mail. Raises Problem: wrong_credentials, too_many_attempts, invalid_request.
        """
        validate_password(new, member.account.name, member.account.email)
        stored = await self.require_password(member, old)
        hashed = await self._passwords.hash(new, member.account.id)
        notice = self._composer.compose("password_changed", member.account)
        if not await self._store.set_password(
            member.account.id, stored, hashed, Actor(CONSOLE, int(self._clock())), member.session_handle, notice=notice
        ):
            raise Problem("wrong_credentials", _WRONG_PASSWORD)
        _log.info("Changed the password of account %d", member.account.id)
        await self._remember_device(member.account, device)
        return await self._renew_session(member)

    @property
    def can_reset_passwords(self) -> bool:
        """Whether members can reset their passwords, which needs mail."""
        return self._composer.is_on

    async def request_reset(self, email: str, address: str) -> None:
        """Queue an email with a link to set a new password.

        Whether an account has this email is checked when the email is sent, so neither the result nor the time reveals
        it. `address` is the client's IP address. Raises Problem: invalid_request, path_not_found (mail is off),
        too_many_attempts.
        """
        email = validate_email(email)
        mail = self._composer.compose_to_address("password_reset", email)
        if mail is None:
            raise Problem("path_not_found", "This service sends no email")
        await self._attempts.count(
            [
                build_limit(_MAX_RESETS_PER_NETWORK, "reset address", find_network(address)),
                build_limit(_MAX_RESETS, "reset", email, MAX_SECONDS),
            ]
        )
        await self._store.add_mail(mail)

    async def count_mail(self, member: Member, recipient: str) -> None:
        """Count an email that the member makes us send. Raises Problem("too_many_attempts")."""
        await self._attempts.count(
            [
                build_limit(_MAX_MAILS, "mail", str(member.account.id), MAX_SECONDS),
                build_limit(_MAX_MAILS, "recipient", recipient, MAX_SECONDS),  # from all members together
            ]
        )

    async def is_password_correct(self, account: Account, password: str) -> bool:
        """Return whether the account has this password. Not limited, so it is only for the operator."""
        return await self._passwords.verify(await self._store.get_password(account.id), password) is not None

    async def require_password(self, member: Member, password: str) -> str:
        """Check the member's password and return its stored hash.

        Raises Problem: wrong_credentials, too_many_attempts.
        """
        limit = build_limit(_MAX_ATTEMPTS, "member", str(member.account.id))
        with self._passwords.admit():
            await self._attempts.count([limit])
            _, hashed = await self._check_password(member.account, password, member.account.id, _WRONG_PASSWORD)
        await self._attempts.undo([limit])
        return hashed

    async def _check_password(
        self, account: Account | None, password: str, owner: int | str, message: str = _WRONG_CREDENTIALS
    ) -> tuple[Account, str]:
        stored = await self._store.get_password(account.id if account is not None else 0)
        hashed = await self._passwords.verify(stored, password, owner)
        if account is None or stored is None or hashed is None:
            # Logged for an unknown email, too, so that a wrong account and a wrong password take equally long.
            subject = f"account {account.id}" if account is not None else "an unknown email"
            _log.warning("Wrong password for %s", subject)
            raise Problem("wrong_credentials", message)
        if hashed != stored and not await self._store.update_password_hash(account.id, stored, hashed):
            return await self._check_password(account, password, owner, message)  # another sign-in replaced it first
        return account, hashed

    def is_confirmed(self, member: Member) -> bool:
        """Return whether the password was confirmed in the last 15 minutes."""
        return -_MAX_CLOCK_SKEW_SECONDS <= self._clock() - member.confirmed_at < PASSWORD_CONFIRMATION_SECONDS

    async def _find_session(self, token: str) -> tuple[Session, Account] | None:
        return await self._store.find_session(hash_token(token)) if is_token(token) else None

    async def start(
        self, account: Account, hashed: str, agent: str, *, device: str = "", notice: NewMail | None = None
    ) -> str:
        """Start a session and return its token. The browser with the token `device` is remembered.

        `hashed` is the checked hash. Raises Problem("wrong_credentials") if the password was changed, or the account
        disabled, since the check.
        """
        token = create_token()
        new = NewSession(
            digest=hash_token(token),
            handle=secrets.token_hex(8),
            csrf_secret=secrets.token_urlsafe(32),
            created_at=int(self._clock()),
            agent="".join(filter(str.isprintable, agent))[:_MAX_AGENT_LENGTH],
        )
        if not await self._store.add_session(account.id, new, hashed, notice):
            raise Problem("wrong_credentials", _WRONG_CREDENTIALS)
        _log.info("Account %d signed in", account.id)
        await self._remember_device(account, device)
        return token

    async def _remember_device(self, account: Account, device: str) -> None:
        if is_token(device):
            with suppress(Unavailable):  # the owner has signed in, and the next sign-in tries again
                await self._store.set_device(account.id, hash_token(device), int(self._clock()), _MAX_DEVICES)

    async def _renew_session(self, member: Member) -> str:
        token = create_token()
        await self._store.confirm_session(
            member.account.id, member.session_handle, hash_token(token), int(self._clock())
        )
        return token


def _compute_oldest(now: int) -> SessionCutoffs:
    return SessionCutoffs(seen_at=now - SESSION_IDLE_SECONDS + 1, created_at=now - MAX_SESSION_SECONDS + 1)


def _is_expired(session: Session, now: int) -> bool:
    oldest, latest = _compute_oldest(now), now + _MAX_CLOCK_SKEW_SECONDS
    return not (oldest.seen_at <= session.seen_at <= latest and oldest.created_at <= session.created_at <= latest)
