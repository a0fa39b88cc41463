"""The database engine, and a session per request."""

import os
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase

engine = create_async_engine(
    f"sqlite+aiosqlite:///{os.environ.get('DATABASE', 'listings.db')}", connect_args={"timeout": 30}
)
SessionLocal = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    """The base of all models."""


@event.listens_for(engine.sync_engine, "connect")
def set_pragmas(connection: Any, _record: Any) -> None:
    """Use WAL, so that readers do not wait for writers, and sync every commit."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


async def get_session() -> AsyncIterator[AsyncSession]:
    """Yield a session; close it after the response."""
    async with SessionLocal() as session:
        yield session
