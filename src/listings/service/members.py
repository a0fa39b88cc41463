"""The users of the console: sign-up, sign-in, sessions, passwords, invitations and API keys."""

import ipaddress
import logging
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

import msgspec

from listings.contract.history import CONSOLE, Actor
from listings.contract.listings import Batch, ChangeStep, IdempotencyRecord
from listings.contract.members import NewSession, Session, SessionCutoffs
from listings.contract.store import Store
from listings.domain import api_keys, timestamps
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account, ApiKey, Caller, Listing, ListingChange, bucket_of, is_plan_active
from listings.service.accounts import (
    Accounts,
    IssuedKey,
    build_erased_email,
    is_erased,
    require_future,
    require_not_erased,
    validate_email,
    validate_name,
)
from listings.service.listings import IDEMPOTENCY_SECONDS, find_changes
from listings.service.passwords import Passwords, validate_password

_log = logging.getLogger(__name__)

SESSION_IDLE_SECONDS = 7 * 24 * 3600
MAX_SESSION_SECONDS = 30 * 24 * 3600
CONFIRMATION_SECONDS = 15 * 60
INVITATION_SECONDS = 7 * 24 * 3600
_TOUCH_SECONDS = 60  # between two updates of a session's last use
_MAX_CLOCK_SKEW_SECONDS = 5 * 60  # between machines; a session from further in the future is invalid
_ATTEMPTS_SECONDS = 15 * 60
_WRONG_CREDENTIALS = "Wrong email or password"
_WRONG_PASSWORD = "The password is wrong"  # noqa: S105 - a message
_MAX_ATTEMPTS_PER_ACCOUNT = 10
_MAX_ATTEMPTS_PER_ADDRESS = 30
_MAX_SIGN_UPS_PER_ADDRESS = 10
_MAX_KEYS = 20
_MAX_AGENT_LENGTH = 200
_MAX_GRACE_SECONDS = 365 * 24 * 3600
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_DELETE_BATCH_SIZE = 100
_IPV6_PREFIX_LENGTH = 64  # providers assign at least this network to one customer


class Member(msgspec.Struct, frozen=True):
    """An account that is signed in to the console, with its session. Times are in seconds since 1970.

    `session` is the public handle of the session, with which the owner can end it.
    """

    account: Account
    session: str
    signed_in_at: int
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
        )


