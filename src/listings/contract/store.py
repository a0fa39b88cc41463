"""The contract between the services and the stores. `tests/contract` runs against every engine."""

from typing import Protocol

from listings.contract.accounts import AccountStore, KeyStore
from listings.contract.changes import ChangeStore
from listings.contract.history import HistoryStore, ReportStore
from listings.contract.imports import ImportStore
from listings.contract.listings import ListingStore
from listings.contract.mail import MailStore
from listings.contract.market import MarketStore
from listings.contract.members import AttemptStore, MemberStore
from listings.contract.own_account import OwnAccountStore
from listings.contract.reverts import RevertStore
from listings.contract.revisions import RevisionStore
from listings.contract.tasks import TaskStore


class Store(
    ListingStore,
    ChangeStore,
    RevertStore,
    ImportStore,
    MarketStore,
    AccountStore,
    KeyStore,
    MemberStore,
    AttemptStore,
    HistoryStore,
    MailStore,
    OwnAccountStore,
    TaskStore,
    ReportStore,
    RevisionStore,
    Protocol,
):
    """All stores of one database.

    Every method guarantees the following:

    - All its writes are one transaction, unless its docstring says otherwise. When it returns, they are durable. It may
      read more than one snapshot, unless its docstring promises one.
    - It may raise Unavailable. Errors of the database driver are never raised. The outcome of a write that raises
      Unavailable is unknown: it may or may not be stored.
    - Cancelling the caller does not roll back its write.
    - Each edit of a listing raises the account's revision by one, in the same transaction. All edits in a transaction
      of an import or a revert raise it once. Erasing an account removes external ids without raising it.
    - A write with an `actor` stores an audit event in the same transaction: one for a batch, and one for a whole import
      or revert. If it changes listings, it also stores a change set: one for a batch, and one for each transaction of
      an import or a revert. Without an actor, only a sign-up, a sign-in, an accepted invitation, a confirmed new
      email address and a payment store an event.
    """

    async def open(self) -> None:
        """Connect. Raises Problem("database_missing") or Problem("schema_mismatch")."""

    async def close(self) -> None:
        """Finish the queued writes, then disconnect. Later writes raise Unavailable."""

    async def check(self) -> None:
        """Raise Problem if the database doesn't respond, has another version of the schema, or would reject writes."""

    async def list_unavailable_nodes(self) -> list[str]:
        """Return the addresses of unavailable nodes of the database, whose part of the data is unavailable too."""

    async def get_database_id(self) -> str:
        """Return the database's id: 32 random hexadecimal digits. Rate limits and exports refer to it."""
