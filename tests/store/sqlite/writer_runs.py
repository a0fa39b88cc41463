"""Operations on a table of notes, and ways to run them with a writer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.domain.errors import Problem
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.writer import writer as writers
from listings.store.sqlite.writer.writer import Writer
from tests.harness import TIMEOUT


def create_notes(folder: Path) -> Path:
    path = folder / "notes.db"
    path.touch()
    open_writer(path).execute("CREATE TABLE notes (text TEXT NOT NULL UNIQUE) STRICT")
    return path


def set_lock_timeout(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let a writer wait only for some seconds for the write lock, and check for it five times meanwhile."""
    monkeypatch.setattr(writers, "_LOCK_TIMEOUT_SECONDS", seconds)
    monkeypatch.setattr(writers, "_LOCK_CHECK_SECONDS", seconds / 5)


def insert(text: str) -> Callable[[apsw.Connection], int]:
    def operation(connection: apsw.Connection) -> int:
        connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))
        return connection.last_insert_rowid()

    return operation


def insert_and_reject(connection: apsw.Connection) -> int:
    connection.execute("INSERT INTO notes (text) VALUES ('rejected')")
    raise Problem("not_owner", "no")


def read_texts(path: Path) -> set[str]:
    return {str(row[0]) for row in apsw.Connection(str(path)).execute("SELECT text FROM notes").fetchall()}


def run_with_writer(path: Path, use: Callable[[Writer], Any]) -> Any:
    async def run() -> Any:
        writer = Writer(path)
        try:
            return await use(writer)
        finally:
            await writer.close()

    return asyncio.run(run())


def run_concurrently(*operations: Callable[[apsw.Connection], Any]) -> Callable[[Writer], Any]:
    async def use(writer: Writer) -> list[Any]:
        return await asyncio.gather(*map(writer.run, operations), return_exceptions=True)

    return use


@asynccontextmanager
async def block(writer: Writer) -> AsyncIterator[None]:
    """Keep the writer inside one operation, so that the operations queued meanwhile wait."""
    entered, unblock = threading.Event(), threading.Event()

    def wait(_: apsw.Connection) -> None:
        entered.set()
        unblock.wait(TIMEOUT)

    blocked = asyncio.ensure_future(writer.run(wait))
    await asyncio.to_thread(entered.wait, TIMEOUT)
    yield
    unblock.set()
    await blocked


def run_in_one_batch(*operations: Callable[[apsw.Connection], Any]) -> Callable[[Writer], Any]:
    async def use(writer: Writer) -> list[Any]:
        async with block(writer):
            waiting: asyncio.Future[list[Any]] = asyncio.ensure_future(run_concurrently(*operations)(writer))
            while writer.queued < len(operations):  # noqa: ASYNC110 - the writer has no event for it
                await asyncio.sleep(0)
        return await waiting

    return use
