"""Clients that write, log the acknowledged writes, and retry the others."""

import asyncio
from collections.abc import Iterable
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

import apsw

from tests.harness import TIMEOUT
from tests.http.raw import PATH, AsyncConnection, ConnectionLostError, RawResponse

Rows: TypeAlias = dict[int, "ListingState"]
_MAX_LIVE_LISTINGS = 40  # per writer; it then deletes some
_SELECT_LISTINGS = "SELECT id, account_id, title, price_cents, version, deleted_at IS NOT NULL FROM listings"
_PAUSE_SECONDS = 0.01  # after a rejected write


class ListingState(NamedTuple):
    title: str
    cents: int
    version: int
    is_deleted: bool


class PendingWrite(NamedTuple):
    """A write that is in flight, or whose outcome is unknown."""

    method: str
    listing_id: int  # 0 for a new listing
    expected: ListingState  # state of the listing after the write
    key: str  # Idempotency-Key of a POST

    @property
    def path(self) -> str:
        return f"{PATH}/{self.listing_id}" if self.listing_id else PATH

    @property
    def data(self) -> object:
        if self.method == "POST":
            return {"title": self.expected.title, "content": "c" * 200, "price": self.expected.cents / 100}
        return {"price": self.expected.cents / 100} if self.method == "PATCH" else None


class Writer:
    """Creates, changes and deletes listings that no other client touches."""

    def __init__(self, port: int, key: str, account_id: int, name: str) -> None:
        self.account_id = account_id
        self.name = name
        self.known: Rows = {}
        self.pending: PendingWrite | None = None
        self.acknowledged = 0
        self.rejected = 0
        self.repeated = 0
        self.failures: list[str] = []
        self.is_finishing = False
        self.is_waiting = False
        self._connection = AsyncConnection(port, key)
        self._random = Random(name)
        self._number = 0
        self._live: list[int] = []

    async def work(self, gate: asyncio.Event) -> None:
        """Write while the gate is open, until `is_finishing` is set and no write is pending."""
        while not self.is_finishing or self.pending is not None:
            await gate.wait()
            if self.is_finishing and self.pending is None:
                break
            is_repeat = self.pending is not None
            write = self.pending = self.pending or self._next()
            self.is_waiting = True
            try:
                response = await self._connection.fetch(write.method, write.path, write.data, self._headers(write))
            except ConnectionLostError:
                self.is_waiting = False
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self.is_waiting = False
            if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.rejected += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self.repeated += is_repeat
            self.pending = None
            self._record(write, response, is_repeat=is_repeat)
        self._connection.close()

    def _headers(self, write: PendingWrite) -> dict[str, str]:
        return {"Idempotency-Key": write.key} if write.method == "POST" else {}

    def _next(self) -> PendingWrite:
        self._number += 1
        title = f"{self.name}-{self._number}"
        if not self._live or (self._random.random() < 0.4 and len(self._live) < _MAX_LIVE_LISTINGS):
            return PendingWrite("POST", 0, ListingState(title, self._number, 1, is_deleted=False), title)
        listing_id = self._random.choice(self._live)
        current = self.known[listing_id]
        if self._random.random() < 0.2:
            return PendingWrite(
                "DELETE", listing_id, current._replace(version=current.version + 1, is_deleted=True), ""
            )
        return PendingWrite("PATCH", listing_id, current._replace(version=current.version + 1, cents=self._number), "")

    def _record(self, write: PendingWrite, response: RawResponse, *, is_repeat: bool) -> None:
        expected_status = {"POST": 201, "PATCH": 200, "DELETE": 200}[write.method]
        if is_repeat and write.method == "DELETE" and response.status == HTTPStatus.NOT_FOUND:
            expected_status = HTTPStatus.NOT_FOUND  # the first attempt has deleted it
        if response.status != expected_status:
            self.failures.append(f"{self.name}: {write} returned {response.status} {response.body[:200]!r}")
            if write.method != "POST":
                self._live.remove(write.listing_id)  # another attempt would fail as well
            return
        self.acknowledged += 1
        listing_id = int(response.json()["id"]) if write.method == "POST" else write.listing_id
        if write.method == "POST" and listing_id in self.known:
            self.failures.append(f"{self.name}: the id {listing_id} was assigned twice")
        self.known[listing_id] = write.expected
        if write.method == "POST":
            self._live.append(listing_id)
        elif write.method == "DELETE":
            self._live.remove(listing_id)

    # Comparison with the database

    def find_differences(self, stored: Rows) -> list[str]:
        """Return differences from the acknowledged writes, apart from the pending write."""
        failures, self.failures = self.failures, []
        pending = self.pending
        for listing_id, expected in self.known.items():
            found = stored.get(listing_id)
            may_be = pending is not None and pending.listing_id == listing_id and found == pending.expected
            if found != expected and not may_be:
                failures.append(f"{self.name}: listing {listing_id} is {found}, but {expected} was acknowledged")
        unknown = [expected for listing_id, expected in stored.items() if listing_id not in self.known]
        allowed = [pending.expected] if pending is not None and pending.method == "POST" else []
        if unknown and unknown != allowed:
            failures.append(f"{self.name}: {unknown[:3]} was created, but the pending writes are {allowed}")
        return failures


async def finish_writers(writers: list[Writer], tasks: Iterable[asyncio.Task[None]], gate: asyncio.Event) -> None:
    """Let the writers retry their pending writes, and stop."""
    for writer in writers:
        writer.is_finishing = True
    gate.set()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*tasks)


async def wait_until_idle(writers: list[Writer]) -> None:
    """Wait until no request is in flight; the gate must be closed."""
    async with asyncio.timeout(TIMEOUT):
        while any(writer.is_waiting for writer in writers):  # noqa: ASYNC110 - no common event
            await asyncio.sleep(_PAUSE_SECONDS)
    await asyncio.sleep(_PAUSE_SECONDS)


def read_stored_rows(database: Path) -> dict[int, Rows]:
    """Read all listings by account from the file, which must be intact."""
    with closing(apsw.Connection(str(database))) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchall()
        assert found == [("ok",)], found
        rows = connection.execute(_SELECT_LISTINGS).fetchall()
    return group_by_account(rows)


def group_by_account(rows: Iterable[tuple[object, ...]]) -> dict[int, Rows]:
    """Group rows of (id, account, title, cents, version, is_deleted) by account."""
    accounts: dict[int, Rows] = {}
    for listing_id, account_id, title, cents, version, is_deleted in rows:
        expected = ListingState(str(title), int(str(cents)), int(str(version)), bool(is_deleted))
        accounts.setdefault(int(str(account_id)), {})[int(str(listing_id))] = expected
    return accounts


def find_all_differences(writers: Iterable[Writer], stored: dict[int, Rows]) -> list[str]:
    """Compare the listings of each writer's account."""
    return [failure for writer in writers for failure in writer.find_differences(stored.get(writer.account_id, {}))]
