"""What the scripts on listings need from SQLite, whose write transactions lock the whole database."""

from collections.abc import Sequence
from typing import Final

from listings.domain.model import Listing
from listings.store import sql
from listings.store.mapping import Partition
from listings.store.scripts.engine import ListingText
from listings.store.scripts.script import Query, Script
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sqlite.account_index import INDEXED, INDEXING, MARK_ACCOUNT
from listings.store.sqlite.search import index_words

_MAX_UNINDEXED = 2 * MIN_INDEXED_LISTINGS  # listings of an account; above it, new ones are indexed on creation


class SqliteEngine:
    """Implements `listings.store.scripts.engine.Engine`. Large accounts are indexed later, by `account_index`."""

    def lock_counter(self, bucket: int) -> Script[None]:  # everything is locked
        yield from ()

    def lock_listings(self, partition: Partition, ids: Sequence[int]) -> Script[dict[int, Listing]]:  # as above
        yield from ()
        return {}

    def prepare_account(self, partition: Partition, new_listings: int) -> Script[bool]:  # indexed later
        rows = yield Query(sql.IS_INDEXED, partition)
        return bool(rows and rows[0][0])  # partly, too: an index step may have passed the listing's id

    def is_indexed_on_create(self, indexed: int, count: int) -> bool:
        """Only valid for a listing with the account's highest id, which a running cursor has not passed yet.

        An imported listing may have a lower one.
        """
        return indexed == INDEXED or (indexed == INDEXING and count > _MAX_UNINDEXED)

    def start_indexing(self, partition: Partition) -> Script[None]:
        yield Query(MARK_ACCOUNT, (*partition, INDEXING))

    def index_words(self, account_id: int, texts: Sequence[ListingText]) -> Script[None]:
        return index_words(account_id, texts)


ENGINE: Final = SqliteEngine()
