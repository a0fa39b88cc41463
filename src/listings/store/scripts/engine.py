"""The operations of an engine that scripts on listings use, apart from running their statements."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.history import Actor, EventKind
from listings.domain.model import Listing
from listings.store.mapping import Partition
from listings.store.scripts.script import Transaction

ListingText: TypeAlias = tuple[int, str, str]
"""A listing's id, title and content."""


class SingleEdit(NamedTuple):
    """The edit of one listing, to be recorded as a change set, which is also its audit event."""

    actor: Actor
    kind: EventKind
    listing_id: int
    fields: str
    detail: str


class Engine(Protocol):
    """Locks rows and indexes the words of large accounts, each in the engine's own way.

    Locks are always acquired in the same order: the account's row, the bucket's counter, the listings by id, the
    account's state.
    """

    limits: AccountLimits

    async def lock_counter(self, tx: Transaction, bucket: int) -> None:
        """Lock the bucket's counter until the end of the transaction."""

    async def lock_and_read_listings(
        self, tx: Transaction, partition: Partition, ids: Sequence[int], external_ids: Sequence[str] = ()
    ) -> dict[int, Listing]:
        """Lock the account's listings with these ids or external ids, and return them by id.

        Large ones may be missing, because all are in memory together. The script then reads them itself.
        """

    async def lock_listings(self, tx: Transaction, partition: Partition, ids: Sequence[int]) -> None:
        """Lock the account's listings with these ids."""

    async def prepare_account(self, tx: Transaction, partition: Partition, new_listings: int) -> bool:
        """Prepare for new listings, while the counter is locked. Return whether listings of the account are indexed."""

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        """Return whether a new listing is indexed in the transaction that creates it.

        `indexed` and `count` are the account's `indexed` column and its number of listings.
        """

    async def start_indexing(self, tx: Transaction, partition: Partition) -> None:
        """Index the listings of an account that has become large, or mark it for that."""

    async def index_words(self, tx: Transaction, account_id: int, texts: Sequence[ListingText]) -> None:
        """Replace the words of listings in the index."""

    async def remove_words(self, tx: Transaction, bucket: int, ids: Sequence[int]) -> None:
        """Remove the words of listings of a bucket from the index, if it has them."""

    async def record_edit(self, tx: Transaction, partition: Partition, growth: AccountSize, edit: SingleEdit) -> None:
        """Finish the edit of one listing: raise the account's revisions, and store the change."""
