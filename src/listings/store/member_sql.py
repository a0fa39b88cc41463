"""The SQL statements for members, sessions, activity and usage. See `sql` for the conventions."""

from typing import TypeAlias

from listings.domain.history import EventKind
from listings.store.change_sql import STORED_BYTES
from listings.store.mapping import AccountRow
from listings.store.query import Command, Query
from listings.store.reverts.sql import CONFLICT_BYTES
from listings.store.sql import ACCOUNT_COLUMNS, build_page

SESSION_COLUMNS = "account_id, handle, csrf_secret, created_at, seen_at, confirmed_at, agent"
EVENT_COLUMNS = "revision, number, moment, author, kind, subject, detail"
REJECTED_REQUEST_COLUMNS = "account_id, moment, key_id, code, status, method, path, request_id, reason"

SessionRow: TypeAlias = tuple[int, str, str, int, int, int, str]
"""Values of `SESSION_COLUMNS`."""

# Members

SET_PASSWORD = Command("""
INSERT INTO members (account_id, password, changed_at) VALUES ($1, $2, $3)
ON CONFLICT (account_id) DO UPDATE SET password = excluded.password, changed_at = excluded.changed_at
""")
GET_PASSWORD = Query[tuple[str]]("SELECT password FROM members WHERE account_id = $1")
REPLACE_PASSWORD = Query[tuple[int]]("""
UPDATE members SET password = $3 WHERE account_id = $1 AND password = $2 RETURNING account_id
""")


ADD_SESSION = Command("""
INSERT INTO sessions (account_id, digest, handle, csrf_secret, created_at, seen_at, confirmed_at, agent)
VALUES ($1, $2, $3, $4, $5, $5, $5, $6)
""")

QUALIFIED_ACCOUNT_COLUMNS = ", ".join(f"a.{column}" for column in ACCOUNT_COLUMNS.split(", "))
QUALIFIED_SESSION_COLUMNS = ", ".join(f"s.{column}" for column in SESSION_COLUMNS.split(", "))

