"""Databases of Listings as tests of backups use them, filled without the service."""

from contextlib import closing
from pathlib import Path

import apsw

from tests.sqlite_database import create_database

CREATED = "2026-01-02 03:04:05"
LISTING = (
    "INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type,"
    " location, region, district, is_active, created_at, updated_at)"
    " VALUES (?1 * 1024 + (?2 & 1023), ?2 & 1023, ?2, ?3, ?3, 'product', '', '[]', 0, 'fixed', '', '', '', 1, ?4, ?4)"
)

STORED = """
INSERT INTO changes (bucket, account_id, edit_revision, number, listing_id, moment, author, kind, last_serial, fields,
    detail)
VALUES (5, 5, 1, 0, 0, 7, 1, 'created', 1, '', '[[1,1]]'),
    (5, 5, 2, 0, 1029, 9, 1, 'updated', 1, 'title', '[["é","b"]]');
INSERT INTO revert_conflicts (bucket, account_id, revert_id, number, listing_id, reason, fields)
VALUES (5, 5, 2, 1, 1029, 'changed_later', '["title"]');
INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location,
    region, district, is_active, created_at, updated_at, deleted_at)
VALUES (1029, 5, 5, 't', 'é', 'job', '', '[]', 0, 'fixed', '', '', '', FALSE, 'x', 'x', 5),
    (2053, 5, 5, 't', 'content', 'job', '', '[]', 0, 'fixed', '', '', '', TRUE, 'x', 'x', NULL)
"""
"""What an account with the id 5 has stored."""
STORED_BYTES = 100 + len('[["é","b"]]'.encode()) + 100 + len('["title"]') + 600 + len("té[]".encode())


def connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA foreign_keys = ON").fetchall()
    return connection


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(connect(path)) as connection:
        return connection.execute(query).fetchall()


def change(path: Path, *statements: str) -> None:
    with closing(connect(path)) as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def add_account(connection: apsw.Connection, number: int) -> None:
    connection.execute(
        "INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (?1, ?1 & 1023, 'alice', ?1, 1767323045)",
        (number,),
    ).fetchall()
    connection.execute(
        "INSERT INTO account_state (bucket, account_id, revision) VALUES (?1 & 1023, ?1, 0)", (number,)
    ).fetchall()
    connection.execute(
        "INSERT INTO api_keys (id, account_id, digest, hint, name, created_at)"
        " VALUES (?1, ?1, randomblob(32), 'lst_', 'warehouse', 1767323045)",
        (number,),
    ).fetchall()


def add_listing(connection: apsw.Connection, account: int, serial: int, size: int = 10) -> None:
    """A listing whose text is of some size; in a transaction of its own, as the service would make it."""
    with connection:
        connection.execute(LISTING, (serial, account, "x" * size, CREATED)).fetchall()
        connection.execute(
            "UPDATE account_state SET revision = revision + 1, edit_revision = edit_revision + 1 WHERE account_id = ?",
            (account,),
        ).fetchall()


def make(path: Path, accounts: int = 1, listings: int = 3, size: int = 10) -> Path:
    create_database(path)
    with closing(connect(path)) as connection:
        for account in range(1, accounts + 1):
            add_account(connection, account)
            for serial in range(1, listings + 1):
                add_listing(connection, account, serial, size)
    return path


def is_sound(path: Path) -> bool:
    return rows(path, "PRAGMA integrity_check") == [("ok",)] and rows(path, "PRAGMA foreign_key_check") == []


def damage(path: Path) -> None:
    """Overwrite the middle of the file, where its pages of rows are."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xa5" * min(8192, len(content) - middle)
    path.write_bytes(content)