class Members(Accounts):
    """The use cases of the console's users."""

    store: Store
    clock: Callable[[], float]
    sign_up_open: bool
    passwords: Passwords

    # Sign-up, sign-in and sessions

    async def sign_up(self, name: str, email: str, password: str, address: str, agent: str = "") -> str:
        """Create an account without a plan, and sign in. Returns the session token.

        `address` is the client's IP address, `agent` its User-Agent. Raises Problem: sign_up_closed, invalid_request,
        too_many_attempts, email_taken.
        """
        if not self.sign_up_open:
            raise Problem("sign_up_closed", "Sign-up is closed: ask the operator for an account")
        name, email = validate_name(name), validate_email(email)
        validate_password(password, name, email)
        now = int(self.clock())
        counts = await self.store.count_attempt(
            [_hash_subject("sign-up", _find_network(address))], now, now - _ATTEMPTS_SECONDS
        )
        if counts[0] > _MAX_SIGN_UPS_PER_ADDRESS:
            raise _too_many_attempts()
        hashed = await self.passwords.hash(password)
        account = await self.store.add_member(name, email, hashed, now)
        if account is None:
            raise Problem("email_taken", "An account with this email already exists: sign in instead")
        _log.info("Account %d signed up", account.id)
        return await self._create_session(account, hashed, agent)

    async def sign_in(self, email: str, password: str, address: str, agent: str = "") -> str:
        """Create a session and return its token, which is not stored.

        Raises Problem: wrong_credentials, too_many_attempts, account_disabled. Raises Unavailable if too many sign-ins
        are in progress. Neither the text nor the timing of wrong_credentials reveals whether the
        account exists.
        """
        self.passwords.require_capacity()  # before counting: a sign-in without capacity is not an attempt
        email = email.strip().lower()
        account_subject = _hash_subject("account", email)
        address_subject = _hash_subject("address", _find_network(address))
        now = int(self.clock())
        counts = await self.store.count_attempt([account_subject, address_subject], now, now - _ATTEMPTS_SECONDS)
        if counts[0] > _MAX_ATTEMPTS_PER_ACCOUNT or counts[1] > _MAX_ATTEMPTS_PER_ADDRESS:
            _log.warning("Too many sign-in attempts")
            raise _too_many_attempts()
        found = await self.store.find_account(email) if email.isprintable() else None
        account, hashed = await self._check_password(found, password)
        await self.store.clear_attempts(account_subject, address_subject)
        if account.disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled: ask the operator")
        return await self._create_session(account, hashed, agent)

    async def find_member(self, token: str) -> Member | None:
        """Return the member with a session token, or None if the session is unknown, ended or expired."""
        found = await self._find_session(token)
        if found is None:
            return None
        session, account = found
        now = int(self.clock())
        if account.disabled_at is not None or _is_expired(session, now):
            return None
        if now - session.seen_at >= _TOUCH_SECONDS:
            with suppress(Unavailable):
                await self.store.touch_session(account.id, session.handle, now)
        return Member(account, session.handle, session.created_at, session.confirmed_at, session.csrf_secret)

    async def sign_out(self, token: str) -> None:
        """End the session of a token, if there is one."""
        found = await self._find_session(token)
        if found is not None:
            session, account = found
            await self._end_session(account, session.handle)

    async def list_sessions(self, member: Member) -> list[Session]:
        """Return the active sessions of the member's account, newest first."""
        now = int(self.clock())
        return [
            session for session in await self.store.list_sessions(member.account.id) if not _is_expired(session, now)
        ]

    async def end_session(self, member: Member, handle: str) -> bool:
        """End a session of the member's account. Return False if it has no session with this handle."""
        return await self._end_session(member.account, handle)

    async def _end_session(self, account: Account, handle: str) -> bool:
        ended = await self.store.end_session(account.id, handle, self._console())
        if ended:
            _log.info("Ended a session of account %d", account.id)
        return ended

    async def end_other_sessions(self, member: Member) -> int:
        """End all sessions of the account except the member's own. Returns the number of ended sessions."""
        count = await self.store.end_sessions(member.account.id, member.session)
        _log.info("Ended %d other sessions of account %d", count, member.account.id)
        return count

    async def purge_sessions(self) -> None:
        """Delete expired sessions and old sign-in attempts."""
        now = int(self.clock())
        with suppress(Unavailable):
            await self.store.purge_sessions(_compute_oldest(now))
            await self.store.purge_attempts(now - _ATTEMPTS_SECONDS, now)

    # Passwords

    async def confirm_password(self, member: Member, password: str) -> str:
        """Confirm the password for sensitive actions. Returns the session's new token, which replaces the old one.

        Raises Problem: wrong_credentials, too_many_attempts.
        """
        await self._check_own_password(member, password)
        return await self._renew_session(member)

    async def change_password(self, member: Member, old: str, new: str) -> str:
        """Set a new password and end all other sessions. Returns the session's new token.

        Raises Problem: wrong_credentials, too_many_attempts, invalid_request.
        """
        validate_password(new, member.account.name, member.account.email)
        stored = await self._check_own_password(member, old)
        hashed = await self.passwords.hash(new)
        if not await self.store.set_password(member.account.id, stored, hashed, self._console(), member.session):
            raise Problem("wrong_credentials", _WRONG_PASSWORD)
        _log.info("Changed the password of account %d", member.account.id)
        return await self._renew_session(member)

    async def _check_own_password(self, member: Member, password: str) -> str:
        """Return the stored hash of the password. Raises Problem: wrong_credentials, too_many_attempts."""
        self.passwords.require_capacity()
        subject = _hash_subject("account", member.account.email)
        now = int(self.clock())
        counts = await self.store.count_attempt([subject], now, now - _ATTEMPTS_SECONDS)
        if counts[0] > _MAX_ATTEMPTS_PER_ACCOUNT:
            raise _too_many_attempts()
        _, hashed = await self._check_password(member.account, password, _WRONG_PASSWORD)
        await self.store.clear_attempts(subject, subject)
        return hashed

    async def _check_password(
        self, account: Account | None, password: str, message: str = _WRONG_CREDENTIALS
    ) -> tuple[Account, str]:
        """Return the account and its stored hash.

        Raises Problem("wrong_credentials") after the same time, whether the account or the password is wrong.
        """
        stored = await self.store.get_password(account.id if account is not None else 0)
        check = await self.passwords.verify(stored, password)
        if account is None or stored is None or not check.is_correct:
            subject = "an unknown email" if account is None else f"account {account.id}"  # both log for equal timing
            _log.warning("Wrong password for %s", subject)
            raise Problem("wrong_credentials", message)
        if check.new_hash is not None:
            await self.store.replace_password(account.id, stored, check.new_hash)
        return account, check.new_hash or stored

    # Invitations

    async def invite(self, reference: str) -> str:
        """Return a token with which the owner can set a password once, within 7 days. Earlier tokens become invalid.

        Raises Problem: account_not_found, account_disabled.
        """
        account = await self.find_account(reference)
        require_not_erased(account)
        if account.disabled_at is not None:
            advice = f"enable it with `listings account enable {account.id}`"
            raise Problem("account_disabled", f"{account.email} is disabled and can't be invited: {advice}")
        token = secrets.token_urlsafe(32)
        now = int(self.clock())
        await self.store.add_invitation(account.id, _digest(token), now, now + INVITATION_SECONDS)
        _log.info("Invited the owner of account %d", account.id)
        return token

    async def find_invitation(self, token: str) -> Account:
        """Return the account of an invitation. Raises Problem("invitation_invalid")."""
        account = None
        if _TOKEN.fullmatch(token):
            account = await self.store.find_invitation(_digest(token), int(self.clock()))
        if account is None or account.disabled_at is not None:
            raise _invalid_invitation()
        return account

    async def accept_invitation(self, token: str, password: str, agent: str = "") -> str:
        """Set the password and sign in. Returns the session token.

        Raises Problem: invitation_invalid, invalid_request.
        """
        account = await self.find_invitation(token)
        validate_password(password, account.name, account.email)
        hashed = await self.passwords.hash(password)
        accepted = await self.store.accept_invitation(_digest(token), hashed, int(self.clock()))
        if accepted is None:
            raise _invalid_invitation()
        _log.info("Account %d accepted its invitation", accepted.id)
        return await self._create_session(accepted, hashed, agent)

    # API keys

    async def create_key(
        self, member: Member, name: str, expires_at: int | None = None, form_id: str = ""
    ) -> IssuedKey:
        """Create a key for the member's account, which needs an active plan.

        `form_id` prevents a form that is sent twice from creating two keys.

        Raises Problem: confirmation_required (the password was confirmed more than 15 minutes ago), plan_expired,
        too_many_keys, invalid_request, idempotency_key_reused (the form was already used).
        """
        await self._require_key_allowed(member)
        name = validate_name(name)
        require_future(expires_at, self.clock())
        active = [key for key in await self.list_keys(member.account) if not self.is_key_revoked_or_expired(key)]
        if len(active) >= _MAX_KEYS:
            raise Problem("too_many_keys", f"An account can have at most {_MAX_KEYS} active keys: revoke one first")
        await self._use_form(member, form_id)
        return await self.add_key(member.account, name, api_keys.generate(), expires_at, CONSOLE)

    async def rotate_own_key(self, member: Member, key_id: int, grace_seconds: int, form_id: str = "") -> IssuedKey:
        """Replace a key of the account with a new one. The old key expires `grace_seconds` from now.

        `form_id` is as for `create_key`. Raises Problem: confirmation_required, plan_expired, key_not_found, key_ended,
        invalid_request, idempotency_key_reused.
        """
        await self._require_key_allowed(member)
        if not 0 <= grace_seconds <= _MAX_GRACE_SECONDS:
            raise Problem("invalid_request", "The old key may stay valid for at most a year")
        key = await self._find_own_key(member, key_id)
        await self._use_form(member, form_id)
        if self.is_key_revoked_or_expired(key):
            raise Problem("key_ended", "This key is revoked or has expired: create a new one")
        return await self.rotate_key(key_id, grace_seconds, CONSOLE)

    async def revoke_own_key(self, member: Member, key_id: int) -> ApiKey:
        """Revoke a key of the account permanently. Raises Problem("key_not_found")."""
        await self._find_own_key(member, key_id)
        return await self.revoke_key(key_id, CONSOLE)

    def is_confirmed(self, member: Member) -> bool:
        """Return whether the password was confirmed in the last 15 minutes."""
        return -_MAX_CLOCK_SKEW_SECONDS <= self.clock() - member.confirmed_at < CONFIRMATION_SECONDS

    async def _require_key_allowed(self, member: Member) -> None:
        if not is_plan_active(member.account.plan_expires_at, self.clock()):
            raise Problem("plan_expired", "You need an active Business plan to create a key: renew your plan first")
        if not self.is_confirmed(member):
            raise Problem("confirmation_required", "Enter your password again to create a key")

    async def _use_form(self, member: Member, form_id: str) -> None:
        """Mark a form as used. Raises Problem("idempotency_key_reused") if it already was."""
        if not form_id:
            return
        now = int(self.clock())
        record = IdempotencyRecord(f"console key {form_id}", _digest(form_id), now, now - IDEMPOTENCY_SECONDS + 1)
        empty = Batch((), atomic=False, dry_run=False, record=str)
        partition = bucket_of(member.account.id), member.account.id
        if isinstance(await self.store.run_batch(*partition, empty, record), str):
            message = "This form has already created its key: for security, the key can't be shown again"
            raise Problem("idempotency_key_reused", message)

    async def _find_own_key(self, member: Member, key_id: int) -> ApiKey:
        for key in await self.list_keys(member.account):
            if key.id == key_id:
                return key
        raise Problem("key_not_found", f"You have no key with the id {key_id}")

    # Erasing an account

    async def erase_account(self, reference: str) -> Account:
        """Delete all listings of an account, and erase its personal data permanently.

        `listings account erase --help` lists the remaining data. Erasing an erased account changes nothing.

        Raises Problem("account_not_found").
        """
        account = await self.find_account(reference)
        if is_erased(account):
            return account
        account = await self.disable_account(str(account.id))
        await self._delete_listings(account)
        name = f"Erased account {account.id}"
        await self.store.erase_account(account.id, name, build_erased_email(account.id), int(self.clock()))
        _log.info("Erased account %d", account.id)
        return await self.find_account(str(account.id))

    async def _delete_listings(self, account: Account) -> None:
        """Delete the listings in batches. No actor is passed, because the erasure deletes the audit events anyway."""
        partition = (bucket_of(account.id), account.id)
        now = int(self.clock())
        after = 0
        while page := await self.store.page_listings(*partition, after, _DELETE_BATCH_SIZE):
            after = page[-1].id
            steps = [ChangeStep(listing.id, _build_deletion(now)) for listing in page if listing.deleted_at is None]
            if steps:
                await self.store.run_batch(*partition, Batch(steps, atomic=False, dry_run=False, record=str))

    # Helpers

    async def _find_session(self, token: str) -> tuple[Session, Account] | None:
        return await self.store.find_session(_digest(token)) if _TOKEN.fullmatch(token) else None

    async def _create_session(self, account: Account, hashed: str, agent: str) -> str:
        """Create a session and return its token.

        `hashed` is the checked hash. Raises Problem("wrong_credentials") if the password was changed since the check.
        """
        token = secrets.token_urlsafe(32)
        new = NewSession(
            digest=_digest(token),
            handle=secrets.token_hex(8),
            csrf_secret=secrets.token_urlsafe(32),
            created_at=int(self.clock()),
            agent=_clean_agent(agent),
        )
        if not await self.store.add_session(account.id, new, hashed):
            raise Problem("wrong_credentials", _WRONG_CREDENTIALS)
        _log.info("Account %d signed in", account.id)
        return token

    async def _renew_session(self, member: Member) -> str:
        token = secrets.token_urlsafe(32)
        await self.store.confirm_session(member.account.id, member.session, _digest(token), int(self.clock()))
        return token

    def _console(self) -> Actor:
        return Actor(CONSOLE, int(self.clock()))


