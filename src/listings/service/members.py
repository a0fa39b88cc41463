"""Members: who signs up and in, their sessions, passwords, invitations and keys."""

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
from listings.domain import timestamps
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account, ApiKey, Caller, Listing, ListingChange, bucket_of, is_current
from listings.service.accounts import (
    Accounts,
    IssuedKey,
    checked_email,
    checked_name,
    erased_email,
    is_erased,
    require_future,
    require_kept,
)
from listings.service.listings import CLAIM_SECONDS, difference
from listings.service.passwords import Passwords, require_good

_log = logging.getLogger(__name__)

IDLE_SECONDS = 7 * 24 * 3600
LONGEST_SECONDS = 30 * 24 * 3600
CONFIRMED_SECONDS = 15 * 60
INVITATION_SECONDS = 7 * 24 * 3600
_SEEN_SECONDS = 60
_AHEAD_SECONDS = 5 * 60  # by which another machine's clock may be; what is of a later time was kept by a wrong one
_ATTEMPTS_SECONDS = 15 * 60
_WRONG_CREDENTIALS = "The e-mail address or the password is wrong"
_WRONG_PASSWORD = "The password is wrong"  # noqa: S105 - a sentence
_MOST_OF_ACCOUNT = 10
_MOST_OF_ADDRESS = 30
_MOST_SIGN_UPS = 10
_MOST_KEYS = 20
_LONGEST_AGENT = 200
_LONGEST_GRACE = 365 * 24 * 3600
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_CLOSED_AT_ONCE = 100
_V6_NETWORK = 64  # bits that one customer of a provider has


