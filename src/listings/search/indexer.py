"""Keep this machine's index current: follow the changes in the database, and build the index if it can't be followed.

Only one process of a machine does this. It serves no requests, because the analysis of texts would delay them.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from listings.domain.errors import Unavailable
from listings.domain.market import MarketState
from listings.search import folders
from listings.search.folders import Folder
from listings.search.schema import Position
from listings.search.writer import IndexDamageError, OpenIndex
from listings.store.store import Store

_READ = 50  # listings in one step of reading; each may have 400 kB
_MAX_COMMIT = 1_000  # changes
_MAX_BUILD_COMMIT = 5_000  # listings
_POLL_SECONDS = 0.1
_QUIET_SECONDS, _MAX_WAIT_SECONDS = 0.2, 0.5  # before a commit: without further changes, and with some
_RETRY_SECONDS = 1.0
_MAX_FAILURES = 3  # in a row, before the index is taken for damaged
_MAX_AGE_SECONDS = 29 * 86_400  # an index is built again, so that it keeps nothing of erased accounts
_CHECK_SECONDS = 600.0  # between comparisons of the files with their checksums, 0.15 s for a million listings
_PROBE_BYTES = 65_536

_log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    since: float
    sequence: int  # the last one
    quiet_since: float  # when it was noticed


class Indexer:
    """Follows the database with the index that serves searches, and with the next one while that is built."""

    def __init__(self, store: Store, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._root = root
        self._clock = clock
        self._lock: int | None = None
        self._database_id: str | None = None
        self._indexes: list[OpenIndex] = []  # at most two, the one that serves first
        self._waiting: _Waiting | None = None
        self._failures = 0
        self._checked_at = time.monotonic()

    async def run(self) -> None:
        """Follow the database until cancelled."""
        while True:
            try:
                has_more = await self.step()
                self._failures = 0
            except Unavailable:
                has_more = False  # the database is; the next step tries again
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                    raise
                self._recover(error)  # tantivy's PanicException is a BaseException
                has_more = False
                await asyncio.sleep(_RETRY_SECONDS)
            if not has_more:
                await asyncio.sleep(_POLL_SECONDS)

    async def update(self) -> None:
        """Follow all changes until now, without waiting for further ones."""
        while await self.step(is_patient=False):
            pass

    async def step(self, *, is_patient: bool = True) -> bool:
        """Read and commit some changes. Return whether there are more."""
        if self._lock is None:
            self._lock = folders.lock_writer(self._root)
            if self._lock is None:
                return False
        state = await self._store.get_market_state()
        if self._database_id is None:
            self._database_id = await self._store.get_database_id()
        name = f"{self._database_id} {self._store.restore_id}"
        origin = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
        self._check_open_ones()
        self._open(state, origin)
        has_more = False
        for index in list(self._indexes):
            if index.position.sequence < state.sequence and not (is_patient and self._must_wait(index, state)):
                has_more = (await self._follow(index)) or has_more
            if index.position.unread:
                has_more = (await self._build(index)) or has_more
        if len(self._indexes) > 1 and not self._indexes[1].position.unread:
            old = self._indexes.pop(0)
            old.folder.mark_damaged()  # so that no process opens it again
            old.close()
        if self._indexes and not self._indexes[0].position.unread:
            folders.remove_unused(self._root, {it.folder.path for it in self._indexes})
        return has_more

    def close(self) -> None:
        """Close the indexes, and let another process write them."""
        self._close_indexes()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _close_indexes(self) -> None:
        indexes, self._indexes = self._indexes, []
        for index in indexes:
            with suppress(Exception):
                index.close()

    def _open(self, state: MarketState, origin: int) -> None:
        self._indexes = [it for it in self._indexes if it.folder.path.exists()]
        if not self._indexes:
            self._indexes = self._open_existing(state, origin)
        is_followable = bool(self._indexes) and _is_followable(self._indexes[-1].position, state, origin)
        if len(self._indexes) == 2 and not is_followable:  # noqa: PLR2004 - the one that is built
            self._indexes.pop().close()
        if len(self._indexes) < 2 and (not is_followable or self._must_replace(self._indexes[0])):  # noqa: PLR2004
            folders.remove_unused(self._root, {it.folder.path for it in self._indexes})  # unfinished ones, too
            start = Position(state.sequence, state.serial + 1, state.sequence, origin)
            self._indexes.append(OpenIndex(folders.create_folder(self._root), start))

    def _open_existing(self, state: MarketState, origin: int) -> list[OpenIndex]:
        serving = folders.choose_folder(self._root)
        building = [it for it in folders.list_folders(self._root) if it.is_current and it.is_usable]
        unfinished = next((it for it in building if not it.is_complete), None)
        indexes = []
        for folder in dict.fromkeys((serving, unfinished)):
            index = self._open_folder(folder) if folder is not None else None
            if index is None:
                continue
            if index.folder.is_complete or _is_followable(index.position, state, origin):
                indexes.append(index)
            else:
                index.close()
        return indexes

    def _open_folder(self, folder: Folder) -> OpenIndex | None:
        try:
            self._check(folder)
            return OpenIndex(folder)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
            self._probe()
            _log.warning("The search index %s is damaged and is built again: %s", folder.path.name, error)
            folder.mark_damaged()
            return None

    def _check_open_ones(self) -> None:
        if time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self._checked_at = time.monotonic()
            for index in self._indexes:
                self._check(index.folder)

    def _check(self, folder: Folder) -> None:
        damaged = folder.find_damaged_file()
        if damaged is not None:
            raise IndexDamageError(f"the bytes of {damaged} have changed")

    def _must_replace(self, index: OpenIndex) -> bool:
        if folders.take_rebuild(self._root) or not index.folder.is_usable or not index.folder.is_current:
            return True
        is_old = self._clock() - index.folder.created_at > _MAX_AGE_SECONDS
        return not index.position.unread and (is_old or index.has_many_dead())

    def _must_wait(self, index: OpenIndex, state: MarketState) -> bool:
        now = time.monotonic()
        if index.position.unread or state.sequence - index.position.sequence >= _MAX_COMMIT:
            return False
        if self._waiting is None:
            self._waiting = _Waiting(now, state.sequence, now)
        elif self._waiting.sequence != state.sequence:
            self._waiting = self._waiting._replace(sequence=state.sequence, quiet_since=now)
        return now - self._waiting.quiet_since < _QUIET_SECONDS and now - self._waiting.since < _MAX_WAIT_SECONDS

    async def _follow(self, index: OpenIndex) -> bool:
        self._waiting = None
        sequence, done = index.position.sequence, 0
        while done < _MAX_COMMIT:
            changes = await self._store.list_market_changes(sequence, _READ)
            index.apply(changes)
            done += len(changes)
            sequence = changes[-1].sequence if changes else sequence
            if len(changes) < _READ:
                break
        if done:
            index.commit(index.position._replace(sequence=sequence))
        return done >= _MAX_COMMIT

    async def _build(self, index: OpenIndex) -> bool:
        before, start = index.position.unread, index.position.start
        for _ in range(_MAX_BUILD_COMMIT // _READ):
            listings = await self._store.list_unread_listings(before, _READ)
            # Those with later changes are read as changes.
            index.add(it for it in listings if it.sequence <= start)
            before = listings[-1].serial if len(listings) == _READ else 0
            if not before:
                break
        index.commit(index.position._replace(unread=before))
        if not before:
            index.folder.mark_complete()
        return bool(before)

    def _recover(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            _log.warning("The search index can't be updated: %s", error)
        is_damaged = self._failures >= _MAX_FAILURES or isinstance(error, IndexDamageError)
        is_damaged = is_damaged or not isinstance(error, Exception)
        used = [it.folder for it in self._indexes]
        self._close_indexes()  # after a failed commit, a writer never works again
        with suppress(OSError):
            self._probe()
            for folder in used if is_damaged else ():
                folder.mark_damaged()

    def _probe(self) -> None:
        # A disk that is full, read-only or gone does not mean that the index is damaged.
        path = self._root / "probe"
        try:
            path.write_bytes(bytes(_PROBE_BYTES))
        finally:
            path.unlink(missing_ok=True)


def _is_followable(position: Position, state: MarketState, origin: int) -> bool:
    return position.origin == origin and state.purged <= position.sequence <= state.sequence
