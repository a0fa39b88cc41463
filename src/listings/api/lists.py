"""Lists: small ones are built in memory, and cached; large ones are written to a file, and shared by their readers.

Change sets are written to a file only if their JSON has 256 KiB or more.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from listings.api import codec, compression
from listings.api.body_files import BodyFile, BodyFolder
from listings.api.codec import Response
from listings.api.params import PLAIN, ListRequest
from listings.api.request import Request
from listings.api.response_cache import WHOLE_LIST
from listings.contract.listings import LargeListError
from listings.domain.changes import CHANGES_BEGIN, ChangeEncoder
from listings.domain.errors import Unavailable
from listings.domain.model import Caller
from listings.service import Services
from listings.service.listings import LargePage

MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
_CONCURRENT = 2  # large lists that are read at the same time
_MAX_PENDING = 64  # large lists that are read or wait for it
_MAX_PENDING_PER_ACCOUNT = 16
_KEEP_SECONDS = 30.0  # for the next client that requests the same list

_Pairs: TypeAlias = tuple[tuple[str, str], ...]
_Key: TypeAlias = tuple[int, str, _Pairs, bool]
"""The account, the entity tag (with the revision), the parameters as they were sent, and whether it is gzip."""

Cursor: TypeAlias = tuple[str | int, int]


class _Large(NamedTuple):
    """A large list that is being written, or was written a moment ago."""

    task: asyncio.Task[Response]
    file: BodyFile


class Lists:
    """Builds the responses to list requests."""

    def __init__(self, services: Services, folder: Path | None, max_file_bytes: int) -> None:
        """`max_file_bytes` limits all temporary files together. An account may use half of it."""
        self._services = services
        self._folder = BodyFolder(folder, max_file_bytes)
        self._large: dict[_Key, _Large] = {}
        self._waiting: dict[tuple[int, _Pairs, bool], _Large] = {}  # those that are not being read yet
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()  # by account: one list at a time

    def find_cached(self, request: Request, wanted: ListRequest, revision: int) -> Response | None:
        """Return a list that was read at `revision` or later if it is cached in memory."""
        if wanted is not PLAIN:
            return None
        return request.cache.find(request.caller.account_id, revision, WHOLE_LIST)

    async def get(self, request: Request, wanted: ListRequest, revision: int, tag: str) -> Response:
        """Return a list that was read at `revision` or later. The caller must release its file."""
        account_id = request.caller.account_id
        is_gzip = request.encodings.min_bytes is not None
        if (account_id, tag, wanted.pairs, is_gzip) not in self._large:
            try:
                return await self._get_small(request, wanted, revision, tag)
            except LargeListError:
                pass
        response = await self._get_large(request.caller, wanted, tag, is_gzip=is_gzip)
        if response.file is None and wanted is PLAIN and response.tag == tag:  # not an older one that is shared
            return request.cache.store(account_id, revision, WHOLE_LIST, response)
        return response

    async def get_changes(self, caller: Caller, after: int, count: int, *, is_gzip: bool) -> Response:
        """Return the change sets after one. Large ones are in a file, which the caller must release.

        `is_gzip`: the file is compressed.
        """
        self._evict_finished(caller.account_id)
        file = BodyFile(self._folder, caller.account_id, is_gzip=is_gzip)
        try:
            last, current = await self._write_changes(file, caller, after, count)
            await file.write(b'],"last":%d,"more":%b}' % (last, b"true" if last < current else b"false"))
            body = await file.finish()
        except BaseException:
            file.release()
            raise
        if body is None:
            response = Response(200, b"", file=file)
            return compression.mark_compressed(response) if is_gzip else response
        file.release()
        return Response(200, body)

    def clear(self) -> None:
        """Evict all lists, so that later requests read them again."""
        for key in list(self._large):
            self._evict(key)

    async def _get_small(self, request: Request, wanted: ListRequest, revision: int, tag: str) -> Response:
        if wanted is not PLAIN:
            page = await self._services.listings.find(request.caller, wanted.query)
            body = codec.encode_list(page.listings, wanted.include)
            return Response(200, body, self._format_page(wanted, page.next_cursor, page.total), tag=tag)
        body = codec.encode_list(await self._services.listings.list_active(request.caller))
        response = codec.with_head(Response(200, body, tag=tag))
        return request.cache.store(request.caller.account_id, revision, WHOLE_LIST, response)

    async def _get_large(self, caller: Caller, wanted: ListRequest, tag: str, *, is_gzip: bool) -> Response:
        """Wait for the list, which is written once for all clients that request it.

        A list that is not being read yet will be at least as new as `tag`, so its clients share it too.
        """
        key = (caller.account_id, tag, wanted.pairs, is_gzip)
        large = self._large.get(key) or self._waiting.get((caller.account_id, wanted.pairs, is_gzip))
        if large is None:
            large = self._start(key, caller, wanted, tag)
        large.file.acquire()
        try:
            response = await asyncio.shield(large.task)
        except BaseException:
            large.file.release()
            raise
        if response.file is None:
            large.file.release()
        return response

    def _start(self, key: _Key, caller: Caller, wanted: ListRequest, tag: str) -> _Large:
        pending = [account_id for (account_id, *_), one in self._large.items() if not one.task.done()]
        if len(pending) >= _MAX_PENDING or pending.count(caller.account_id) >= _MAX_PENDING_PER_ACCOUNT:
            raise Unavailable("Too many large lists are requested")
        is_gzip = key[3]
        loop, file = asyncio.get_running_loop(), BodyFile(self._folder, caller.account_id, is_gzip=is_gzip)
        large = self._large[key] = _Large(loop.create_task(self._build(file, caller, wanted, tag)), file)
        self._waiting[caller.account_id, wanted.pairs, is_gzip] = large
        large.task.add_done_callback(lambda _: self._schedule_expiry(key, large))
        return large

    def _schedule_expiry(self, key: _Key, large: "_Large") -> None:
        task = large.task
        if task.cancelled() or task.exception() is not None or task.result().file is None:
            self._expire(key, large)
        else:
            asyncio.get_running_loop().call_later(_KEEP_SECONDS, self._expire, key, large)

    def _expire(self, key: _Key, large: "_Large") -> None:
        """Evict a list after its time, unless it was evicted earlier and another one has its place."""
        if self._large.get(key) is large:
            self._evict(key)

    def _evict_finished(self, account_id: int) -> None:
        """Evict finished lists if their files are many or large: all lists, or those of the account."""
        is_half_full = self._folder.is_half_full
        if not is_half_full and not self._folder.is_half_full_for(account_id):
            return
        for key in [key for key, large in self._large.items() if large.task.done()]:
            if is_half_full or key[0] == account_id:
                self._evict(key)

    def _evict(self, key: _Key) -> None:
        large = self._large.pop(key)
        if large.task.done():
            large.file.release()
        else:  # it still writes to the file
            large.task.add_done_callback(lambda _: large.file.release())

    async def _build(self, file: BodyFile, caller: Caller, wanted: ListRequest, tag: str) -> Response:
        lock = self._locks.setdefault(caller.account_id, asyncio.Lock())
        async with lock, self._slots:
            del self._waiting[caller.account_id, wanted.pairs, file.is_gzip]
            self._evict_finished(caller.account_id)
            page = await self._write(file, caller, wanted)
        body, headers = await file.finish(), self._format_page(wanted, page.next_cursor, page.total)
        response = Response(200, b"", headers, tag=tag, file=file)
        if body is not None:  # it only took long to find
            response = Response(200, body, headers, tag=tag)
        elif file.is_gzip:
            return compression.mark_compressed(response)
        return codec.with_head(response)

    async def _write(self, file: BodyFile, caller: Caller, wanted: ListRequest) -> LargePage:
        """Write the list. Return its page, which has been read to its end."""
        separator = b""
        await file.write(codec.LIST_BEGIN)
        async with self._services.listings.read(caller, wanted.query) as page:
            async for listings in page.read():
                await file.write(separator + codec.encode_records(listings, wanted.include))
                separator = b","
        await file.write(codec.LIST_END)
        return page

    async def _write_changes(self, file: BodyFile, caller: Caller, after: int, count: int) -> tuple[int, int]:
        """Write the elements of the array. Return the last change set in it, and the last one of the account."""
        changes, last, current = self._services.changes, after, after
        encoder = ChangeEncoder(await changes.list_actors(caller.account_id))
        await file.write(CHANGES_BEGIN)
        async for page in changes.read(caller, after, count):
            for part in codec.split_changes(page.changes):
                await file.write(encoder.encode(part))
                await asyncio.sleep(0)
            last, current = page.end.edit_revision, page.edit_revision
        await file.write(encoder.finish())
        return last, current

    def _format_page(self, wanted: ListRequest, last: Cursor | None, total: int | None) -> bytes:
        headers = b"" if total is None else codec.format_total(total)
        if last is None:
            return headers
        url, cursor = wanted.build_next_page(self._services.about.base_url + codec.LISTINGS_PATH, last)
        return headers + codec.format_next_page(url, cursor)
