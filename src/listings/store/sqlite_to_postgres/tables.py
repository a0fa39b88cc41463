"""The tables to copy from SQLite to PostgreSQL, and the statements that read them in the same order on both sides.

The market tables are not copied. The target indexes its own market, because listings are copied without the mark that
they are indexed.

Each table is read in the order of an index that both engines have, so that neither has to sort. Listings are read
account by account, together with their words. PostgreSQL stores these in a table, and SQLite only in an index.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import apsw

from listings.store.mapping import Row
from listings.store.postgres.search import build_account_words
from listings.store.sql import HALVES, LISTING_COLUMNS
from listings.store.sqlite.search import INDEXING

Key: TypeAlias = tuple[Any, ...]


class Table(NamedTuple):
    """A table and its columns. Those that identify a row come first, in the order in which the rows are read."""

    name: str
    columns: tuple[str, ...]
    keys: int  # number of columns that identify a row
    flags: tuple[str, ...] = ()  # columns that are numbers in SQLite: 0 is false, others are true
    has_words: bool = False  # rows are read newest first, with the words (or None) as an additional value

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


_LISTING_COLUMNS = tuple(name for name in LISTING_COLUMNS.split(", ") if name not in {"id", "account_id"})
ACCOUNTS = Table(
    "accounts",
    (
        *("id", "bucket", "name", "email", "plan_expires_at", "created_at", "disabled_at", "public_contact"),
        *("messages_off_at", "test_of", "about"),
    ),
    keys=1,
)
API_KEYS = Table(
    "api_keys",
    ("id", "account_id", "digest", "hint", "name", "created_at", "expires_at", "revoked_at", "last_used_at", "access"),
    keys=1,
)
LISTINGS = Table(
    "listings",
    (
        *("bucket", "account_id", "id", *_LISTING_COLUMNS, "author", "revision", "edit_revision"),
        *("last_viewed_on", "indexed"),
    ),
    keys=3,
    flags=("is_active", "indexed"),
    has_words=True,
)
TABLES = (
    ACCOUNTS,
    API_KEYS,
    Table(
        "account_state",
        (
            *("bucket", "account_id", "revision", "listings", "indexed", "current_listings", "text_bytes"),
            *("edit_revision", "purged_revision", "purged_serial", "purged_at", "edited_at", "history_bytes"),
            *("max_listings", "max_text_bytes", "max_stored_bytes", "last_revert"),
        ),
        keys=2,
        flags=("indexed",),
    ),
    Table("listing_ids", ("bucket", "last"), keys=1),
    LISTINGS,
    Table("idempotency", ("bucket", "account_id", "key", "digest", "result", "created_at"), keys=3),
    Table(
        "imports",
        (
            *("bucket", "account_id", "digest", "format", "new_ids"),
            *("bytes_done", "lines_done", "made", "changed", "unchanged", "refused", "started_at", "finished_at"),
            *("revision", "edit_revision", "restored", "deleted", "conflicts", "name"),
        ),
        keys=5,
        flags=("new_ids",),
    ),
    Table("view_salts", ("day", "salt"), keys=1),
    Table("views", ("day", "bucket", "listing_id", "visitor"), keys=4),
    Table("messages", ("bucket", "account_id", "created_at", "id", "listing_id", "name", "email", "text"), keys=4),
    Table("listing_reports", ("id", "account_id", "listing_id", "reason", "text", "created_at"), keys=1),
    Table("takedowns", ("listing_id", "account_id", "reason", "operator", "created_at"), keys=1),
    Table("operators", ("account_id", "secret", "last_step", "added_at"), keys=1),
    Table("account_days", ("bucket", "account_id", "day", "views", "messages"), keys=3),
    Table("members", ("account_id", "password", "changed_at"), keys=1),
    Table(
        "sessions",
        (
            *("digest", "account_id", "handle", "csrf_secret", "created_at", "seen_at", "confirmed_at", "agent"),
            "operator_at",
        ),
        keys=1,
    ),
    Table("invitations", ("digest", "account_id", "created_at", "expires_at"), keys=1),
    Table("sign_in_attempts", ("subject", "started_at", "count"), keys=1),
    Table("sign_in_devices", ("account_id", "digest", "used_at"), keys=2),
    Table("plan_requests", ("account_id", "requested_at", "declined_at", "reason"), keys=1),
    Table("mails", ("id", "kind", "recipient", "account_id", "detail", "created_at", "next_at", "attempts"), keys=1),
    Table("email_tokens", ("digest", "account_id", "email", "expires_at"), keys=1),
    Table("confirmed_emails", ("account_id", "email", "confirmed_at"), keys=1),
    Table("closed_accounts", ("account_id", "closed_at"), keys=1),
    Table("plan_reminders", ("account_id", "plan_expires_at", "days"), keys=1),
    Table("periodic_tasks", ("name", "started_at"), keys=1),
    Table(
        "pictures",
        (
            *("name", "account_id", "digest", "width", "height", "size", "created_at", "unused_since"),
            *("file_name", "file_key", "hidden_by"),
        ),
        keys=1,
    ),
    Table("picture_usage", ("account_id", "bytes", "max_bytes"), keys=1),
    Table("blocked_pictures", ("digest", "blocked_at"), keys=1),
    Table(
        "payments",
        ("provider", "payment_id", "account_id", "months", "plan_expires_at", "received_at", "invoice"),
        keys=2,
    ),
    Table(
        "activity",
        ("bucket", "account_id", "revision", "number", "moment", "author", "kind", "subject", "detail"),
        keys=4,
    ),
    Table(
        "changes",
        (
            *("bucket", "account_id", "edit_revision", "number"),
            *("listing_id", "moment", "author", "kind", "import_id", "revision", "last_serial", "fields", "detail"),
            "base_version",
        ),
        keys=4,
    ),
    Table("lost_changes", ("bucket", "account_id", "last_revision", "first_revision"), keys=3),
    Table(
        "reverts",
        (
            *("bucket", "account_id", "id", "kind", "subject", "first_revision", "last_revision", "since", "until"),
            *("overwrite", "author", "revision", "started_at", "done_revision", "done_number"),
            *("reverted", "unchanged", "conflicts", "finished_at", "worker", "busy_until", "group_id"),
        ),
        keys=3,
        flags=("overwrite",),
    ),
    Table(
        "revert_conflicts",
        ("bucket", "account_id", "revert_id", "number", "listing_id", "reason", "fields", "subject"),
        keys=4,
    ),
    Table(
        "change_groups",
        (
            *("bucket", "account_id", "id", "kind", "name", "author", "started_at", "ended_at"),
            *("last_id", "sets", "changes", "revision"),
        ),
        keys=3,
    ),
    Table("usage_hours", ("bucket", "account_id", "hour", "key_id", "status", "count"), keys=5),
    Table(
        "refusals",
        (*("bucket", "account_id", "moment", "request_id"), *("key_id", "code", "status", "method", "path", "reason")),
        keys=4,
    ),
)
"""All tables. Each one comes after the tables that its rows refer to."""

_PARTLY_INDEXED = f"SELECT bucket, account_id FROM account_state WHERE indexed = {INDEXING}"

NUMBERED = (ACCOUNTS, API_KEYS)
"""The tables whose ids come from a sequence."""


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
    flags = [table.columns.index(name) for name in table.flags]
    unfinished = set(connection.execute(_PARTLY_INDEXED)) if table.has_words else set()
    texts = itemgetter(*(LISTINGS.columns.index(name) for name in ("account_id", "title", "content")))
    for row in connection.execute(build_select(table)):
        values = list(row)
        for flag in flags:
            values[flag] = bool(row[flag])
        if table.has_words:
            values[-1] = values[-1] or row[:2] in unfinished
            values.append(build_account_words(*texts(row)) if values[-1] else None)
        yield tuple(values)


def count(connection: apsw.Connection, table: Table) -> int:
    """Return the number of rows in the SQLite file."""
    statement = "SELECT sum(listings) FROM account_state" if table.has_words else f"SELECT count(*) FROM {table.name}"
    return int(connection.execute(statement).get or 0)


def get_last_id(connection: apsw.Connection, table: Table) -> int:
    """Return the highest id that the table ever had."""
    statement = f"""
        SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table.name}'), 0),
                   coalesce((SELECT max(id) FROM {table.name}), 0))
    """
    return int(connection.execute(statement).get)
