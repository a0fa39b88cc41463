"""The SQL statements on listings and accounts. Parameters are written `$n`.

In distributed tables (deploy/citus.sql), statements compare the bucket with a parameter, so that each runs on one
shard. A few that only background tasks run are the exception. A subquery that takes its bucket from another table
would run on all shards.

Columns are always listed by name, so that a later migration can add one without changing a result. Casts are written
with CAST, because SQLite would read `::` as part of the parameter's name.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias, get_args, get_type_hints

from listings.domain.model import KeyAccess, Listing, NewListing
from listings.store.mapping import AccountRow, KeyRow, ListingRow
from listings.store.query import Command, Query, R

_Caller: TypeAlias = tuple[int, int, int, int | None, int | None, int | None, int | None, KeyAccess, int | None]
_ImportRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int | None, int | None, str]

LISTING_COLUMNS = ", ".join(Listing.__struct_fields__)
TEXT_BYTES = "octet_length(title) + octet_length(content) + octet_length(images)"
_TYPES: Mapping[type, str] = {int: "bigint", float: "double precision", bool: "boolean", str: "text"}
_COLUMN_TYPES: Mapping[str, str] = {  # on PostgreSQL
    name: next(_TYPES[one] for one in (hint, *get_args(hint)) if one in _TYPES)
    for name, hint in get_type_hints(Listing).items()
}
ACCOUNT_COLUMNS = (
    "id, name, email, plan_expires_at, created_at, disabled_at, public_contact, messages_off_at, test_of, about"
)
IMPORT_COLUMNS = (
    "bytes_done, lines_done, made, changed, unchanged, refused, restored, deleted, conflicts, "
    "started_at, finished_at, edit_revision, name"
)
KEY_COLUMNS = "id, account_id, name, hint, created_at, last_used_at, expires_at, revoked_at, access"

HALVES = ("is_active AND deleted_at IS NULL", "NOT (is_active AND deleted_at IS NULL)")
"""The conditions of the two partial indexes that together have all listings of an account."""


def build_page(columns: str, *, descending: bool = False) -> str:
    """Return the statement that reads both halves of an account's listings after an id, in the order of their ids.

    Its parameters are the bucket, the account, the id, and the number of listings.
    """
    comparison, order = ("<", "id DESC") if descending else (">", "id")
    halves = "UNION ALL\n".join(
        f"SELECT {columns} FROM listings\nWHERE bucket = $1 AND account_id = $2 AND id {comparison} $3 AND {half}\n"
        for half in HALVES
    )
    return f"\n{halves}ORDER BY {order} LIMIT $4\n"


GET_DATABASE_ID = Query[tuple[str]]("SELECT id FROM database_id")
GET_RESTORE_ID = Query[tuple[str]]("SELECT restore_id FROM database_id")
FIND_CALLER = Query[tuple[bytes, *_Caller]]("""
SELECT k.digest, k.id, k.account_id, a.bucket,
    CASE WHEN live.plan_expires_at > COALESCE(a.plan_expires_at, -1) THEN live.plan_expires_at
        ELSE a.plan_expires_at END,
    a.disabled_at, k.expires_at, k.revoked_at, k.access, a.test_of
FROM api_keys k JOIN accounts a ON a.id = k.account_id LEFT JOIN accounts live ON live.id = a.test_of
WHERE k.digest = $1
""")
LIST_LISTINGS = f"""
SELECT {LISTING_COLUMNS} FROM listings
WHERE bucket = $1 AND account_id = $2 AND is_active AND deleted_at IS NULL
ORDER BY id DESC
"""
COUNT_LISTINGS = Query[tuple[int, int, int, int, int]]("""
SELECT
    (SELECT count(*) FROM listings
     WHERE bucket = $1 AND account_id = $2 AND is_active AND deleted_at IS NULL),
    count(*) FILTER (WHERE deleted_at IS NULL),
    count(*) FILTER (WHERE deleted_at IS NOT NULL),
    (SELECT text_bytes FROM account_state WHERE bucket = $1 AND account_id = $2),
    (SELECT text_bytes + history_bytes FROM account_state WHERE bucket = $1 AND account_id = $2)
FROM listings WHERE bucket = $1 AND account_id = $2 AND NOT (is_active AND deleted_at IS NULL)
""")
GET_LISTING = Query[ListingRow](f"SELECT {LISTING_COLUMNS} FROM listings WHERE bucket = $1 AND id = $2")
GET_LISTING_AND_REVISION = Query[tuple[*ListingRow, int]](f"""
SELECT {LISTING_COLUMNS}, (
    SELECT revision FROM account_state
    WHERE account_state.bucket = $1 AND account_state.account_id = listings.account_id)