class Member(msgspec.Struct, frozen=True):
    """Who uses the console: an account by one of its sessions. Times are seconds since 1970.

    `session` is the handle by which the account's owner may end it.
    """

    account: Account
    session: str
    signed_in_at: int
    confirmed_at: int
    csrf_secret: str

    @property
    def caller(self) -> Caller:
        """The member as the use cases of listings know callers; what it does is told as the console's."""
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
    """The use cases of the console's members, over a store and a clock."""

    store: Store
    clock: Callable[[], float]
    sign_up_open: bool
    passwords: Passwords

    # In and out

    async def sign_up(self, name: str, email: str, password: str, address: str, agent: str = "") -> str:
        """Open an account without a plan, and a session; returns its token.

        `address` is the client's. Raises Problem: sign_up_closed, invalid_request, too_many_attempts, email_taken.
        """
        if not self.sign_up_open:
            raise Problem("sign_up_closed", "Sign-up is closed: ask the operator for an account")
        name, email = checked_name(name), checked_email(email)
        require_good(password, name, email)
        now = int(self.clock())
        counts = await self.store.count_attempt(
            [_subject("sign-up", _network_of(address))], now, now - _ATTEMPTS_SECONDS
        )
        if counts[0] > _MOST_SIGN_UPS:
            raise _too_many()
        hashed = await self.passwords.hash(password)
        account = await self.store.add_member(name, email, hashed, now)
        if account is None:
            raise Problem("email_taken", "There is an account with this e-mail address already: sign in to it")
        _log.info("Account %d is opened by sign-up", account.id)
        return await self._begin_session(account, hashed, agent)

    async def sign_in(self, email: str, password: str, address: str, agent: str = "") -> str:
        """Begin a session; returns its token, which is told this once.

        Raises Problem: wrong_credentials (which of the two is wrong, or whether there is such an account, shows neither
        in the text nor in the time), too_many_attempts, account_disabled; Unavailable when too many try at once.
        """
        self.passwords.require_room()  # who isn't judged for lack of it has not tried
        email = email.strip().lower()
        of_account, of_address = _subject("account", email), _subject("address", _network_of(address))
        now = int(self.clock())
        counts = await self.store.count_attempt([of_account, of_address], now, now - _ATTEMPTS_SECONDS)
        if counts[0] > _MOST_OF_ACCOUNT or counts[1] > _MOST_OF_ADDRESS:
            _log.warning("Too many attempts to sign in")
            raise _too_many()
        found = await self.store.find_account(email) if email.isprintable() else None
        account, hashed = await self._require_password(found, password)
        await self.store.clear_attempts(of_account, of_address)
        if account.disabled_at is not None:
            raise Problem("account_disabled", "This account is disabled: ask the operator")
        return await self._begin_session(account, hashed, agent)

    async def session_of(self, token: str) -> Member | None:
        """The member of a token; None when it is unknown, ended, idle for 7 days or 30 days old."""
        found = await self._find_session(token)
        if found is None:
            return None
        session, account = found
        now = int(self.clock())
        if account.disabled_at is not None or _is_over(session, now):
            return None
        if now - session.seen_at >= _SEEN_SECONDS:
            with suppress(Unavailable):
                await self.store.touch_session(account.id, session.handle, now)
        return Member(account, session.handle, session.created_at, session.confirmed_at, session.csrf_secret)

    async def sign_out(self, token: str) -> None:
        """End the session of a token, if there is one."""
        found = await self._find_session(token)
        if found is not None:
            session, account = found
            await self._end(account, session.handle)

    async def list_sessions(self, member: Member) -> list[Session]:
        """The sessions of the member's account that are not over, the latest first."""
        now = int(self.clock())
        return [session for session in await self.store.list_sessions(member.account.id) if not _is_over(session, now)]

    async def end_session(self, member: Member, handle: str) -> bool:
        """End a session of the member's account; False when there is none of this handle."""
        return await self._end(member.account, handle)

    async def _end(self, account: Account, handle: str) -> bool:
        ended = await self.store.end_session(account.id, handle, self._console())
        if ended:
            _log.info("A session of account %d is ended", account.id)
        return ended

    async def end_other_sessions(self, member: Member) -> int:
        """End all sessions of the account but the member's own; returns how many."""
        count = await self.store.end_sessions(member.account.id, member.session)
        _log.info("%d other sessions of account %d are ended", count, member.account.id)
        return count

    async def purge_sessions(self) -> None:
        """Remove the sessions that are over, and attempts that count no more."""
        now = int(self.clock())
        with suppress(Unavailable):
            await self.store.purge_sessions(_oldest(now))
            await self.store.purge_attempts(now - _ATTEMPTS_SECONDS, now)

    # Passwords

    async def confirm_password(self, member: Member, password: str) -> str:
        """Note that the password was given again; returns the session's new token, which takes the old one's place.

        Raises Problem: wrong_credentials, too_many_attempts.
        """
        await self._require_again(member, password)
        return await self._renew(member)

    async def change_password(self, member: Member, old: str, new: str) -> str:
        """Set another password and end all other sessions; returns the session's new token.

        Raises Problem: wrong_credentials, too_many_attempts, invalid_request.
        """
        require_good(new, member.account.name, member.account.email)
        stored = await self._require_again(member, old)
        hashed = await self.passwords.hash(new)
        if not await self.store.set_password(member.account.id, stored, hashed, self._console(), member.session):
            raise Problem("wrong_credentials", _WRONG_PASSWORD)
        _log.info("The password of account %d is changed", member.account.id)
        return await self._renew(member)

    async def _require_again(self, member: Member, password: str) -> str:
        """The hash that it was found to be."""
        self.passwords.require_room()
        subject = _subject("account", member.account.email)
        now = int(self.clock())
        counts = await self.store.count_attempt([subject], now, now - _ATTEMPTS_SECONDS)
        if counts[0] > _MOST_OF_ACCOUNT:
            raise _too_many()
        _, hashed = await self._require_password(member.account, password, _WRONG_PASSWORD)
        await self.store.clear_attempts(subject, subject)
        return hashed

    async def _require_password(
        self, account: Account | None, password: str, told: str = _WRONG_CREDENTIALS
    ) -> tuple[Account, str]:
        """The account itself and the hash that it has.

        Raises Problem("wrong_credentials"), in the same time whatever it is that is wrong.
        """
        stored = await self.store.get_password(account.id if account is not None else 0)
        checked = await self.passwords.check(stored, password)
        if account is None or stored is None or not checked.is_right:
            whose = "no account" if account is None else f"account {account.id}"  # both take the time of a line
            _log.warning("A wrong password was given for %s", whose)
            raise Problem("wrong_credentials", told)
        if checked.better is not None:
            await self.store.replace_password(account.id, stored, checked.better)
        return account, checked.better or stored

    # Invitations

    async def invite(self, reference: str) -> str:
        """A token by which the account's owner may set a password within 7 days, once; earlier ones are void.

        Raises Problem: account_not_found, account_disabled.
        """
        account = await self.find_account(reference)
        require_kept(account)
        if account.disabled_at is not None:
            again = f"enable it with `listings account enable {account.id}`"
            raise Problem("account_disabled", f"{account.email} is disabled and can't be invited: {again}")
        token = secrets.token_urlsafe(32)
        now = int(self.clock())
        await self.store.add_invitation(account.id, _digest(token), now, now + INVITATION_SECONDS)
        _log.info("The owner of account %d is invited", account.id)
        return token

    async def find_invitation(self, token: str) -> Account:
        """Whom an invitation is for. Raises Problem("invitation_invalid")."""
        account = None
        if _TOKEN.fullmatch(token):
            account = await self.store.find_invitation(_digest(token), int(self.clock()))
        if account is None or account.disabled_at is not None:
            raise _no_invitation()
        return account

    async def accept_invitation(self, token: str, password: str, agent: str = "") -> str:
        """Set the password and begin a session; returns its token.

        Raises Problem: invitation_invalid, invalid_request.
        """
        account = await self.find_invitation(token)
        require_good(password, account.name, account.email)
        hashed = await self.passwords.hash(password)
        taken = await self.store.accept_invitation(_digest(token), hashed, int(self.clock()))
        if taken is None:
            raise _no_invitation()
        _log.info("The invitation of account %d is accepted", taken.id)
        return await self._begin_session(taken, hashed, agent)

    # Keys

    async def create_key(self, member: Member, name: str, expires_at: int | None = None, once: str = "") -> IssuedKey:
        """Make a key for the member's account, which has a current plan.

        `once` names the form that asks for it, which makes one key. Raises Problem: confirmation_required (the
        password was given more than 15 minutes ago), plan_expired, too_many_keys, invalid_request,
        idempotency_key_reused (the form was sent before).
        """
        await self._require_key_right(member)
        name = checked_name(name)
        require_future(expires_at, self.clock())
        usable = [key for key in await self.list_keys(member.account) if not self.has_key_ended(key)]
        if len(usable) >= _MOST_KEYS:
            raise Problem("too_many_keys", f"An account has at most {_MOST_KEYS} usable keys: revoke one first")
        await self._take_form(member, once)
        return await self.make_key(member.account, name, expires_at, CONSOLE)

    async def rotate_own_key(self, member: Member, key_id: int, grace: int, once: str = "") -> IssuedKey:
        """Make a key in place of one of the account's, which ends `grace` seconds from now.

        `once` is as for `create_key`. Raises Problem: confirmation_required, plan_expired, key_not_found, key_ended,
        invalid_request, idempotency_key_reused.
        """
        await self._require_key_right(member)
        if not 0 <= grace <= _LONGEST_GRACE:
            raise Problem("invalid_request", "The old key goes on for at most a year")
        key = await self._own_key(member, key_id)
        await self._take_form(member, once)
        if self.has_key_ended(key):
            raise Problem("key_ended", "This key is revoked or has expired: make a new one")
        return await self.rotate_key(key_id, grace, CONSOLE)

    async def revoke_own_key(self, member: Member, key_id: int) -> ApiKey:
        """End a key of the account's at once and for good. Raises Problem("key_not_found")."""
        await self._own_key(member, key_id)
        return await self.revoke_key(key_id, CONSOLE)

    def is_confirmed(self, member: Member) -> bool:
        """Whether the password was given in the last 15 minutes."""
        return -_AHEAD_SECONDS <= self.clock() - member.confirmed_at < CONFIRMED_SECONDS

    async def _require_key_right(self, member: Member) -> None:
        if not is_current(member.account.plan_expires_at, self.clock()):
            raise Problem("plan_expired", "A key needs a current Business plan: renew it first")
        if not self.is_confirmed(member):
            raise Problem("confirmation_required", "Give your password once more to make a key")

    async def _take_form(self, member: Member, once: str) -> None:
        """Raises Problem("idempotency_key_reused") where a form was taken before."""
        if not once:
            return
        now = int(self.clock())
        idempotency = IdempotencyRecord(f"console key {once}", _digest(once), now, now - CLAIM_SECONDS + 1)
        nothing = Batch((), atomic=False, dry_run=False, record=str)
        place = bucket_of(member.account.id), member.account.id
        if isinstance(await self.store.run_batch(*place, nothing, idempotency), str):
            told = "This form was sent before and has made its key, which was shown then: it is among your keys"
            raise Problem("idempotency_key_reused", told)

    async def _own_key(self, member: Member, key_id: int) -> ApiKey:
        for key in await self.list_keys(member.account):
            if key.id == key_id:
                return key
        raise Problem("key_not_found", f"You have no key with the id {key_id}")

    # An account's end

    async def erase_account(self, reference: str) -> Account:
        """Close all listings of an account, and take everything else from it that is about a person.

        What is left is told in `listings account erase --help`. One that is erased stays as it is. Raises
        Problem("account_not_found").
        """
        account = await self.find_account(reference)
        if is_erased(account):
            return account
        account = await self.disable_account(str(account.id))
        await self._close_listings(account)
        name = f"Erased account {account.id}"
        await self.store.erase_account(account.id, name, erased_email(account.id), int(self.clock()))
        _log.info("Account %d is erased", account.id)
        return await self.find_account(str(account.id))

    async def _close_listings(self, account: Account) -> None:
        """A page at a time; without events, since those would be erased."""
        place = (bucket_of(account.id), account.id)
        moment = int(self.clock())
        after = 0
        while page := await self.store.page_listings(*place, after, _CLOSED_AT_ONCE):
            after = page[-1].id
            steps = [ChangeStep(it.id, _deletion(moment)) for it in page if it.deleted_at is None]
            if steps:
                await self.store.run_batch(*place, Batch(steps, atomic=False, dry_run=False, record=str))

    # Parts

    async def _find_session(self, token: str) -> tuple[Session, Account] | None:
        return await self.store.find_session(_digest(token)) if _TOKEN.fullmatch(token) else None

    async def _begin_session(self, account: Account, hashed: str, agent: str) -> str:
        """For who has given the password of a hash. Raises Problem("wrong_credentials") where it is another by now."""
        token = secrets.token_urlsafe(32)
        new = NewSession(
            digest=_digest(token),
            handle=secrets.token_hex(8),
            csrf_secret=secrets.token_urlsafe(32),
            created_at=int(self.clock()),
            agent=_shown_agent(agent),
        )
        if not await self.store.add_session(account.id, new, hashed):
            raise Problem("wrong_credentials", _WRONG_CREDENTIALS)
        _log.info("Account %d is signed in", account.id)
        return token

    async def _renew(self, member: Member) -> str:
        token = secrets.token_urlsafe(32)
        await self.store.confirm_session(member.account.id, member.session, _digest(token), int(self.clock()))
        return token

    def _console(self) -> Actor:
        return Actor(CONSOLE, int(self.clock()))


