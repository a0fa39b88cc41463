"""Bodies of responses and requests in unlinked temporary files, which together have a limited size."""

import asyncio
import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from isal import isal_zlib

from listings.domain.errors import Unavailable
from listings.http.byte_budget import Owner

MIN_FREE_BYTES = 256 * 1024 * 1024
"""Free space on the disk, below which no file is written: the database needs it."""

_MIB = 1024 * 1024
_BUFFER_BYTES = 256 * 1024  # written at a time
_MAX_WRITING_BYTES = 4 * _MIB  # in memory until the thread has written them
_GZIP_LEVEL, _GZIP_FORMAT = 2, 31
_WAITS = {errno.EAGAIN, errno.EOPNOTSUPP}  # the pages are not in memory, or the file system can't tell

_thread = ThreadPoolExecutor(1, "listings-files")  # only one: a file is closed after its last write

T = TypeVar("T")


class Usage(NamedTuple):
    """Bytes and files of an owner, or of all owners together."""

    size: int = 0
    files: int = 0

    def add(self, size: int, files: int) -> "Usage":
        return Usage(self.size + size, self.files + files)

    def exceeds(self, limit: "Usage") -> bool:
        return self.size > limit.size or self.files > limit.files

    def is_half_of(self, limit: "Usage") -> bool:
        return self.exceeds(Usage(limit.size // 2, limit.files // 2))


class FolderLimits(NamedTuple):
    """What all files of a folder may use, what those of each owner, and the error beyond that."""

    all: Usage
    owner: Usage
    message: str
    retry_after: int = 1


LISTS = FolderLimits(
    Usage(4096 * _MIB, 128), Usage(2048 * _MIB, 32), "There is no room for another large list", retry_after=10
)
REQUESTS = FolderLimits(
    Usage(1024 * _MIB, 1024),
    Usage(64 * _MIB, 64),
    "Too many large request bodies are being received: send fewer at the same time",
)


UPLOADS = FolderLimits(
    Usage(20 * 130 * _MIB, 20),
    Usage(3 * 130 * _MIB, 3),
    "Too many pictures are being received: send at most 3 at the same time",
)
"""For pictures, and forms of at most 130 MiB with pictures, from when they begin to arrive."""


class BodyFolder:
    """The folder of temporary files, with a limit for all of them and one for those of each owner."""

    def __init__(self, path: Path | None, limits: FolderLimits) -> None:
        self._path = path or Path(tempfile.gettempdir())
        self._limits = limits
        self.total = Usage()
        self._writing_bytes = 0
        self._owners: dict[Owner, Usage] = {}

    @property
    def is_half_full(self) -> bool:
        return self.total.is_half_of(self._limits.all)

    def is_half_full_for(self, owner: Owner) -> bool:
        return self._owners.get(owner, Usage()).is_half_of(self._limits.owner)

    def create(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._path, buffering=0)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in the thread: it may wait for the disk, or compress."""
        return await asyncio.get_running_loop().run_in_executor(_thread, work)

    async def write(self, file: IO[bytes], data: bytes | bytearray) -> None:
        """Write in the thread; but if much waits for it, immediately (0.1 ms), before more data arrives."""
        if self._writing_bytes > _MAX_WRITING_BYTES:
            _write_all(file, data)
            return
        self._writing_bytes += len(data)
        try:
            await self.run(partial(_write_all, file, data))
        finally:
            self._writing_bytes -= len(data)

    def close(self, file: IO[bytes]) -> None:
        """Close a file in the thread: the system takes 1 ms for each 20 MB that it removes from memory."""
        _thread.submit(file.close)

    def reserve(self, owner: Owner, size: int, files: int) -> None:
        """Count what an owner is about to write. Raises Unavailable if there is no room for it."""
        limits, total = self._limits, self.total.add(size, files)
        own = self._owners.get(owner, Usage()).add(size, files)
        is_full = total.exceeds(limits.all) or own.exceeds(limits.owner)
        try:
            is_full = is_full or shutil.disk_usage(self._path).free < MIN_FREE_BYTES
        except OSError as error:  # the folder is missing
            raise Unavailable(f"A temporary file can't be written: {error.strerror}") from error
        if is_full:
            raise Unavailable(limits.message, retry_after=limits.retry_after)
        self.total, self._owners[owner] = total, own

    def release(self, owner: Owner, size: int, files: int) -> None:
        self.total = self.total.add(-size, -files)
        left = self._owners.pop(owner, Usage()).add(-size, -files)
        if left.size or left.files:
            self._owners[owner] = left


class BodyFile:
    """A body that is written once and then read by any number of responses. Small bodies have no file."""

    def __init__(self, folder: BodyFolder, owner: Owner, *, is_gzip: bool = False) -> None:
        """`owner`: whose share of the folder it uses. `is_gzip`: it is compressed while written."""
        self.is_gzip = is_gzip
        self.owner = owner
        self._compressor: isal_zlib.Compress | None = None
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._finalizer: weakref.finalize[..., BodyFile] | None = None
        self._buffer = bytearray()
        self._references = 1
        self._files = 0  # 1 if it is counted as a file
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Add to the end. Raises Unavailable if the disk is full."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            await self._flush()

    async def finish(self) -> bytes | None:
        """End the body. Return it, not compressed, if it is small."""
        if self._file is None:
            return bytes(self._buffer)
        await self._flush(is_last=True)
        return None

    async def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes, and at least one."""
        if self._file is None:
            raise AssertionError("A small body has no file")
        return await read_at(self._file.fileno(), offset, count)

    def acquire(self) -> None:
        """Add a reference. Each needs one call of `release`."""
        self._references += 1

    def release(self) -> None:
        """Close the file with the last release."""
        self._references -= 1
        if self._references:
            return
        self._folder.release(self.owner, self.size, self._files)
        if self._file is not None and self._finalizer is not None:
            self._finalizer.detach()
            self._folder.close(self._file)

    async def _flush(self, *, is_last: bool = False) -> None:
        data: bytes | bytearray = self._buffer
        self._buffer = bytearray()
        if self.is_gzip:
            data = await self._folder.run(partial(self._compress, data, is_last=is_last))
        try:
            self._folder.reserve(self.owner, len(data), 1 - self._files)
            self.size += len(data)
            self._files = 1
            await self._folder.write(self._open(), data)
        except OSError as error:
            raise Unavailable(f"A temporary file can't be written: {error.strerror}", retry_after=10) from error

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._file = self._folder.create()
            # Not `__del__`, before which the file may be finalized.
            self._finalizer = weakref.finalize(self, self._file.close)
        return self._file

    def _compress(self, data: bytes | bytearray, *, is_last: bool) -> bytes:
        if self._compressor is None:
            self._compressor = build_compressor()
        return self._compressor.compress(data) + (self._compressor.flush() if is_last else b"")


async def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Return at most `count` bytes of a file, and at least one. Raises EOFError."""
    buffer = bytearray(count)
    try:
        size = os.preadv(descriptor, [buffer], offset, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno not in _WAITS:
            raise
        size = await asyncio.to_thread(os.preadv, descriptor, [buffer], offset)
    if not size:
        raise EOFError(f"The file ends before byte {offset}")
    del buffer[size:]
    return bytes(buffer)


def build_compressor() -> isal_zlib.Compress:
    """Return a compressor of one body, in the format of gzip."""
    return isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)


def _write_all(file: IO[bytes], data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
