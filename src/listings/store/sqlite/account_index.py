"""Add the listings of a large account to its search indexes, in small steps that the writer runs.

The steps go through the account until all of its listings are indexed. Listings created meanwhile are left to the
steps, which reach them last: indexing one listing on its own costs several times as much as the rest of its write. In
a very large account they are indexed on creation, so that continuous writes can't outrun the steps.
"""

from typing import NamedTuple

from listings.domain.market import IndexResult
from listings.store.mapping import Partition
from listings.store.query import Command, Query
from listings.store.scripts.script import Transaction
from listings.store.sql import IS_INDEXED, build_page
from listings.store.sqlite.search import INDEXED, INDEXING, index_words

_MAX_STEP_CHARACTERS = 200_000  # of titles and contents
MARK_ACCOUNT = Command("UPDATE account_state SET indexed = $3 WHERE bucket = $1 AND account_id = $2")
NEXT_ACCOUNT = Query[Partition](f"""
SELECT bucket, account_id FROM account_state INDEXED BY account_state_indexing WHERE indexed = {INDEXING}
ORDER BY bucket, account_id LIMIT 1
""")
NEXT_LISTINGS = Query[tuple[int, bool]](build_page("id, indexed"))
_INDEX_LISTING = Query[tuple[str, str]](
    "UPDATE listings SET indexed = TRUE WHERE bucket = $1 AND id = $2 RETURNING title, content"
)


class IndexCursor(NamedTuple):
    """The position in an account's listings, ordered by id: those up to `after_id` are indexed."""

    partition: Partition
    after_id: int = 0


async def run_step(tx: Transaction, count: int, cursor: IndexCursor | None) -> tuple[IndexResult, IndexCursor | None]:
    """Index at most `count` listings from the cursor, or from the start of the next marked account.

    Returns the outcome and the next cursor, which is None if the account is finished or none is marked.
    """
    # Another process may have finished the account of the cursor.
    if cursor is None or await tx.get(int, IS_INDEXED, cursor.partition) != INDEXING:
        accounts = await tx.fetch(NEXT_ACCOUNT, ())
        if not accounts:
            return IndexResult(0), None
        cursor = IndexCursor(accounts[0])
    rows = await tx.fetch(NEXT_LISTINGS, (*cursor.partition, cursor.after_id, count))
    done, characters = 0, 0
    for listing_id, is_indexed in rows:
        if characters >= _MAX_STEP_CHARACTERS:
            break
        if not is_indexed:
            ((title, content),) = await tx.fetch(_INDEX_LISTING, (cursor.partition[0], listing_id))
            await index_words(tx, cursor.partition[1], [(listing_id, title, content)])
            characters += len(title) + len(content)
        cursor = cursor._replace(after_id=listing_id)
        done += 1
    if done < len(rows) or done == count:
        return IndexResult(done, has_more=True), cursor
    await tx.fetch(MARK_ACCOUNT, (*cursor.partition, INDEXED))
    return IndexResult(done, has_more=True), None
