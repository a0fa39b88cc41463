"""Search this machine's index from a serving process. Searches run in two threads, which don't hold Python's lock."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from tantivy import Index, Order, Searcher

from listings.domain.errors import Unavailable
from listings.search import folders
from listings.search.folders import Folder
from listings.search.queries import between
from listings.search.schema import MAX_KEY, read_position

T = TypeVar("T")

_THREADS = 2
_MAX_SECONDS = 10.0  # a search takes about 20 ms at most, but the machine may be busy
_ENVIRONMENT = re.compile("lock|space|permission|read-only|open files", re.IGNORECASE)  # no damage of the index
_MESSAGE = "Search is unavailable at the moment. Try again later"

_log = logging.getLogger(__name__)


class View(NamedTuple):
    """A snapshot of the index, and the highest serial in it. `is_complete`: whether the index has been built."""

    searcher: Searcher
    is_complete: bool
    newest: int


class _Opened(NamedTuple):
    folder: Folder
    lock: int


class Reader:
    """Opens the index that serves, and follows its commits."""

    def __init__(self, root: Path | None) -> None:
        """Without a folder, there is never an index."""
        self._root = root
        self._opened: _Opened | None = None
        self._index: Index | None = None
        self._meta: tuple[int, int] | None = None  # of `meta.json` at the last reload
        self._view: View | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "listings-search")
        self._opening = asyncio.Lock()

    async def run(self, search: Callable[[View], T]) -> T | None:
        """Return the result of a search, or None if there is no index. Raises Unavailable."""
        async with self._opening:
            view = await self._call(self._refresh)
        return await self._call(lambda: search(view)) if view is not None else None

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._release()

    async def _call(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                return work()
            except BaseException as error:  # noqa: BLE001 - tantivy's PanicException is a BaseException
                # An error that is not the file system's means damage.
                opened = self._opened
                self._release()
                if opened is not None and not isinstance(error, OSError) and opened.folder.path.exists():
                    _log.warning("The search index %s can't be read: %s", opened.folder.path.name, error)
                    if not _ENVIRONMENT.search(str(error)):
                        opened.folder.mark_damaged()
                raise Unavailable(_MESSAGE, for_visitors=True) from None

        try:
            async with asyncio.timeout(_MAX_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)
        except TimeoutError:
            raise Unavailable(_MESSAGE, for_visitors=True) from None
        except RuntimeError as error:
            raise Unavailable("The service is stopping") from error

    def _refresh(self) -> View | None:
        folder = folders.choose_folder(self._root) if self._root is not None else None
        if folder is None:
            self._release()
            return None
        if self._opened is None or self._opened.folder != folder:
            self._release()
            self._opened = _Opened(folder, folder.lock())
        if self._index is None:
            self._index = Index.open(str(folder.path))
            self._index.config_reader("manual")
        status = (folder.path / "meta.json").stat()
        meta = (status.st_mtime_ns, status.st_ino)
        if self._view is None or self._meta != meta or self._view.is_complete != folder.is_complete:
            self._index.reload()
            searcher = self._index.searcher()
            newest = _find_newest(searcher, self._view.newest if self._view is not None else 0)
            self._meta, self._view = meta, View(searcher, folder.is_complete, newest)
            if read_position(searcher) is None:
                raise OSError("the index has no position")
        return self._view

    def _release(self) -> None:
        opened, self._opened, self._index, self._view = self._opened, None, None, None
        if opened is not None:
            os.close(opened.lock)


def _find_newest(searcher: Searcher, known: int) -> int:
    newer = between("serial", known, MAX_KEY)
    hits = searcher.search(newer, 1, count=False, order_by_field="serial", order=Order.Desc).hits
    return int(hits[0][0]) if hits else known
