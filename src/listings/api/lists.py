"""Lists: small ones are built in memory, and cached; large ones are written to a file, and shared by their readers.

Change sets are written to a file only if their JSON has 256 KiB or more.
"""

import asyncio
from typing import NamedTuple, TypeAlias

from listings.api import codec, compression
from listings.api.codec import Response
from listings.api.params import ListRequest
from listings.api.response_cache import WHOLE_LIST, ResponseCache
from listings.domain.changes import CHANGES_BEGIN, ChangeEncoder
from listings.domain.errors import Unavailable
from listings.domain.listings import LargeListError
from listings.domain.model import Caller
from listings.http.body_files import BodyFile, BodyFolder
from listings.queues import FairQueue
from listings.service import Services
from listings.service.listings import LargePage

_CONCURRENT = 2  # large lists that are read at the same time
_MAX_PENDING = 64  # large lists that are read or wait for it
_MAX_PENDING_PER_ACCOUNT = 16
_KEEP_SECONDS = 30.0  # for the next client that requests the same list

Cursor: TypeAlias = tuple[str | int, int]


class _Key(NamedTuple):  # equal for all clients of a list
    account_id: int
    tag: str  # has the revision
    pairs: tuple[tuple[str, str], ...]  # the parameters as they were sent
    is_gzip: bool


class _SharedList:
    def __init__(self, file: BodyFile) -> None:
        self.is_waiting = True  # to be read from the database: it will be current for clients that come until then
        self.file = file
        self.task: asyncio.Task[Response]

    @property
    def is_in_file(self) -> bool:
        task = self.task  # without a file, it failed, or is small
        return not task.cancelled() and task.exception() is None and task.result().file is not None

    async def read(self) -> Response:
        self.file.acquire()  # for the caller, who must release the response's file
        try:
            response = await asyncio.shield(self.task)
        except BaseException:
            self.file.release()
            raise
        if response.file is None:
            self.file.release()
        return response

    def release(self) -> None:
        if self.task.done():
            self.file.release()
        else:
            self.task.add_done_callback(lambda _: self.file.release())


