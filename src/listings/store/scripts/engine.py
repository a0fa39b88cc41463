"""The operations of an engine that scripts on listings use, apart from running their statements."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from listings.contract.history import Actor, EventKind
from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.model import Listing
from listings.store.mapping import Partition
from listings.store.scripts.script import Script

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

    def lock_counter(self, bucket: int) -> Script[None]:
        """Lock the bucket's counter until the end of the transaction."""

    def lock_and_read_listings(
        self, partition: Partition, ids: Sequence[int], external_ids: Sequence[str] = ()
    ) -> Script[dict[int, Listing]]:
        """Lock the account's listings with these ids or external ids, and return them by id.

        An engine without row locks returns none, and none are returned if they are too large together. The script then
        reads them itself.
        """

    def lock_listings(self, partition: Partition, ids: Sequence[int]) -> Script[None]:
        """Lock the account's listings with these ids."""

    def prepare_account(self, partition: Partition, new_listings: int) -> Script[bool]:
        """Prepare for new listings, while the counter is locked. Return whether listings of the account are indexed."""

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        """Return whether a new listing is indexed in the transaction that creates it.

        `indexed` and `count` are the account's `indexed` column and its number of listings.
        """

    def start_indexing(self, partition: Partition) -> Script[None]:
        """Index the listings of an account that has become large, or mark it for that."""

    def index_words(self, account_id: int, texts: Sequence[ListingText]) -> Script[None]:
        """Replace the words of listings in the index."""

    def record_edit(self, partition: Partition, growth: AccountSize, edit: SingleEdit) -> Script[None]:
        """Finish the edit of one listing: raise the account's revisions, and store the change."""
