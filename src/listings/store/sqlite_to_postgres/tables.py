"""The tables to copy from SQLite to PostgreSQL, and the statements that read them in the same order on both sides.

The market tables are not copied. The target indexes its own market, because listings are copied without the mark that
they are indexed.

Each table is read in the order of an index that both engines have, so that neither has to sort. Listings are read
account by account, together with their words. PostgreSQL stores these in a table, and SQLite only in an index.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import apsw

from listings.store.postgres.search import build_account_words
from listings.store.query import Row
from listings.store.sql import HALVES
from listings.store.sqlite.search import INDEXING

Key: TypeAlias = tuple[Any, ...]


_NAMES = """
accounts api_keys account_state listing_ids listings idempotency imports view_salts views messages
listing_reports takedowns operators account_days members sessions invitations sign_in_attempts sign_in_devices
plan_requests mails email_tokens confirmed_emails closed_accounts plan_reminders periodic_tasks pictures
picture_usage blocked_pictures payments activity changes lost_changes reverts revert_conflicts change_groups
usage_hours refusals
"""
NAMES = tuple(_NAMES.split())
"""The tables to copy. Each one comes after the tables that its rows refer to."""

NUMBERED = ("accounts", "api_keys")
"""The tables whose ids come from a sequence."""

_FLAGS = {"is_active", "indexed", "new_ids", "overwrite"}  # numbers in SQLite: 0 is false, others are true
_MARKET_COLUMNS = {"marketed", "market_version"}
_PARTLY_INDEXED = f"SELECT bucket, account_id FROM account_state WHERE indexed = {INDEXING}"


class Table(NamedTuple):
    """A table and its columns. Those that identify a row come first, in the order in which the rows are read."""

    name: str
    columns: tuple[str, ...]
    keys: int  # number of columns that identify a row

    @property
    def has_words(self) -> bool:
        """Whether rows are read newest first, with the words (or None) as an additional value."""
        return self.name == "listings"

    def get_key(self, row: Row) -> Key:
        """Return the key by which both sides are sorted."""
        return (*row[:2], -row[2]) if self.has_words else row[: self.keys]

    def format_name(self, row: Row) -> str:
        """Return the table's name and the row's key, for messages."""
        key = row[2:3] if self.has_words else row[: self.keys]
        return " ".join((self.name, *(value.hex() if isinstance(value, bytes) else str(value) for value in key)))

    def get_account_id(self, row: Row) -> int | None:
        """Return the id of the row's account, or None if it belongs to none."""
        if self.name == "accounts":
            return int(row[0])
        account_id = row[self.columns.index("account_id")] if "account_id" in self.columns else None
        return None if account_id is None else int(account_id)


def list_tables(connection: apsw.Connection) -> list[Table]:
    """Return the tables with the columns of the SQLite file, which PostgreSQL has, too."""
    found = []
    for table in NAMES:
        places = dict(connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)))
        keys = sorted((name for name, place in places.items() if place), key=places.__getitem__)
        if table == "listings":  # as in the index of their account
            keys = ["bucket", "account_id", "id"]
        others = [name for name in places if name not in {*keys, *_MARKET_COLUMNS}]
        found.append(Table(table, (*keys, *others), len(keys)))
    return found


def build_select(table: Table, *, words: bool = False) -> str:
    """Return the statement that reads a table in order. `words` adds the words of listings, as PostgreSQL has them."""
    columns = ", ".join(table.columns)
    if not table.has_words:
        return f"SELECT {columns} FROM {table.name} ORDER BY {', '.join(table.columns[: table.keys])}"
    halves = " UNION ALL ".join(f"SELECT {columns} FROM listings WHERE {half}" for half in HALVES)
    order = "ORDER BY bucket, account_id, id DESC"
    if not words:
        return f"{halves} {order}"
    found = "(SELECT words FROM listing_words AS w WHERE w.bucket = l.bucket AND w.id = l.id)"
    return f"SELECT {columns}, {found} FROM ({halves}) AS l {order}"


def read(connection: apsw.Connection, table: Table) -> Iterator[Row]:
    """Yield the rows of the SQLite file, converted to PostgreSQL.

    PostgreSQL indexes all listings of an account or none. So a partly indexed account is copied with a complete index.
    """
    places = {name: at for at, name in enumerate(table.columns)}
    flags = [places[name] for name in _FLAGS & places.keys()]
    unfinished = set(connection.execute(_PARTLY_INDEXED)) if table.has_words else set()
    for row in connection.execute(build_select(table)):
        values = list(row)
        for flag in flags:
            values[flag] = bool(row[flag])
        if table.has_words:
            is_indexed = values[places["indexed"]] = values[places["indexed"]] or row[:2] in unfinished
            texts = (row[places["title"]], row[places["content"]])
            values.append(build_account_words(row[places["account_id"]], *texts) if is_indexed else None)
        yield tuple(values)


def count(connection: apsw.Connection, table: Table) -> int:
    """Return the number of rows in the SQLite file."""
    statement = "SELECT sum(listings) FROM account_state" if table.has_words else f"SELECT count(*) FROM {table.name}"
    return int(connection.execute(statement).get or 0)


def get_last_id(connection: apsw.Connection, table: str) -> int:
    """Return the highest id that the table ever had."""
    statement = f"""
        SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0),
                   coalesce((SELECT max(id) FROM {table}), 0))
    """
    return int(connection.execute(statement).get)
