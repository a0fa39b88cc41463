"""Count views of listings, in the writer thread. A visitor counts once per day and listing."""

from collections.abc import Collection, Mapping

from apsw import Connection

from listings.domain.model import bucket_of
from listings.store import sql
from listings.store.sqlite.rows import execute


def record(connection: Connection, day: int, views: Mapping[int, Collection[bytes]]) -> None:
    """Count the new visitors of each listing, and raise the revision of each affected account once."""
    accounts = set()
    for listing_id, visitors in views.items():
        bucket = bucket_of(listing_id)
        viewed = execute(connection, sql.GET_VIEWED, (bucket, listing_id))
        if viewed:
            new = sum(len(execute(connection, sql.ADD_VIEW, (bucket, listing_id, day, it))) for it in visitors)
            if new:
                execute(connection, sql.COUNT_VIEWS, (bucket, listing_id, new))
                accounts.add((bucket, viewed[0][0]))
    for account in accounts:
        execute(connection, sql.RAISE_REVISION, account)


def purge(connection: Connection, oldest: int, count: int) -> int:
    """Delete the salts and at most `count` visitors of days before `oldest`; return the number of visitors."""
    execute(connection, sql.PURGE_VIEW_SALTS, (oldest,))
    return len(execute(connection, sql.PURGE_VIEWS, (oldest, count)))
