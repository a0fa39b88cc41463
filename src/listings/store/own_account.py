"""Changes that the owner of an account makes to it: statements, scripts and methods."""

from listings.domain.accounts import require_enabled
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE, Actor
from listings.domain.mail import NewMail
from listings.domain.model import Account
from listings.store import mail_queue, member_sql, sql
from listings.store.mapping import AccountRow
from listings.store.query import Command, Query
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, caller_transaction, transaction

ADD_TOKEN = Command("INSERT INTO email_tokens (account_id, digest, email, expires_at) VALUES ($1, $2, $3, $4)")
LOCK_TOKEN = Query[tuple[int]]("SELECT account_id FROM email_tokens WHERE digest = $1")
FIND_TOKEN = Query[tuple[str, *AccountRow]](f"""
SELECT t.email, {member_sql.QUALIFIED_ACCOUNT_COLUMNS}
FROM email_tokens t JOIN accounts a ON a.id = t.account_id
WHERE t.digest = $1 AND t.expires_at > $2
""")
DELETE_EXPIRED_TOKENS = Command("DELETE FROM email_tokens WHERE account_id = $1 AND expires_at <= $2")
DELETE_TOKENS = Command("DELETE FROM email_tokens WHERE account_id = $1")
SET_CONFIRMED_EMAIL = Command("""
INSERT INTO confirmed_emails (account_id, email, confirmed_at) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET email = excluded.email, confirmed_at = excluded.confirmed_at
""")
GET_CONFIRMED_EMAIL = Query[tuple[str]]("SELECT email FROM confirmed_emails WHERE account_id = $1")
GET_CONFIRMATION_TIME = Query[tuple[int]]("""
SELECT c.confirmed_at FROM confirmed_emails c JOIN accounts a ON a.id = c.account_id AND a.email = c.email
WHERE c.account_id = $1
""")


ADD_CLOSED_ACCOUNT = Command("""
INSERT INTO closed_accounts (account_id, closed_at) VALUES ($1, $2) ON CONFLICT (account_id) DO NOTHING
""")
DISABLE_ACCOUNT = Command("UPDATE accounts SET disabled_at = COALESCE(disabled_at, $2) WHERE id = $1")
LIST_CLOSED_ACCOUNTS = Query[tuple[int]]("SELECT account_id FROM closed_accounts ORDER BY account_id")
DELETE_CLOSED_ACCOUNT = Command("DELETE FROM closed_accounts WHERE account_id = $1")


