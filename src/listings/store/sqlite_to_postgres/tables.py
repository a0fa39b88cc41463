"""The tables of a copy from a SQLite file to PostgreSQL: what is read of each on both sides, in one order.

The market is not among them: the target makes its own out of the listings, which come without the mark that the market
has taken them in.

The order of a table is that of an index which both engines have, so that neither sorts. Listings come account by
account, each with its words, which PostgreSQL keeps in a table of their own and SQLite only as an index.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import apsw

from listings.store.mapping import Row
from listings.store.postgres.search import account_words
from listings.store.sql import LISTING_COLUMNS

Key: TypeAlias = tuple[Any, ...]


class Table(NamedTuple):
    """A table with its columns, those of its primary key first and in the order of the reading."""

    name: str
    columns: tuple[str, ...]
    keys: int  # how many columns tell its rows apart
    flags: tuple[str, ...] = ()  # columns that are 0 or 1 in SQLite
    has_words: bool = False  # is read newest first, with a value more: the words, or None

    def key_of(self, row: Row) -> Key:
        """By which both sides are in order."""
        return (*row[:2], -row[2]) if self.has_words else row[: self.keys]

    def name_of(self, row: Row) -> str:
        """A row, for eyes."""
        key = row[2:3] if self.has_words else row[: self.keys]
        return " ".join((self.name, *(value.hex() if isinstance(value, bytes) else str(value) for value in key)))

    def account_of(self, row: Row) -> int | None:
        """Whose it is; None where that is not told."""
        if self.name == "accounts":
            return int(row[0])
        return int(row[self.columns.index("account_id")]) if "account_id" in self.columns else None


_OF_LISTING = tuple(name for name in LISTING_COLUMNS.split(", ") if name not in {"id", "account_id"})
ACCOUNTS = Table("accounts", ("id", "bucket", "name", "email", "plan_expires_at", "created_at", "disabled_at"), keys=1)
API_KEYS = Table(
    "api_keys",
    ("id", "account_id", "digest", "hint", "name", "created_at", "expires_at", "revoked_at", "last_used_at"),
    keys=1,
)
LISTINGS = Table(
    "listings",
    ("bucket", "account_id", "id", *_OF_LISTING, "author", "revision", "indexed"),
    keys=3,
    flags=("is_active", "indexed"),
    has_words=True,
)
TABLES = (
    ACCOUNTS,
    API_KEYS,
    Table("account_state", ("bucket", "account_id", "revision", "listings", "indexed"), keys=2, flags=("indexed",)),
    Table("listing_ids", ("bucket", "last"), keys=1),
    LISTINGS,
    Table("idempotency", ("bucket", "account_id", "key", "digest", "result", "created_at"), keys=3),
    Table(
        "imports",
        (
            *("bucket", "account_id", "digest", "format", "new_ids"),
            *("bytes_done", "lines_done", "made", "changed", "unchanged", "refused", "started_at", "finished_at"),
            "revision",
        ),
        keys=5,
        flags=("new_ids",),
    ),
    Table("view_salts", ("day", "salt"), keys=1),
    Table("views", ("day", "bucket", "listing_id", "visitor"), keys=4),
    Table("members", ("account_id", "password", "changed_at"), keys=1),
    Table(
        "sessions",
        ("digest", "account_id", "handle", "csrf_secret", "created_at", "seen_at", "confirmed_at", "agent"),
        keys=1,
    ),
    Table("invitations", ("digest", "account_id", "created_at", "expires_at"), keys=1),
    Table("sign_in_attempts", ("subject", "started_at", "count"), keys=1),
    Table("payments", ("provider", "payment_id", "account_id", "months", "plan_expires_at", "received_at"), keys=2),
    Table(
        "activity",
        ("bucket", "account_id", "revision", "number", "moment", "author", "kind", "subject", "detail"),
        keys=4,
    ),
    Table("usage_hours", ("bucket", "account_id", "hour", "key_id", "status", "count"), keys=5),
    Table(
        "refusals",
        (
            *("bucket", "account_id", "moment", "request_id"),
            *("key_id", "code", "status", "method", "path"),
        ),
        keys=4,
    ),
)
"""Each behind those that its rows refer to."""

_BEING_INDEXED = "SELECT bucket, account_id FROM account_state WHERE indexed = 2"

NUMBERED = (ACCOUNTS, API_KEYS)
"""Those whose ids the database draws."""


def select(table: Table, *, words: bool = False) -> str:
    """All rows of a table, in order; `words` adds what PostgreSQL keeps of a listing's."""
    columns = ", ".join(table.columns)
    if not table.has_words:
        return f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.columns[: table.keys])}"
    halves = " UNION ALL ".join(
        f"SELECT {columns} FROM listings WHERE {half}"
        for half in ("is_active AND deleted_at IS NULL", "NOT (is_active AND deleted_at IS NULL)")
    )
    order = "ORDER BY bucket, account_id, id DESC"
    if not words:
        return f"{halves} {order}"
    found = "(SELECT words FROM listing_words AS w WHERE w.bucket = l.bucket AND w.id = l.id)"
    return f"SELECT {columns}, {found} FROM ({halves}) AS l {order}"


def read(connection: apsw.Connection, table: Table) -> Iterator[Row]:
    """The rows of the SQLite file, as PostgreSQL has them: it indexes all of an account or nothing."""
    places = [table.columns.index(name) for name in table.flags]
    unfinished = set(connection.execute(_BEING_INDEXED)) if table.has_words else set()
    texts = itemgetter(*(LISTINGS.columns.index(name) for name in ("account_id", "title", "content")))
    for row in connection.execute(select(table)):
        values = list(row)
        for place in places:
            values[place] = row[place] == 1
        if table.has_words:
            values[-1] = values[-1] and row[:2] not in unfinished
            values.append(account_words(*texts(row)) if values[-1] else None)
        yield tuple(values)


def count(connection: apsw.Connection, table: Table) -> int:
    """How many rows the SQLite file has."""
    statement = "SELECT sum(listings) FROM account_state" if table.has_words else f"SELECT count(*) FROM {table.name}"
    found: Row = connection.execute(statement).fetchall()[0]
    return int(found[0] or 0)


def last_number(connection: apsw.Connection, table: Table) -> int:
    """The highest id that was ever drawn."""
    statement = f"""
        SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table.name}'), 0),
                   coalesce((SELECT max(id) FROM {table.name}), 0))
    """
    found: Row = connection.execute(statement).fetchall()[0]
    return int(found[0])