def _build_deletion(now: int) -> Callable[[Listing | None], ListingChange]:
    def decide(listing: Listing | None) -> ListingChange:
        if listing is None or listing.deleted_at is not None:
            return {}
        return find_changes(listing, {"is_active": False, "deleted_at": now}, timestamps.format_timestamp(now))

    return decide


def _compute_oldest(now: int) -> SessionCutoffs:
    return SessionCutoffs(seen_at=now - SESSION_IDLE_SECONDS + 1, created_at=now - MAX_SESSION_SECONDS + 1)


def _is_expired(session: Session, now: int) -> bool:
    oldest, latest = _compute_oldest(now), now + _MAX_CLOCK_SKEW_SECONDS
    return not (oldest.seen_at <= session.seen_at <= latest and oldest.created_at <= session.created_at <= latest)


def _digest(token: str) -> bytes:
    return sha256(token.encode("ascii", "replace")).digest()


def _hash_subject(kind: str, text: str) -> bytes:
    """Return the hash by which sign-in attempts are counted, so that the database stores no IP addresses."""
    return sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()


def _find_network(address: str) -> str:
    """Return the addresses that one client may have: an IPv4 address or an IPv6 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_LENGTH), strict=False))


def _clean_agent(agent: str) -> str:
    return "".join(character for character in agent if character.isprintable())[:_MAX_AGENT_LENGTH]


def _too_many_attempts() -> Problem:
    return Problem("too_many_attempts", "Too many attempts: wait 15 minutes, then try again")


def _invalid_invitation() -> Problem:
    return Problem("invitation_invalid", "This invitation was used or has expired: ask the operator for a new one")