class ScriptedOwnAccountStore(ScriptedStore):
    """Stores email addresses and closed accounts."""

    @transaction
    async def add_email_token(
        self, tx: Transaction, account_id: int, mail: NewMail, digest: bytes, now: int, expires_at: int
    ) -> bool:
        """Store the token of a queued email; it confirms the recipient's address. Delete the account's expired tokens.

        Return False and store nothing if the email is no longer queued.
        """
        # Every transaction that deletes all tokens of an account deletes its mail first.
        if not await tx.fetch(mail_queue.FIND_MAIL, (mail.id,), locks=True):
            return False
        await tx.fetch(DELETE_EXPIRED_TOKENS, (account_id, now))
        await tx.fetch(ADD_TOKEN, (account_id, digest, mail.recipient, expires_at))
        return True

    async def find_email_token(self, digest: bytes, now: int) -> tuple[Account, str] | None:
        """Return the account and the email address of a token, or None if it is unknown or has expired."""
        return await self._find(_build_token, FIND_TOKEN, digest, now)

    @transaction
    async def confirm_email(
        self, tx: Transaction, digest: bytes, now: int, notice: NewMail | None = None
    ) -> Account | None:
        """Set an account's email address to that of its token, mark it as confirmed, and delete its email tokens.

        The account's queued confirmations are deleted too. A changed address invalidates invitations and queues the
        notice. Return None and store nothing if the token is unknown or has expired, or another account has the
        address.

        Raises Problem("account_disabled") if the address would change and the account is disabled.
        """
        await tx.fetch(LOCK_TOKEN, (digest,), locks=True)  # setting a new password deletes the token
        found = await tx.find(_build_token, FIND_TOKEN, (digest, now))
        if found is None:
            return None
        account, email = found
        if email != account.email:
            changed = await _change(tx, account.id, email, Actor(CONSOLE, now))
            if changed is None:
                return None
            account = changed
            await mail_queue.add(tx, notice)
        await tx.fetch(mail_queue.DELETE_CONFIRMATIONS, (account.id,))
        await tx.fetch(DELETE_TOKENS, (account.id,))
        await tx.fetch(SET_CONFIRMED_EMAIL, (account.id, email, now))
        return account

    @transaction
    async def change_email(
        self, tx: Transaction, account_id: int, email: str, actor: Actor, password_hash: str | None = None
    ) -> Account | None:
        """Change the email address of an account without a confirmation. It invalidates invitations.

        The address must not be the current one. Return None and store nothing if another account has it.
        Raises Problem("account_disabled"), and Problem("wrong_credentials") if `password_hash` is not the current one.
        """
        # Like all transactions that lock both, lock the account before the password.
        await tx.fetch(sql.GET_ACCOUNT, (account_id,), locks=True)
        await _require_password(tx, account_id, password_hash)
        return await _change(tx, account_id, email, actor)

    @transaction
    async def queue_confirmation(self, tx: Transaction, account_id: int, mail: NewMail, password_hash: str) -> None:
        """Queue an email to an address, with a link that confirms it.

        Raises Problem("wrong_credentials") if `password_hash` is not the current one.
        """
        await _require_password(tx, account_id, password_hash)
        await mail_queue.add(tx, mail)

    async def get_confirmed_email(self, account_id: int) -> str | None:
        """Return the last email address that was confirmed, or None."""
        return await self._find(str, GET_CONFIRMED_EMAIL, account_id)

    async def get_confirmation_time(self, account_id: int) -> int | None:
        """Return the Unix time at which the present email address was confirmed, or None."""
        return await self._find(int, GET_CONFIRMATION_TIME, account_id)

    @caller_transaction
    async def close_account(self, tx: Transaction, account_id: int, now: int, password_hash: str | None = None) -> None:
        """Disable an account, end its sessions, and store that it is to be erased.

        Raises Problem("wrong_credentials") if `password_hash` is not the current one.
        """
        await tx.fetch(sql.GET_ACCOUNT, (account_id,), locks=True)
        await _require_password(tx, account_id, password_hash)
        await tx.fetch(DISABLE_ACCOUNT, (account_id, now))
        await tx.fetch(sql.SET_TEST_DISABLED, (account_id, now))
        await tx.fetch(member_sql.DELETE_SESSIONS, (account_id, ""))
        await tx.fetch(ADD_CLOSED_ACCOUNT, (account_id, now))

    async def list_closed_accounts(self) -> list[int]:
        """Return the ids of closed accounts that are not erased yet, in ascending order."""
        return await self._list(int, LIST_CLOSED_ACCOUNTS)


async def lock_enabled(tx: Transaction, account_id: int) -> None:
    """Lock an account, so that it is not erased meanwhile. Raises Problem("account_disabled")."""
    require_enabled(await tx.get(Account, sql.GET_ACCOUNT, (account_id,), locks=True))


async def _change(tx: Transaction, account_id: int, email: str, actor: Actor) -> Account | None:
    # Returns None if another account has the address.
    await lock_enabled(tx, account_id)
    if await tx.fetch(sql.FIND_ACCOUNT, (email,)):
        return None
    await tx.fetch(member_sql.DELETE_INVITATIONS, (account_id,))
    await record_event(tx, account_id, actor, "account_changed", detail={"email": email})
    return await tx.get(Account, sql.build_account_update(("email",)), (account_id, email))


async def _require_password(tx: Transaction, account_id: int, password_hash: str | None) -> None:
    # It stays locked until the transaction ends.
    if password_hash is not None and not await is_password(tx, account_id, password_hash):
        raise Problem("wrong_credentials", "The password was changed in the meantime")


async def is_password(tx: Transaction, account_id: int, password_hash: str) -> bool:
    """Return whether this is the stored hash, and lock it until the transaction ends."""
    return await tx.find(str, member_sql.GET_PASSWORD, (account_id,), locks=True) == password_hash


def _build_token(email: str, *account: *AccountRow) -> tuple[Account, str]:
    return Account(*account), email
