"""Clients that write, keep a log of what was acknowledged, and repeat what they have no answer to."""

import asyncio
from collections.abc import Iterable
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

import apsw

from tests.torture.wire import LONGEST, PATH, Answer, Line, LostError

Rows: TypeAlias = dict[int, "VersionedCache"]
_MOST_OWN = 40  # live listings of a writer: then it deletes some
_ROWS = "SELECT id, account_id, title, price_cents, version, deleted_at IS NOT NULL FROM listings"
_PAUSE = 0.01  # seconds after a refusal


class VersionedCache(NamedTuple):
    """What a listing must be."""

    title: str
    cents: int
    version: int
    is_deleted: bool


class Ask(NamedTuple):
    """A write that is on its way, or whose end is not known."""

    method: str
    listing_id: int  # 0: a new one
    after: VersionedCache  # what the listing is then
    key: str  # of idempotency

    @property
    def path(self) -> str:
        return f"{PATH}/{self.listing_id}" if self.listing_id else PATH

    @property
    def data(self) -> object:
        if self.method == "POST":
            return {"title": self.after.title, "content": "c" * 200, "price": self.after.cents / 100}
        return {"price": self.after.cents / 100} if self.method == "PATCH" else None


class Writer:
    """Makes, changes and deletes listings that nobody else touches."""

    def __init__(self, port: int, key: str, account_id: int, name: str) -> None:
        self.account_id = account_id
        self.name = name
        self.known: Rows = {}
        self.doubt: Ask | None = None
        self.acknowledged = 0
        self.refused = 0
        self.repeated = 0
        self.faults: list[str] = []
        self.is_ending = False
        self.is_asking = False
        self._line = Line(port, key)
        self._random = Random(name)
        self._number = 0
        self._live: list[int] = []

    async def work(self, gate: asyncio.Event) -> None:
        """While the gate is open, until it is to end: then nothing is in doubt any more."""
        while not self.is_ending or self.doubt is not None:
            await gate.wait()
            if self.is_ending and self.doubt is None:
                break
            is_repeat = self.doubt is not None
            fetch = self.doubt = self.doubt or self._next()
            self.is_asking = True
            try:
                answer = await self._line.fetch(fetch.method, fetch.path, fetch.data, self._headers(fetch))
            except LostError:
                self.is_asking = False
                await asyncio.sleep(_PAUSE)
                continue
            self.is_asking = False
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self.refused += 1
                await asyncio.sleep(_PAUSE)
                continue
            self.repeated += is_repeat
            self.doubt = None
            self._note(fetch, answer, is_repeat=is_repeat)
        self._line.close()

    def _headers(self, fetch: Ask) -> dict[str, str]:
        return {"Idempotency-Key": fetch.key} if fetch.method == "POST" else {}

    def _next(self) -> Ask:
        self._number += 1
        title = f"{self.name}-{self._number}"
        if not self._live or (self._random.random() < 0.4 and len(self._live) < _MOST_OWN):
            return Ask("POST", 0, VersionedCache(title, self._number, 1, is_deleted=False), title)
        listing_id = self._random.choice(self._live)
        before = self.known[listing_id]
        if self._random.random() < 0.2:
            return Ask("DELETE", listing_id, before._replace(version=before.version + 1, is_deleted=True), "")
        return Ask("PATCH", listing_id, before._replace(version=before.version + 1, cents=self._number), "")

    def _note(self, fetch: Ask, answer: Answer, *, is_repeat: bool) -> None:
        done = {"POST": 201, "PATCH": 200, "DELETE": 200}[fetch.method]
        if is_repeat and fetch.method == "DELETE" and answer.status == HTTPStatus.NOT_FOUND:
            done = HTTPStatus.NOT_FOUND  # it was done at the first time
        if answer.status != done:
            self.faults.append(f"{self.name}: {fetch} was answered {answer.status} {answer.body[:200]!r}")
            if fetch.method != "POST":
                self._live.remove(fetch.listing_id)  # who asked for it again and again would come to nothing else
            return
        self.acknowledged += 1
        listing_id = int(answer.json()["id"]) if fetch.method == "POST" else fetch.listing_id
        if fetch.method == "POST" and listing_id in self.known:
            self.faults.append(f"{self.name}: the id {listing_id} was given twice")
        self.known[listing_id] = fetch.after
        if fetch.method == "POST":
            self._live.append(listing_id)
        elif fetch.method == "DELETE":
            self._live.remove(listing_id)

    # What is stored

    def compare(self, stored: Rows) -> list[str]:
        """What differs from what was acknowledged, other than by what is in doubt."""
        faults, self.faults = self.faults, []
        doubt = self.doubt
        for listing_id, kept in self.known.items():
            found = stored.get(listing_id)
            may_be = doubt is not None and doubt.listing_id == listing_id and found == doubt.after
            if found != kept and not may_be:
                faults.append(f"{self.name}: listing {listing_id} is {found}, and {kept} was acknowledged")
        unknown = [kept for listing_id, kept in stored.items() if listing_id not in self.known]
        allowed = [doubt.after] if doubt is not None and doubt.method == "POST" else []
        if unknown and unknown != allowed:
            faults.append(f"{self.name}: {unknown[:3]} was made, and {allowed} was asked for")
        return faults


async def finish(writers: list[Writer], tasks: Iterable[asyncio.Task[None]], gate: asyncio.Event) -> None:
    """Let them repeat what is in doubt, and no more."""
    for writer in writers:
        writer.is_ending = True
    gate.set()
    async with asyncio.timeout(LONGEST):
        await asyncio.gather(*tasks)


async def until_silent(writers: list[Writer]) -> None:
    """Until none waits for an answer, with the gate closed."""
    async with asyncio.timeout(LONGEST):
        while any(writer.is_asking for writer in writers):  # noqa: ASYNC110 - each tells it for itself
            await asyncio.sleep(_PAUSE)
    await asyncio.sleep(_PAUSE)


def stored_rows(database: Path) -> dict[int, Rows]:
    """All listings by account, as another program reads them; the file must be sound."""
    with closing(apsw.Connection(str(database))) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchall()
        assert found == [("ok",)], found
        rows = connection.execute(_ROWS).fetchall()
    return by_account(rows)


def by_account(rows: Iterable[tuple[object, ...]]) -> dict[int, Rows]:
    """Rows of id, account, title, cents, version and whether it is deleted."""
    accounts: dict[int, Rows] = {}
    for listing_id, account_id, title, cents, version, is_deleted in rows:
        kept = VersionedCache(str(title), int(str(cents)), int(str(version)), bool(is_deleted))
        accounts.setdefault(int(str(account_id)), {})[int(str(listing_id))] = kept
    return accounts


def compare_all(writers: Iterable[Writer], stored: dict[int, Rows]) -> list[str]:
    """Each writer has an account of its own."""
    return [fault for writer in writers for fault in writer.compare(stored.get(writer.account_id, {}))]