FIND_SESSION = Query[tuple[*SessionRow, *AccountRow]](f"""
SELECT {QUALIFIED_SESSION_COLUMNS}, {QUALIFIED_ACCOUNT_COLUMNS}
FROM sessions s JOIN accounts a ON a.id = s.account_id
WHERE s.digest = $1
""")
LIST_SESSIONS = Query[SessionRow](f"""
SELECT {SESSION_COLUMNS} FROM sessions WHERE account_id = $1 ORDER BY created_at DESC, handle
""")
TOUCH_SESSION = Command("UPDATE sessions SET seen_at = $3 WHERE account_id = $1 AND handle = $2 AND seen_at < $3")
CONFIRM_SESSION = Command("UPDATE sessions SET digest = $3, confirmed_at = $4 WHERE account_id = $1 AND handle = $2")
DELETE_SESSION = Query[tuple[str]]("DELETE FROM sessions WHERE account_id = $1 AND handle = $2 RETURNING handle")
DELETE_SESSIONS = Query[tuple[str]]("DELETE FROM sessions WHERE account_id = $1 AND handle <> $2 RETURNING handle")
PURGE_IDLE_SESSIONS = Command("DELETE FROM sessions WHERE seen_at < $1")
PURGE_OLD_SESSIONS = Command("DELETE FROM sessions WHERE created_at < $1")
COUNT_ATTEMPT = Query[tuple[int, int]]("""
INSERT INTO sign_in_attempts (subject, started_at, count) VALUES ($1, $2, 1)
ON CONFLICT (subject) DO UPDATE
SET count = CASE WHEN sign_in_attempts.started_at > $3 AND sign_in_attempts.started_at <= $2
            THEN sign_in_attempts.count + 1 ELSE 1 END,
    started_at = CASE WHEN sign_in_attempts.started_at > $3 AND sign_in_attempts.started_at <= $2
                 THEN sign_in_attempts.started_at ELSE excluded.started_at END
RETURNING count, started_at
""")
DECREMENT_ATTEMPTS = Command("UPDATE sign_in_attempts SET count = count - 1 WHERE subject = $1 AND count > 0")
PURGE_ATTEMPTS = Command("DELETE FROM sign_in_attempts WHERE started_at < $1")
PURGE_FUTURE_ATTEMPTS = Command("DELETE FROM sign_in_attempts WHERE started_at > $1")
IS_DEVICE = Query[tuple[int]]("""
SELECT 1 FROM accounts a JOIN sign_in_devices d ON d.account_id = a.id WHERE a.email = $1 AND d.digest = $2
""")
SET_DEVICE = Command("""
INSERT INTO sign_in_devices (account_id, digest, used_at) VALUES ($1, $2, $3)
ON CONFLICT (account_id, digest) DO UPDATE SET used_at = excluded.used_at
""")
TRIM_DEVICES = Command("""
DELETE FROM sign_in_devices
WHERE account_id = $1 AND digest NOT IN (
    SELECT digest FROM sign_in_devices WHERE account_id = $1 ORDER BY used_at DESC, digest LIMIT $2
)
""")
DELETE_DEVICES = Command("DELETE FROM sign_in_devices WHERE account_id = $1")
ADD_INVITATION = Command("INSERT INTO invitations (account_id, digest, created_at, expires_at) VALUES ($1, $2, $3, $4)")
FIND_INVITATION = Query[AccountRow](f"""
SELECT {QUALIFIED_ACCOUNT_COLUMNS}
FROM invitations i JOIN accounts a ON a.id = i.account_id
WHERE i.digest = $1 AND i.expires_at > $2
""")
ACCEPT_INVITATION = Query[tuple[int]](
    "DELETE FROM invitations WHERE digest = $1 AND expires_at > $2 RETURNING account_id"
)
DELETE_EXPIRED_INVITATIONS = Command("DELETE FROM invitations WHERE account_id = $1 AND expires_at <= $2")
DELETE_INVITATIONS = Command("DELETE FROM invitations WHERE account_id = $1")
ERASE_ACCOUNT = Command("""
UPDATE accounts
SET name = $2, email = $3, plan_expires_at = NULL, disabled_at = COALESCE(disabled_at, $4), public_contact = '',
    messages_off_at = NULL, about = ''
WHERE id = $1
""")
ERASE_KEYS = Command("UPDATE api_keys SET name = $2, revoked_at = COALESCE(revoked_at, $3) WHERE account_id = $1")
ERASE_EXTERNAL_IDS = Command("""
UPDATE listings SET external_id = NULL WHERE bucket = $1 AND account_id = $2 AND external_id IS NOT NULL
""")
DELETE_IDEMPOTENCY_RECORDS = Command("DELETE FROM idempotency WHERE bucket = $1 AND account_id = $2")

ERASE_BY_ID = [
    Command(f"DELETE FROM {table} WHERE account_id = $1")
    for table in (
        *("members", "invitations", "sign_in_devices", "plan_requests", "plan_reminders", "email_tokens"),
        *("confirmed_emails", "closed_accounts", "listing_reports", "takedowns", "operators"),
    )
]
ERASE_PICTURES = [Command(f"DELETE FROM {table} WHERE account_id = $1") for table in ("pictures", "picture_usage")]
ERASE_BY_PARTITION = [
    Command(f"DELETE FROM {table} WHERE bucket = $1 AND account_id = $2")
    for table in (
        *("idempotency", "activity", "reverts", "change_groups", "usage_hours", "refusals"),
        *("messages", "account_days"),
    )
]
"""The statements that erase what an account has in these tables."""


def _build_limited(
    change: str, table: str, key: str, size: str = "0", condition: str = "bucket = $1 AND account_id = $2"
) -> Query[tuple[int]]:
    return Query[tuple[int]](f"""
{change} WHERE {condition}
    AND ({key}) <= (SELECT {key} FROM {table} WHERE {condition} ORDER BY {key} LIMIT 1 OFFSET $3)
RETURNING {size}
""")


