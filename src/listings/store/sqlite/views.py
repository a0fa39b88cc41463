"""Views of listings' pages, in the writing thread: a visitor counts once a day."""

from collections.abc import Collection, Mapping

from apsw import Connection

from listings.domain.model import bucket_of
from listings.store import sql
from listings.store.sqlite.rows import write


def record(connection: Connection, day: int, views: Mapping[int, Collection[bytes]]) -> None:
    """Count who is new, and raise the revision of each account once."""
    accounts = set()
    for listing_id, visitors in views.items():
        place = (bucket_of(listing_id), listing_id)
        viewed = write(connection, sql.GET_VIEWED, place)
        if viewed:
            new = sum(len(write(connection, sql.ADD_VIEW, (*place, day, visitor))) for visitor in visitors)
            if new:
                write(connection, sql.COUNT_VIEWS, (*place, new))
                accounts.add((place[0], viewed[0][0]))
    for account in accounts:
        write(connection, sql.RAISE_REVISION, account)


def forget(connection: Connection, oldest: int, count: int) -> int:
    """Visitors of earlier days, and their salts."""
    write(connection, sql.PURGE_VIEW_SALTS, (oldest,))
    return len(write(connection, sql.PURGE_VIEWS, (oldest, count)))