class Lists:
    """Builds the responses to list requests."""

    def __init__(self, services: Services, folder: BodyFolder) -> None:
        self._services = services
        self._folder = folder
        self._shared: dict[_Key, _SharedList] = {}
        self._queue = FairQueue(slots=_CONCURRENT)
        self.histories = FairQueue(slots=_MAX_PENDING)  # in which an account builds one response at a time

    async def get(
        self, cache: ResponseCache, caller: Caller, wanted: ListRequest, revision: int, tag: str, *, is_gzip: bool
    ) -> Response:
        """Return a list that was read at `revision` or later. The caller must release its file."""
        key = _Key(caller.account_id, tag, wanted.pairs, is_gzip)
        if key not in self._shared:
            try:
                return await self._get_small(cache, caller, wanted, revision, tag)
            except LargeListError:
                pass
        response = await (self._find(key) or self._start(key, caller, wanted)).read()
        if response.file is None and not wanted.pairs and response.tag == tag:  # not an older one that is shared
            return cache.store(caller.account_id, revision, WHOLE_LIST, response)
        return response

    async def get_changes(
        self, caller: Caller, after: int, count: int, end: int | None = None, *, is_gzip: bool
    ) -> Response:
        """Return the change sets after one, up to `end`. Large ones are in a file, which the caller must release.

        `is_gzip`: the file is compressed.
        """
        self._evict_finished(caller.account_id)
        file = BodyFile(self._folder, caller.account_id, is_gzip=is_gzip)
        try:
            last, current = await self._write_changes(file, caller, after, count, end)
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
        for key, shared in list(self._shared.items()):
            self._evict(key, shared)

    async def _get_small(
        self, cache: ResponseCache, caller: Caller, wanted: ListRequest, revision: int, tag: str
    ) -> Response:
        if wanted.pairs:
            page = await self._services.listings.find(caller, wanted.query)
            body = codec.encode_list(page.listings, wanted.restore_id, wanted.include)
            tag = wanted.format_etag(caller.account_id, page.revisions) if page.revisions is not None else tag
            return Response(200, body, self._format_page(wanted, page.next_cursor, page.total), tag=tag)
        found = await self._services.listings.list_active(caller)
        if found.revisions is not None:
            revision, tag = found.revisions.revision, wanted.format_etag(caller.account_id, found.revisions)
        response = codec.with_head(Response(200, codec.encode_list(found.listings, wanted.restore_id), tag=tag))
        return cache.store(caller.account_id, revision, WHOLE_LIST, response)

    def _find(self, key: _Key) -> _SharedList | None:
        waiting = (  # they are not being read yet and so will be at least as new
            shared for other, shared in self._shared.items() if shared.is_waiting and other._replace(tag=key.tag) == key
        )
        return self._shared.get(key) or next(waiting, None)

    def _start(self, key: _Key, caller: Caller, wanted: ListRequest) -> _SharedList:
        pending = [other.account_id for other, shared in self._shared.items() if not shared.task.done()]
        if len(pending) >= _MAX_PENDING or pending.count(key.account_id) >= _MAX_PENDING_PER_ACCOUNT:
            raise Unavailable("Too many large lists are requested")
        shared = self._shared[key] = _SharedList(BodyFile(self._folder, key.account_id, is_gzip=key.is_gzip))
        shared.task = asyncio.get_running_loop().create_task(self._build(shared, caller, wanted, key.tag))
        shared.task.add_done_callback(lambda _: self._keep(key, shared))
        return shared

    def _keep(self, key: _Key, shared: _SharedList) -> None:
        asyncio.get_running_loop().call_later(_KEEP_SECONDS if shared.is_in_file else 0, self._evict, key, shared)

    def _evict_finished(self, account_id: int) -> None:  # if their files are many or large
        is_half_full = self._folder.is_half_full
        if not is_half_full and not self._folder.is_half_full_for(account_id):
            return
        for key, shared in list(self._shared.items()):
            if shared.task.done() and (is_half_full or key.account_id == account_id):
                self._evict(key, shared)

    def _evict(self, key: _Key, shared: _SharedList) -> None:
        if self._shared.get(key) is shared:  # otherwise it was evicted earlier, and another one may have its place
            del self._shared[key]
            shared.release()

    async def _build(self, shared: _SharedList, caller: Caller, wanted: ListRequest, tag: str) -> Response:
        file = shared.file
        async with self._queue.acquire(caller.account_id):
            shared.is_waiting = False
            self._evict_finished(caller.account_id)
            page = await self._write(file, caller, wanted)
        if page.revisions is not None:
            tag = wanted.format_etag(caller.account_id, page.revisions)
        body, headers = await file.finish(), self._format_page(wanted, page.next_cursor, page.total)
        response = Response(200, b"", headers, tag=tag, file=file)
        if body is not None:  # it only took long to find
            response = Response(200, body, headers, tag=tag)
        elif file.is_gzip:
            return compression.mark_compressed(response)
        return codec.with_head(response)

    async def _write(self, file: BodyFile, caller: Caller, wanted: ListRequest) -> LargePage:
        separator = b""
        await file.write(codec.LIST_BEGIN)
        async with self._services.listings.read(caller, wanted.query) as page:
            async for listings in page.read():
                await file.write(separator + codec.encode_records(listings, wanted.restore_id, wanted.include))
                separator = b","
        await file.write(codec.LIST_END)
        return page

    async def _write_changes(
        self, file: BodyFile, caller: Caller, after: int, count: int, end: int | None
    ) -> tuple[int, int]:
        changes = self._services.changes
        last = current = after  # the last change set that is written, and the last one up to `end`
        encoder = ChangeEncoder(await changes.list_actors(caller.account_id))
        await file.write(CHANGES_BEGIN)
        async for page in changes.read(caller, after, count, end):
            for part in codec.split_changes(page.changes):
                await file.write(encoder.encode(part))
                await asyncio.sleep(0)
            last, current = page.end.edit_revision, page.edit_revision
        await file.write(encoder.finish())
        return last, current

    def _format_page(self, wanted: ListRequest, last: Cursor | None, total: int | None) -> bytes:
        headers = b"" if total is None else codec.format_total(total, is_exact=wanted.query.is_counted_exactly)
        if last is None:
            return headers
        url, cursor = wanted.build_next_page(self._services.about.base_url + codec.LISTINGS_PATH, last)
        return headers + codec.format_next_page(url, cursor)
