"""Find the rows that the current database has and a backup lacks, or has with other values."""

from collections.abc import Container, Mapping
from itertools import groupby
from operator import itemgetter

import apsw

from listings.domain import timestamps
from listings.domain.number_text import format_count
from listings.store.query import Row

# Others are called like their table.
_NAMES = {"account_state": "account limit", "activity": "audit event", "api_keys": "key", "members": "password"}
# Tables of counters, and of rows that are derived from others, short-lived, or about mail.
_IGNORED_TABLES = {
    *("listing_ids", "lost_changes", "schema_migrations", "periodic_tasks", "views", "view_salts", "account_days"),
    *("sessions", "sign_in_attempts", "sign_in_devices", "invitations", "email_tokens", "mails", "plan_reminders"),
    *("usage_hours", "refusals", "idempotency", "database_id"),
}
_IGNORED_PREFIXES = ("market", "listings_words")
_IGNORED_COLUMNS = {
    *("view_count", "indexed", "market_version", "marketed", "last_used_at", "worker", "busy_until"),
    *("hidden_by", "last_step", "last_viewed_on"),
}
_LIMITS = {"max_listings", "max_text_bytes", "max_stored_bytes"}  # of an account; the rest of its state are counters
_TIMES = ("ed_at", "_off_at")  # without those in the future, such as expires_at
_LIST_COLUMNS = """
SELECT t.name, c.name, c.pk FROM main.sqlite_schema AS t, pragma_table_info(t.name, 'main') AS c
WHERE t.type = 'table' AND EXISTS (SELECT 1 FROM pragma_table_info(t.name, 'backup') AS b WHERE b.name = c.name)
ORDER BY t.name
"""


def describe_losses(connection: apsw.Connection, tables: Container[str]) -> str:
    """Return what `backup` lacks, such as "2 listings and 1 key, the newest of 2026-11-21 09:30:00", or "".

    All common columns of those of these tables that both have are compared, by primary key. Limits of accounts have no
    time. Tables of other programs are not compared: they may lack a primary key.
    """
    losses, newest = list[str](), 0
    columns: list[Row] = connection.execute(_LIST_COLUMNS).fetchall()
    for table, group in groupby(columns, itemgetter(0)):
        if table in tables and table not in _IGNORED_TABLES and not table.startswith(_IGNORED_PREFIXES):
            found = {name: bool(is_key) for _, name, is_key in group if name not in _IGNORED_COLUMNS}
            if table == "account_state":
                found = {name: is_key for name, is_key in found.items() if is_key or name in _LIMITS}
                if all(found.values()):  # the backup is from before there were limits
                    continue
            count, time = _find_loss(connection, table, found)
            if count:
                losses.append(format_count(count, _NAMES.get(table, table.removesuffix("s").replace("_", " "))))
                newest = max(newest, time or 0)
    if not losses:
        return ""
    listed = " and ".join(filter(None, (", ".join(losses[:-1]), losses[-1])))
    return f"{listed}, the newest of {timestamps.format_timestamp(newest)}" if newest else listed


def _find_loss(connection: apsw.Connection, table: str, columns: Mapping[str, bool]) -> Row:
    # `columns`: whether each is part of the key.
    keys = [name for name, is_key in columns.items() if is_key]
    values = [name for name, is_key in columns.items() if not is_key] or keys
    times = [name for name in values if name == "moment" or name.endswith(_TIMES)]
    newest = ", ".join(
        f"CASE typeof(m.{name}) WHEN 'text' THEN unixepoch(m.{name}) ELSE coalesce(m.{name}, 0) END" for name in times
    )
    current, saved = (", ".join(f"{alias}.{name}" for name in values) for alias in "mb")
    is_missing = f"b.{keys[0]} IS NULL" if table != "account_state" else "false"  # without limits, nothing is lost
    rows: list[Row] = connection.execute(f"""
        SELECT count(*), max(max(0, {newest or 0})) FROM main.{table} AS m
        LEFT JOIN backup.{table} AS b ON {" AND ".join(f"b.{name} = m.{name}" for name in keys)}
        WHERE {is_missing} OR ({current}) IS NOT ({saved})
    """).fetchall()
    return rows[0]
