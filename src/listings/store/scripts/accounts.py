"""`AccountStore`, implemented with scripts that every engine can run."""

from collections.abc import Callable

from listings.contract.accounts import AccountChange, PlanRequest
from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.accounts import require_not_erased
from listings.domain.model import Account, bucket_of
from listings.store import mail_queue, member_sql, own_account, sql
from listings.store.inspection import LIST_PLAN_REQUESTS
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script, ScriptedStore, caller_transaction, transaction


class ScriptedAccountStore(ScriptedStore):
    """Implements `AccountStore`."""

    @transaction
    def add_account(
        self, name: str, email: str, plan_expires_at: int | None, created_at: int
    ) -> Script[Account | None]:
        return add(name, email, plan_expires_at, created_at)

    async def get_account(self, account_id: int) -> Account | None:
        return await self._find(Account, sql.GET_ACCOUNT, account_id)

    async def find_account(self, email: str) -> Account | None:
        return await self._find(Account, sql.FIND_ACCOUNT, email)

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        return [Account(*row) for row in await self._fetch(sql.PAGE_ACCOUNTS, after, count)]

    @caller_transaction
    def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Script[Account | None]:
        rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        if not rows:
            return None
        account = Account(*rows[0])
        changes = decide(account)
        if not changes:
            return account
        rows = yield Query(sql.build_account_update(tuple(changes)), (account_id, *changes.values()))
        if "disabled_at" in changes and changes["disabled_at"] is None:
            yield Query(own_account.DELETE_CLOSED_ACCOUNT, (account_id,))
        if actor is not None and _is_extended(account, changes, actor.moment):
            yield Query(member_sql.DELETE_PLAN_REQUEST, (account_id,))
        if actor is not None:
            yield from record_event(account_id, actor, "account_changed", detail=changes)
        return Account(*rows[0])

    @transaction
    def add_plan_request(self, account_id: int, requested_at: int, mail: NewMail | None = None) -> Script[bool]:
        if not (yield Query(member_sql.ADD_PLAN_REQUEST, (account_id, requested_at))):
            return False
        yield from mail_queue.add(mail)
        return True

    async def get_plan_request(self, account_id: int) -> int | None:
        return await self._find(int, member_sql.GET_PLAN_REQUEST, account_id)

    async def delete_plan_request(self, account_id: int) -> None:
        await self._write(member_sql.DELETE_PLAN_REQUEST, account_id)

    async def list_plan_requests(self) -> list[PlanRequest]:
        return [PlanRequest(Account(*row[1:]), row[0]) for row in await self._fetch(LIST_PLAN_REQUESTS)]


def add(name: str, email: str, plan_expires_at: int | None, created_at: int) -> Script[Account | None]:
    """Store an account with the state row that its listings refer to. Return None if the email address is taken."""
    rows = yield Query(sql.ADD_ACCOUNT, (name, email, plan_expires_at, created_at))
    if not rows:
        return None
    account = Account(*rows[0])
    bucket = bucket_of(account.id)
    yield Query(sql.SET_BUCKET, (bucket, account.id))
    yield Query(sql.ADD_ACCOUNT_STATE, (bucket, account.id))
    return account


def lock_not_erased(account_id: int) -> Script[None]:
    """Lock an account, so that it is not erased meanwhile. Raises Problem("account_disabled") if it is erased."""
    rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
    if rows:
        require_not_erased(Account(*rows[0]))


def _is_extended(account: Account, changes: AccountChange, now: int) -> bool:
    end = changes.get("plan_expires_at")
    return isinstance(end, int) and end > max(now, account.plan_expires_at or 0)