FROM listings WHERE bucket = $1 AND id = $2
""")

# The CASE expression is the last column of the index. It finds the listing that is not deleted.
GET_LISTING_BY_EXTERNAL_ID = Query[ListingRow](f"""
SELECT {LISTING_COLUMNS} FROM listings
WHERE bucket = $1 AND account_id = $2 AND external_id = $3 AND CASE WHEN deleted_at IS NULL THEN 0 ELSE id END = 0
""")
FIND_EXTERNAL_ID = Query[tuple[int, str]]("""
SELECT id, external_id FROM listings
WHERE bucket = $1 AND account_id = $2 AND external_id = $3 AND CASE WHEN deleted_at IS NULL THEN 0 ELSE id END = 0
""")
NEXT_SERIAL = Query[tuple[int]]("""
INSERT INTO listing_ids (bucket, last) VALUES ($1, 1)
ON CONFLICT (bucket) DO UPDATE SET last = listing_ids.last + 1
RETURNING last
""")

_NEW_COLUMNS = (
    *("id", "bucket", "account_id", *NewListing.__struct_fields__),
    *("view_count", "created_at", "updated_at", "deleted_at", "indexed", "author", "revision", "edit_revision"),
)
ADD_LISTING = Command(f"""
INSERT INTO listings ({", ".join(_NEW_COLUMNS)})
VALUES ({", ".join(f"${number}" for number, _ in enumerate(_NEW_COLUMNS, 1))})
""")

PAGE_LISTINGS = Query[ListingRow](build_page(LISTING_COLUMNS))

SKIP_SERIALS = Command("""
INSERT INTO listing_ids (bucket, last) VALUES ($1, $2)
ON CONFLICT (bucket) DO UPDATE SET last = excluded.last WHERE excluded.last > listing_ids.last
""")
GET_IMPORT = Query[_ImportRow](f"""
SELECT {IMPORT_COLUMNS} FROM imports
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
""")
BEGIN_IMPORT = Command("""
INSERT INTO imports (bucket, account_id, digest, format, new_ids, started_at, name)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (bucket, account_id, digest, format, new_ids) DO UPDATE
SET bytes_done = 0, lines_done = 0, made = 0, changed = 0, unchanged = 0, refused = 0,
    restored = 0, deleted = 0, conflicts = 0, started_at = excluded.started_at, finished_at = NULL, revision = NULL,
    edit_revision = NULL, name = excluded.name
""")
ADVANCE_IMPORT = Command("""
UPDATE imports
SET bytes_done = $6, lines_done = $7, made = made + $8, changed = changed + $9, unchanged = unchanged + $10,
    refused = refused + $11, restored = restored + $12, deleted = deleted + $13, conflicts = conflicts + $14,
    finished_at = $15
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
""")
LIST_IMPORTS = Query[_ImportRow](f"""
SELECT {IMPORT_COLUMNS} FROM imports
WHERE bucket = $1 AND account_id = $2 ORDER BY started_at DESC, digest LIMIT $3
""")
GET_ACCOUNT_SIZE = Query[tuple[int, int, int, int, int | None, int | None]]("""
SELECT current_listings, text_bytes, edit_revision, edited_at, max_listings, max_text_bytes FROM account_state
WHERE bucket = $1 AND account_id = $2
""")
RAISE_REVISION = Query[tuple[int, int, int]]("""
UPDATE account_state
SET revision = revision + 1, current_listings = current_listings + $3, text_bytes = text_bytes + $4,
    history_bytes = history_bytes + $5, edit_revision = edit_revision + $6,
    edited_at = CASE WHEN edited_at < $7 THEN $7 ELSE edited_at END
WHERE bucket = $1 AND account_id = $2
RETURNING revision, edit_revision, edited_at
""")
GET_LAST_SERIAL = Query[tuple[int]]("SELECT last FROM listing_ids WHERE bucket = $1")
COUNT_MORE = Query[tuple[int, int]]("""
UPDATE account_state
SET revision = revision + 1, listings = listings + $3, current_listings = current_listings + $4,
    text_bytes = text_bytes + $5, history_bytes = history_bytes + $6, edit_revision = edit_revision + $7
WHERE bucket = $1 AND account_id = $2
RETURNING listings, indexed
""")
COUNT_ONE_MORE = Query[tuple[int, int, int, int, int]]("""
UPDATE account_state
SET revision = revision + 1, listings = listings + 1, current_listings = current_listings + 1,
    text_bytes = text_bytes + $3, edit_revision = edit_revision + $6
WHERE bucket = $1 AND account_id = $2 AND current_listings < COALESCE(max_listings, $4)
    AND text_bytes + $3 <= COALESCE(max_text_bytes, $5)
