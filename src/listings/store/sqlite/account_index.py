"""Add the listings of a large account to its search indexes, in small steps that the writer runs.

The steps go through the account until all of its listings are indexed. Listings created meanwhile are left to the
steps, which reach them last: indexing one listing on its own costs several times as much as the rest of its write. In
a very large account they are indexed on creation, so that continuous writes can't outrun the steps.
"""

from functools import partial
from typing import NamedTuple

from apsw import Connection

from listings.contract.listings import IndexStep
from listings.store.mapping import Partition
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sql import IS_INDEXED
from listings.store.sqlite.rows import Read, execute, execute_one
from listings.store.sqlite.search import index_words

_INDEXING, _INDEXED = 2, 1  # values of account_state.indexed
_MAX_UNINDEXED = 2 * MIN_INDEXED_LISTINGS  # listings of an account; above it, new ones are indexed on creation
_MAX_STEP_CHARACTERS = 200_000  # of titles and contents
_MARK_ACCOUNT = "UPDATE account_state SET indexed = $3 WHERE bucket = $1 AND account_id = $2"
NEXT_ACCOUNT = """
SELECT bucket, account_id FROM account_state INDEXED BY account_state_indexing WHERE indexed = 2
ORDER BY bucket, account_id LIMIT 1
"""
NEXT_LISTINGS = """
SELECT id, indexed FROM listings
WHERE bucket = $1 AND account_id = $2 AND id > $3 AND is_active AND deleted_at IS NULL
UNION ALL
SELECT id, indexed FROM listings
WHERE bucket = $1 AND account_id = $2 AND id > $3 AND NOT (is_active AND deleted_at IS NULL)
ORDER BY id LIMIT $4
"""
_INDEX_LISTING = "UPDATE listings SET indexed = TRUE WHERE bucket = $1 AND id = $2 RETURNING title, content"


class IndexCursor(NamedTuple):
    """The position in an account's listings, ordered by id: those up to `after_id` are indexed."""

    partition: Partition
    after_id: int = 0


def start_indexing(connection: Connection, partition: Partition) -> None:
    """Mark an account that has become large for indexing."""
    execute(connection, _MARK_ACCOUNT, (*partition, _INDEXING))


def is_indexed_on_create(indexed: int, count: int) -> bool:
    """Return whether a new listing is indexed in the transaction that creates it.

    `indexed` and `count` are the account's `indexed` column and its number of listings. Only valid for a listing with
    the account's highest id, which a running cursor has not passed yet. An imported listing may have a lower one.
    """
    return indexed == _INDEXED or (indexed == _INDEXING and count > _MAX_UNINDEXED)


def find_next(read: Read) -> IndexCursor | None:
    """Return a cursor at the start of an account that is marked for indexing, or None if there is none."""
    return next((IndexCursor((bucket, account_id)) for bucket, account_id in read(NEXT_ACCOUNT, ())), None)


def run_step(connection: Connection, count: int, cursor: IndexCursor | None) -> tuple[IndexStep, IndexCursor | None]:
    """Index at most `count` listings from the cursor, or from the start of the next marked account.

    Returns the outcome and the next cursor, which is None if the account is finished or none is marked.
    """
    # Another process may have finished the account of the cursor.
    if cursor is None or execute_one(connection, IS_INDEXED, cursor.partition)[0] != _INDEXING:
        cursor = find_next(partial(execute, connection))
    if cursor is None:
        return IndexStep(0), None
    rows = execute(connection, NEXT_LISTINGS, (*cursor.partition, cursor.after_id, count))
    done, characters = 0, 0
    for listing_id, is_indexed in rows:
        if characters >= _MAX_STEP_CHARACTERS:
            break
        if not is_indexed:
            characters += _index(connection, cursor.partition, listing_id)
        cursor = cursor._replace(after_id=listing_id)
        done += 1
    if done < len(rows) or done == count:
        return IndexStep(done, left=True), cursor
    execute(connection, _MARK_ACCOUNT, (*cursor.partition, _INDEXED))
    return IndexStep(done, left=True), None


def _index(connection: Connection, partition: Partition, listing_id: int) -> int:
    """Index one listing and return the number of characters in its title and content."""
    title, content = execute_one(connection, _INDEX_LISTING, (partition[0], listing_id))
    index_words(connection, partition[1], listing_id, title, content)
    return len(title) + len(content)
