"""Copy a database of Listings into a new database: `DATABASE=new.db python load.py listings.db`.

Prints the new keys of the accounts as JSON: none, because both store the same hash of a key.
"""

import asyncio
import json
import sqlite3
import sys
from datetime import UTC, datetime

from database import Base, SessionLocal, engine
from models import Account, ApiKey, Listing
from sqlalchemy import insert


def from_timestamp(seconds: int | None) -> datetime | None:
    """Convert a Unix timestamp to a UTC time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def build_listing(row: sqlite3.Row) -> dict[str, object]:
    """Build the values of a listing from a row."""
    values = dict(row)
    return {
        **{column.name: values.get(column.name) for column in Listing.__table__.columns},
        "images": json.loads(row["images"]),
        "price": row["price_cents"] / 100,
        "is_active": bool(row["is_active"]),
        "created_at": datetime.fromisoformat(row["created_at"]),
        "updated_at": datetime.fromisoformat(row["updated_at"]),
        "deleted_at": from_timestamp(row["deleted_at"]),
    }


async def load(source: sqlite3.Connection) -> None:
    """Copy accounts, keys and listings."""
    accounts = [
        {**row, "plan_expires_at": from_timestamp(row["plan_expires_at"])}
        for row in map(dict, source.execute("SELECT id, name, email, plan_expires_at FROM accounts"))
    ]
    keys = [
        {"id": row["id"], "account_id": row["account_id"], "key_hash": row["digest"].hex()}
        for row in source.execute("SELECT id, account_id, digest FROM api_keys WHERE revoked_at IS NULL")
    ]
    listings = [build_listing(row) for row in source.execute("SELECT * FROM listings")]
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with SessionLocal.begin() as session:
        await session.execute(insert(Account), accounts)
        await session.execute(insert(ApiKey), keys)
        await session.execute(insert(Listing), listings)
    await engine.dispose()


if __name__ == "__main__":
    database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    asyncio.run(load(database))
    print(json.dumps({}))