def _deletion(moment: int) -> Callable[[Listing | None], ListingChange]:
    def decide(listing: Listing | None) -> ListingChange:
        if listing is None or listing.deleted_at is not None:
            return {}
        return difference(listing, {"is_active": False, "deleted_at": moment}, timestamps.text_of(moment))

    return decide


def _oldest(now: int) -> SessionCutoffs:
    return SessionCutoffs(seen_at=now - IDLE_SECONDS + 1, created_at=now - LONGEST_SECONDS + 1)


def _is_over(session: Session, now: int) -> bool:
    oldest, latest = _oldest(now), now + _AHEAD_SECONDS
    return not (oldest.seen_at <= session.seen_at <= latest and oldest.created_at <= session.created_at <= latest)


def _digest(token: str) -> bytes:
    return sha256(token.encode("ascii", "replace")).digest()


def _subject(kind: str, text: str) -> bytes:
    """What attempts are counted by, without being told by the database."""
    return sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()


def _network_of(address: str) -> str:
    """What one client has: an IPv4 address, or a network of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _V6_NETWORK), strict=False))


def _shown_agent(agent: str) -> str:
    """The beginning of what a browser calls itself, as far as it can be shown."""
    return "".join(letter for letter in agent if letter.isprintable())[:_LONGEST_AGENT]


def _too_many() -> Problem:
    return Problem("too_many_attempts", "Too many attempts: wait 15 minutes, then try again")


def _no_invitation() -> Problem:
    return Problem("invitation_invalid", "This invitation was used or has expired: ask the operator for another one")