ERASE_ROWS = (
    *(
        _build_limited(f"DELETE FROM {table}", table, *key)
        for table, *key in (
            ("reverts", "id"),
            ("revert_conflicts", "revert_id, number", CONFLICT_BYTES),
            ("changes", "edit_revision, number", STORED_BYTES),
            ("change_groups", "id"),
            ("activity", "revision, number"),
            ("usage_hours", "hour, key_id, status"),
            ("idempotency", "key"),
        )
    ),
    _build_limited(
        "UPDATE listings SET external_id = NULL",
        "listings",
        "external_id, CASE WHEN deleted_at IS NULL THEN 0 ELSE id END",  # the index listings_external_id
        condition="bucket = $1 AND account_id = $2 AND external_id IS NOT NULL",
    ),
)
"""Statements that erase the first $3 + 1 rows of an account in the order of an index, or none if there are fewer.

They return the bytes of each row that are counted in `history_bytes`.
"""

ERASE_HISTORY = ERASE_ROWS[:3]
"""Those of reverts, their conflicts, and changes."""

# Activity

ADD_EVENT = Command(f"""
INSERT INTO activity (bucket, account_id, {EVENT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
""")
GET_LAST_NUMBER = Query[tuple[int]](
    "SELECT COALESCE(MAX(number), 0) FROM activity WHERE bucket = $1 AND account_id = $2 AND revision = $3"
)
SET_EVENT_DETAIL = Query[tuple[int]]("""
UPDATE activity SET detail = $4 WHERE bucket = $1 AND account_id = $2 AND revision = $3 AND number = 0
RETURNING number
""")
SET_IMPORT_REVISION = Command("""
UPDATE imports SET revision = $6
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
""")
GET_IMPORT_REVISION = Query[tuple[int | None, int | None]]("""
SELECT revision, edit_revision FROM imports
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
""")
PAGE_EVENTS = Query[tuple[int, int, int, int, EventKind, int, str, int]](f"""
SELECT {EVENT_COLUMNS}, COALESCE(CASE WHEN kind IN ('batch', 'bulk', 'import') THEN subject
    WHEN kind = 'reverted' THEN (
        SELECT group_id FROM reverts
        WHERE reverts.bucket = $1 AND reverts.account_id = $2 AND reverts.id = activity.subject) END, 0)
FROM activity
WHERE bucket = $1 AND account_id = $2 AND (revision, number) < ($3, $4)
UNION ALL
SELECT revision, number, moment, author, kind, listing_id,
    CASE WHEN kind = 'updated' THEN '["' || replace(fields, ',', '","') || '"]' ELSE '' END,
    edit_revision FROM changes
WHERE bucket = $1 AND account_id = $2 AND revision IS NOT NULL AND (revision, number) < ($3, $4)
ORDER BY revision DESC, number DESC LIMIT $5
""")

PAGE_CREATIONS = Query[tuple[int, int | None, int | None, str, int | None]](
    build_page("id, author, revision, created_at, edit_revision", descending=True)
)

LIST_CONSOLE_KEYS = Query[tuple[int]]("""
SELECT k.id FROM activity e CROSS JOIN api_keys k
WHERE bucket = $1 AND e.account_id = $2 AND kind IN ('key_added', 'key_rotated') AND author = -1 AND k.id = subject
    AND k.revoked_at IS NULL AND COALESCE(k.expires_at > $3, TRUE)
""")
SET_BACK_EVENTS = Command("UPDATE activity SET moment = $2 WHERE bucket = $1 AND moment > $2")
PURGE_EVENTS = Query[tuple[int]]("""
DELETE FROM activity WHERE bucket = $1 AND (account_id, revision, number) IN (
    SELECT account_id, revision, number FROM activity
    WHERE bucket = $1 AND moment < $2 AND (kind <> 'key_rotated' OR moment < $2 - 366 * 86400)
        AND NOT (kind IN ('key_added', 'key_rotated') AND author = -1)
    ORDER BY moment LIMIT $3)
RETURNING number
""")
"""Events of key rotations are stored for a year longer, until the old key has expired and can't be rotated again.

Those of keys from the console are never purged: only they say who has seen the secret."""

