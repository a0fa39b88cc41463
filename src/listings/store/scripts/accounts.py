"""The methods of the store for accounts."""

from collections.abc import Callable

from listings.domain.account_limits import AccountLimits
from listings.domain.accounts import AccountChange, PlanRequest, PlanRequestState, require_not_erased
from listings.domain.errors import Problem
from listings.domain.history import Actor
from listings.domain.mail import ComposeMail, NewMail
from listings.domain.model import Account, bucket_of
from listings.store import mail_queue, member_sql, own_account, sql
from listings.store.inspection import LIST_PLAN_REQUESTS
from listings.store.mapping import AccountRow
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, caller_transaction, transaction


class ScriptedAccountStore(ScriptedStore):
    """Stores accounts."""

    @transaction
    async def add_account(
        self, tx: Transaction, name: str, email: str, plan_expires_at: int | None, created_at: int
    ) -> Account | None:
        """Store an account. Return None and store nothing if the email address is taken."""
        return await add(tx, name, email, plan_expires_at, created_at)

    async def get_account(self, account_id: int) -> Account | None:
        return await self._find(Account, sql.GET_ACCOUNT, account_id)

    async def find_account(self, email: str) -> Account | None:
        """Return the account with exactly this email address, or None if there is none."""
        return await self._find(Account, sql.FIND_ACCOUNT, email)

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        """Return at most `count` accounts with ids above `after`, lowest first."""
        return await self._list(Account, sql.PAGE_ACCOUNTS, after, count)

    @transaction
    async def add_test_account(
        self,
        tx: Transaction,
        live: Account,
        email: str,
        plan_expires_at: int | None,
        created_at: int,
        limits: AccountLimits,
    ) -> Account:
        """Return the test account of a live account. If there is none, store one with the email and the limits."""
        live = await tx.get(Account, sql.GET_ACCOUNT, (live.id,), locks=True)
        test = await tx.find(Account, sql.FIND_TEST_ACCOUNT, (live.id,))
        if test is not None:
            return test
        test = await add(tx, live.name, email, plan_expires_at, created_at)
        if test is None:
            raise Problem("email_taken", f"An account with the email {email} already exists")
        own = (limits.listings, limits.text_bytes, None)
        await tx.fetch(sql.SET_ACCOUNT_LIMITS, (bucket_of(test.id), test.id, *own))
        return await tx.get(Account, sql.SET_TEST_OF, (test.id, live.id, live.disabled_at))

    async def find_test_account(self, live_id: int) -> Account | None:
        return await self._find(Account, sql.FIND_TEST_ACCOUNT, live_id)

    async def list_idle_test_accounts(self, since: int) -> list[Account]:
        """Return the test accounts from before `since`, a Unix time, of which no key was used since then."""
        return await self._list(Account, sql.LIST_IDLE_TEST_ACCOUNTS, since)

    @caller_transaction
    async def change_account(
        self,
        tx: Transaction,
        account_id: int,
        decide: Callable[[Account], AccountChange],
        actor: Actor | None = None,
        on_plan: ComposeMail | None = None,
    ) -> Account | None:
        """Write the changes that the pure function `decide` returns for an account.

        Return the updated account, or None if it does not exist. If an actor is given, and the plan now ends later than
        before and in the future, the account's request for the plan is deleted, and the mail of `on_plan` is queued.
        Enabling a closed account cancels its erasure. Its test account is disabled and enabled with it.
        """
        account = await tx.find(Account, sql.GET_ACCOUNT, (account_id,), locks=True)
        if account is None:
            return None
        changes = decide(account)
        if not changes:
            return account
        update = sql.build_account_update(tuple(changes))
        changed = await tx.get(Account, update, (account_id, *changes.values()))
        if "disabled_at" in changes:
            await tx.fetch(sql.SET_TEST_DISABLED, (account_id, changes["disabled_at"]))
        if "disabled_at" in changes and changes["disabled_at"] is None:
            await tx.fetch(own_account.DELETE_CLOSED_ACCOUNT, (account_id,))
        end = changes.get("plan_expires_at")
        if actor is not None and isinstance(end, int) and end > max(actor.moment, account.plan_expires_at or 0):
            await tx.fetch(member_sql.DELETE_PLAN_REQUEST, (account_id,))
            await mail_queue.add(tx, None if on_plan is None else on_plan(changed))
        if actor is not None:
            await record_event(tx, account_id, actor, "account_changed", detail=changes)
        return changed

    @transaction
    async def add_plan_request(
        self, tx: Transaction, account_id: int, requested_at: int, mail: NewMail | None = None
    ) -> bool:
        """Store that an existing account requests the plan, and queue the mail.

        Return False and store nothing if the account already has an open request.
        """
        if not await tx.fetch(member_sql.ADD_PLAN_REQUEST, (account_id, requested_at)):
            return False
        await mail_queue.add(tx, mail)
        return True

    async def get_plan_request(self, account_id: int) -> PlanRequestState | None:
        """Return the account's last request for the plan, unless the plan was started or extended after it."""
        return await self._find(PlanRequestState, member_sql.GET_PLAN_REQUEST, account_id)

    @transaction
    async def decline_plan_request(
        self, tx: Transaction, account_id: int, reason: str, actor: Actor, mail: NewMail | None = None
    ) -> bool:
        """Answer the account's open request, and queue the mail. Return False if none is open."""
        if not await tx.fetch(member_sql.DECLINE_PLAN_REQUEST, (account_id, actor.moment, reason)):
            return False
        await record_event(tx, account_id, actor, "plan_declined", detail={"reason": reason})
        await mail_queue.add(tx, mail)
        return True

    async def list_plan_requests(self) -> list[PlanRequest]:
        """Return the open requests for the plan, oldest first."""
        return await self._list(_build_request, LIST_PLAN_REQUESTS)


def _build_request(requested_at: int, *account: *AccountRow) -> PlanRequest:
    return PlanRequest(Account(*account), requested_at)


async def add(tx: Transaction, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
    """Store an account with the state row that its listings refer to. Return None if the email address is taken."""
    account = await tx.find(Account, sql.ADD_ACCOUNT, (name, email, plan_expires_at, created_at))
    if account is None:
        return None
    bucket = bucket_of(account.id)
    await tx.fetch(sql.SET_BUCKET, (bucket, account.id))
    await tx.fetch(sql.ADD_ACCOUNT_STATE, (bucket, account.id))
    return account


async def lock_not_erased(tx: Transaction, account_id: int) -> None:
    """Lock an account, so that it is not erased meanwhile. Raises Problem("account_disabled") if it is erased."""
    account = await tx.find(Account, sql.GET_ACCOUNT, (account_id,), locks=True)
    if account is not None:
        require_not_erased(account)