RETURNING listings, indexed, revision, edit_revision, edited_at
""")
GET_ACCOUNT_LIMITS = Query[tuple[int | None, int | None, int | None]]("""
SELECT max_listings, max_text_bytes, max_stored_bytes FROM account_state WHERE bucket = $1 AND account_id = $2
""")
SET_ACCOUNT_LIMITS = Command("""
UPDATE account_state SET max_listings = $3, max_text_bytes = $4, max_stored_bytes = $5
WHERE bucket = $1 AND account_id = $2
""")
IS_INDEXED = Query[tuple[int]]("SELECT indexed FROM account_state WHERE bucket = $1 AND account_id = $2")
IS_LISTING_INDEXED = Query[tuple[bool]]("SELECT indexed FROM listings WHERE bucket = $1 AND id = $2")
INDEX_ACCOUNT = Command("UPDATE account_state SET indexed = TRUE WHERE bucket = $1 AND account_id = $2")

INDEX_ACTIVE, INDEX_HIDDEN = (
    Command(f"UPDATE listings SET indexed = TRUE WHERE bucket = $1 AND account_id = $2 AND {half}") for half in HALVES
)

GET_REVISIONS = Query[tuple[int, int]](
    "SELECT revision, edit_revision FROM account_state WHERE bucket = $1 AND account_id = $2"
)
FIND_IDEMPOTENCY_RECORD = Query[tuple[bytes, str]]("""
SELECT digest, result FROM idempotency WHERE bucket = $1 AND account_id = $2 AND key = $3 AND created_at >= $4
""")
STORE_IDEMPOTENCY_RECORD = Command("""
INSERT INTO idempotency (bucket, account_id, key, digest, result, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (bucket, account_id, key) DO UPDATE
SET digest = excluded.digest, result = excluded.result, created_at = excluded.created_at
""")
PURGE_IDEMPOTENCY_RECORDS = Query[tuple[int]]("""
DELETE FROM idempotency WHERE (bucket, account_id, key) IN (
    SELECT bucket, account_id, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
    AND created_at < $1
RETURNING bucket
""")
GET_VIEW_SALT = Query[tuple[bytes]]("SELECT salt FROM view_salts WHERE day = $1")
ADD_VIEW_SALT = Command("INSERT INTO view_salts (day, salt) VALUES ($1, $2) ON CONFLICT (day) DO NOTHING")
PURGE_VIEW_SALTS = Command("DELETE FROM view_salts WHERE day < $1")
ADD_VIEW = Query[tuple[int]]("""
INSERT INTO views (bucket, listing_id, day, visitor) VALUES ($1, $2, $3, $4)
ON CONFLICT (day, bucket, listing_id, visitor) DO NOTHING
RETURNING bucket
""")
PURGE_VIEWS = Query[tuple[int]]("""
DELETE FROM views WHERE (day, bucket, listing_id, visitor) IN (
    SELECT day, bucket, listing_id, visitor FROM views WHERE day < $1 LIMIT $2)
RETURNING bucket
""")
GET_VIEWED = Query[tuple[int]](
    "SELECT account_id FROM listings WHERE bucket = $1 AND id = $2 AND is_active AND deleted_at IS NULL"
)
COUNT_VIEWS = Command("""
UPDATE listings SET view_count = view_count + $3, last_viewed_on = $4 WHERE bucket = $1 AND id = $2
""")
ADD_ACCOUNT = Query[AccountRow](f"""
INSERT INTO accounts (bucket, name, email, plan_expires_at, created_at) VALUES (0, $1, $2, $3, $4)
ON CONFLICT (email) DO NOTHING
RETURNING {ACCOUNT_COLUMNS}
""")
SET_BUCKET = Command("UPDATE accounts SET bucket = $1 WHERE id = $2")
ADD_ACCOUNT_STATE = Command("INSERT INTO account_state (bucket, account_id, revision) VALUES ($1, $2, 0)")
GET_ACCOUNT = Query[AccountRow](f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE id = $1")
FIND_ACCOUNT = Query[AccountRow](f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE email = $1")
PAGE_ACCOUNTS = Query[AccountRow](
    f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE id > $1 AND test_of IS NULL ORDER BY id LIMIT $2"
)
FIND_TEST_ACCOUNT = Query[AccountRow](f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE test_of = $1")
SET_TEST_OF = Query[AccountRow](
    f"UPDATE accounts SET test_of = $2, disabled_at = $3 WHERE id = $1 RETURNING {ACCOUNT_COLUMNS}"
)
SET_TEST_DISABLED = Command("UPDATE accounts SET disabled_at = $2 WHERE test_of = $1")
LIST_IDLE_TEST_ACCOUNTS = Query[AccountRow](f"""
SELECT {ACCOUNT_COLUMNS} FROM accounts
WHERE test_of IS NOT NULL AND created_at < $1
    AND NOT EXISTS (SELECT 1 FROM api_keys k WHERE k.account_id = accounts.id AND COALESCE(k.last_used_at, 0) >= $1)
ORDER BY id
""")
ADD_KEY = Query[KeyRow](f"""
INSERT INTO api_keys (account_id, name, digest, hint, created_at, expires_at, access)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (digest) DO NOTHING
RETURNING {KEY_COLUMNS}
""")
LIST_KEYS = Query[KeyRow](f"SELECT {KEY_COLUMNS} FROM api_keys WHERE account_id = $1 ORDER BY id")
GET_KEY = Query[KeyRow](f"SELECT {KEY_COLUMNS} FROM api_keys WHERE id = $1")
FIND_SUCCESSOR = Query[tuple[int]]("""
SELECT subject FROM activity
WHERE bucket = $1 AND account_id = $2 AND kind = 'key_rotated' AND detail = $3
ORDER BY revision, number LIMIT 1
""")
LIST_SUCCESSORS = Query[tuple[str, int]]("""
SELECT detail, subject FROM activity
WHERE bucket = $1 AND account_id = $2 AND kind = 'key_rotated'
ORDER BY revision, number
""")
SET_KEY_EXPIRY = Command("UPDATE api_keys SET expires_at = $1 WHERE id = $2")
RECORD_KEY_USE = Command("""
UPDATE api_keys SET last_used_at = $1 WHERE id = $2 AND (last_used_at IS NULL OR last_used_at < $1)
""")
REVOKE_KEY = Query[KeyRow](f"""
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $1) WHERE id = $2
RETURNING {KEY_COLUMNS}
""")


@lru_cache(maxsize=1024)
def build_listing_update(columns: tuple[str, ...]) -> Command:
    """Return the statement that sets these columns and raises the version.

    Its parameters are the bucket, the id, and the values of the columns.
    """
    assignments = _build_assignments(columns, 3)
    return Command(f"UPDATE listings SET version = version + 1, {assignments} WHERE bucket = $1 AND id = $2")


@lru_cache(maxsize=1024)
def build_listing_updates(columns: tuple[str, ...]) -> Command:
    """Return the statement that sets these columns of several listings, without a result.

    Its parameters are the bucket, the ids, and an array of the values of each column.
    """
    names = ("id", *columns)
    arrays = build_arrays([_COLUMN_TYPES.get(name, "text") for name in names])
    assignments = ", ".join(f"{column} = new.{column}" for column in columns)
    return Command(f"""
UPDATE listings SET version = version + 1, {assignments} FROM {arrays} AS new ({", ".join(names)})
WHERE listings.bucket = $1 AND listings.id = new.id
""")


def build_arrays(types: Iterable[str]) -> str:
    """Return a table whose columns are the arrays in the parameters from $2 on. Their elements have these types."""
    return f"unnest({', '.join(f'CAST(${number} AS {name}[])' for number, name in enumerate(types, 2))})"


@lru_cache(maxsize=64)
def build_each(statement: Query[R]) -> Query[R]:
    """Return a statement that runs another one for each element of arrays of bigint: its parameters from $2 on.

    The rows are in the order of that one.
    """
    names = [f"value_{number}" for number in range(2, int(max(re.findall(r"\$([2-9])", statement))) + 1)]
    one = re.sub(r"\$([2-9])", r"wanted.value_\1", statement)
    arrays = build_arrays(["bigint"] * len(names))
    order = re.search("ORDER BY [^()]+(?= LIMIT)", statement)
    rows = f"SELECT one.* FROM {arrays} AS wanted ({', '.join(names)}), LATERAL ({one}) AS one"
    return Query(f"{rows} {order[0] if order else ''}")


@lru_cache(maxsize=16)
def build_account_update(columns: tuple[str, ...]) -> Query[AccountRow]:
    """Return the statement that sets these columns. Its parameters are the id and the values of the columns."""
    return Query[AccountRow](
        f"UPDATE accounts SET {_build_assignments(columns, 2)} WHERE id = $1 RETURNING {ACCOUNT_COLUMNS}"
    )


def _build_assignments(columns: Iterable[str], first: int) -> str:
    return ", ".join(f"{column} = ${number}" for number, column in enumerate(columns, first))


@lru_cache(maxsize=2048)
def to_sqlite(statement: str) -> str:
    """Translate a statement for SQLite.

    `$n` becomes `?n`, because SQLite treats `$1` as a name and numbers names by first appearance. Comments with
    INDEXED BY become clauses.
    """
    return re.sub(r"/\*(INDEXED BY \w+)\*/", r"\1", re.sub(r"\$(\d+)", r"?\1", statement))
