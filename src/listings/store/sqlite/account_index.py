"""How a large account in the SQLite file comes into the indexes of its searches: in steps, each one of the writer's.

An account is looked through until all of its listings are in. Those that are made meanwhile are left to the steps, too,
which come to them last: to index one by itself costs several times what all the rest of its write does. From a size on
they are indexed as they are made, so that whoever writes without a pause can't keep ahead of the steps for ever.
"""

from functools import partial
from typing import NamedTuple

from apsw import Connection

from listings.contract.listings import IndexStep
from listings.store.mapping import Partition
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sql import IS_INDEXED
from listings.store.sqlite.rows import Read, write, write_one
from listings.store.sqlite.search import index_words

_IN_STEPS, _DONE = 2, 1  # an account's `indexed`
_MOST_LEFT = 2 * MIN_INDEXED_LISTINGS  # listings of an account, up to which new ones are left to the steps
_MOST_CHARACTERS = 200_000  # of the texts of a step
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


class Walk(NamedTuple):
    """Through an account's listings in the order of their ids; all up to `after` are in."""

    place: Partition
    after: int = 0


def begin(connection: Connection, place: Partition) -> None:
    """Let an account that has become large be indexed."""
    write(connection, _MARK_ACCOUNT, (*place, _IN_STEPS))


def takes(indexed: int, count: int) -> bool:
    """Whether a listing goes into the indexes as it is made, by its account's `indexed` and number of listings.

    For one whose id is the account's highest, so that a walk that has begun comes by it; an import's may be lower.
    """
    return indexed == _DONE or (indexed == _IN_STEPS and count > _MOST_LEFT)


def next_walk(read: Read) -> Walk | None:
    """Through an account that is to be indexed."""
    return next((Walk((bucket, account_id)) for bucket, account_id in read(NEXT_ACCOUNT, ())), None)


def step(connection: Connection, count: int, walk: Walk | None) -> tuple[IndexStep, Walk | None]:
    """Go on with a walk by at most `count` listings, or begin one; returns how it goes on, None behind its end."""
    if walk is None or write_one(connection, IS_INDEXED, walk.place)[0] != _IN_STEPS:  # another process has ended it
        walk = next_walk(partial(write, connection))
    if walk is None:
        return IndexStep(0), None
    rows = write(connection, NEXT_LISTINGS, (*walk.place, walk.after, count))
    done, characters = 0, 0
    for listing_id, is_indexed in rows:
        if characters >= _MOST_CHARACTERS:
            break
        if not is_indexed:
            characters += _index(connection, walk.place, listing_id)
        walk = walk._replace(after=listing_id)
        done += 1
    if done < len(rows) or done == count:
        return IndexStep(done, left=True), walk
    write(connection, _MARK_ACCOUNT, (*walk.place, _DONE))
    return IndexStep(done, left=True), None


def _index(connection: Connection, place: Partition, listing_id: int) -> int:
    """Returns how many characters its texts have."""
    title, content = write_one(connection, _INDEX_LISTING, (place[0], listing_id))
    index_words(connection, place[1], listing_id, title, content)
    return len(title) + len(content)