PURGE_IMPORTS = Query[tuple[int]]("DELETE FROM imports WHERE bucket = $1 AND finished_at < $2 RETURNING finished_at")

# Usage

ADD_USAGE = Command("""
INSERT INTO usage_hours (bucket, account_id, hour, key_id, status, count) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (bucket, account_id, hour, key_id, status) DO UPDATE SET count = usage_hours.count + excluded.count
""")
LIST_USAGE_BY_HOUR = Query[tuple[int, int, int, int]]("""
SELECT hour, key_id, status, count FROM usage_hours
WHERE bucket = $1 AND account_id = $2 AND hour >= $3
ORDER BY hour, key_id, status
""")
LIST_USAGE_BY_DAY = Query[tuple[int, int, int, int]]("""
SELECT hour / 24, key_id, status, CAST(SUM(count) AS bigint) FROM usage_hours
WHERE bucket = $1 AND account_id = $2 AND hour >= $3
GROUP BY hour / 24, key_id, status
ORDER BY hour / 24, key_id, status
""")
PURGE_USAGE = Query[tuple[int]]("""
DELETE FROM usage_hours WHERE bucket = $1 AND (account_id, hour, key_id, status) IN (
    SELECT account_id, hour, key_id, status FROM usage_hours WHERE bucket = $1 AND hour < $2 ORDER BY hour LIMIT $3)
RETURNING hour
""")
ADD_REJECTED_REQUEST = Command(f"""
INSERT INTO refusals (bucket, {REJECTED_REQUEST_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (bucket, account_id, moment, request_id) DO NOTHING
""")
TRIM_REJECTED_REQUESTS = Command("""
DELETE FROM refusals WHERE bucket = $1 AND account_id = $2 AND moment <= (
    SELECT moment FROM refusals WHERE bucket = $1 AND account_id = $2 ORDER BY moment DESC LIMIT 1 OFFSET $3)
""")
LIST_REJECTED_REQUESTS = Query[tuple[int, int, int, str, int, str, str, str, str]](f"""
SELECT {REJECTED_REQUEST_COLUMNS} FROM refusals WHERE bucket = $1 AND account_id = $2
ORDER BY moment DESC, request_id DESC LIMIT $3
""")
PURGE_REJECTED_REQUESTS = Query[tuple[int]]("""
DELETE FROM refusals WHERE bucket = $1 AND (account_id, moment, request_id) IN (
    SELECT account_id, moment, request_id FROM refusals WHERE bucket = $1 AND moment < $2 ORDER BY moment LIMIT $3)
RETURNING moment
""")

# Requests for the plan

ADD_PLAN_REQUEST = Query[tuple[int]]("""
INSERT INTO plan_requests (account_id, requested_at) VALUES ($1, $2)
ON CONFLICT (account_id) DO UPDATE SET requested_at = excluded.requested_at, declined_at = NULL, reason = ''
WHERE plan_requests.declined_at IS NOT NULL
RETURNING account_id
""")
GET_PLAN_REQUEST = Query[tuple[int, int | None, str]](
    "SELECT requested_at, declined_at, reason FROM plan_requests WHERE account_id = $1"
)
DECLINE_PLAN_REQUEST = Query[tuple[int]]("""
UPDATE plan_requests SET declined_at = $2, reason = $3 WHERE account_id = $1 AND declined_at IS NULL
RETURNING requested_at
""")
DELETE_PLAN_REQUEST = Command("DELETE FROM plan_requests WHERE account_id = $1")

# Payments

FIND_PAYMENT = Query[tuple[int]]("SELECT 1 FROM payments WHERE provider = $1 AND payment_id = $2")
ADD_PAYMENT = Query[tuple[str]]("""
INSERT INTO payments (provider, payment_id, account_id, months, invoice, plan_expires_at, received_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (provider, payment_id) DO NOTHING
RETURNING payment_id
""")
LIST_PAYMENTS = Query[tuple[str, str, int, int, str, int]]("""
SELECT provider, payment_id, account_id, months, invoice, received_at FROM payments WHERE account_id = $1
ORDER BY received_at DESC, payment_id DESC LIMIT $2
""")
