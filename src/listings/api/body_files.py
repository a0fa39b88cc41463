"""Response bodies in unlinked temporary files, which together have a limited size."""

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

MAX_FILES = 128
"""Maximum number of temporary files that a process has open."""

MIN_FREE_BYTES = 256 * 1024 * 1024
"""Free space on the disk, below which no file is written: the database needs it."""

_MAX_FILES_PER_ACCOUNT = 32
_BUFFER_BYTES = 256 * 1024  # written at a time
_GZIP_LEVEL, _GZIP_FORMAT = 2, 31
_WAITS = {errno.EAGAIN, errno.EOPNOTSUPP}  # the pages are not in memory, or the file system can't tell

T = TypeVar("T")


class _Usage(NamedTuple):
    """Bytes and files of an account, or of all accounts together."""

    size: int = 0
    files: int = 0

    def add(self, size: int, files: int) -> "_Usage":
        return _Usage(self.size + size, self.files + files)

    def exceeds(self, limit: "_Usage") -> bool:
        return self.size > limit.size or self.files > limit.files

    def is_half_of(self, limit: "_Usage") -> bool:
        return self.exceeds(_Usage(limit.size // 2, limit.files // 2))


class BodyFolder:
    """The folder of temporary files, with a limit for all of them and one for those of each account."""

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        """`max_bytes` limits all files together. An account can use half of it, so that others have room."""
        self._path = path or Path(tempfile.gettempdir())
        self._limit = _Usage(max_bytes, MAX_FILES)
        self._account_limit = _Usage(max_bytes // 2, _MAX_FILES_PER_ACCOUNT)
        self.total = _Usage()
        self._accounts: dict[int, _Usage] = {}
        self._thread = ThreadPoolExecutor(1, "listings-files")  # only one: a file is closed after its last write

    @property
    def is_half_full(self) -> bool:
        """Whether half of the room for all files is in use."""
        return self.total.is_half_of(self._limit)

    def is_half_full_for(self, account_id: int) -> bool:
        """Whether an account uses half of its share."""
        return self._accounts.get(account_id, _Usage()).is_half_of(self._account_limit)

    def create(self) -> IO[bytes]:
        """Create a file without a name."""
        return tempfile.TemporaryFile(dir=self._path, buffering=0)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in the thread: it may wait for the disk, or compress."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self, file: IO[bytes]) -> None:
        """Close a file in the thread: the system takes 1 ms for each 20 MB that it removes from memory."""
        self._thread.submit(file.close)

    def reserve(self, account_id: int, size: int, files: int) -> None:
        """Count what an account is about to write. Raises Unavailable if there is no room for it."""
        total = self.total.add(size, files)
        own = self._accounts.get(account_id, _Usage()).add(size, files)
        is_full = total.exceeds(self._limit) or own.exceeds(self._account_limit)
        if is_full or shutil.disk_usage(self._path).free < MIN_FREE_BYTES:
            raise Unavailable("There is no room for another large list", retry_after=10)
        self.total, self._accounts[account_id] = total, own

    def release(self, account_id: int, size: int, files: int) -> None:
        """Undo `reserve`."""
        self.total = self.total.add(-size, -files)
        left = self._accounts.pop(account_id, _Usage()).add(-size, -files)
        if left.size or left.files:
            self._accounts[account_id] = left


class BodyFile:
    """A body that is written once and then read by any number of responses. Small bodies have no file."""

    def __init__(self, folder: BodyFolder, account_id: int, *, is_gzip: bool = False) -> None:
        """`account_id`: the account whose share of the folder it uses. `is_gzip`: it is compressed while written."""
        self.is_gzip = is_gzip
        self._account_id = account_id
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
        descriptor, buffer = self._file.fileno(), bytearray(count)
        try:
            size = os.preadv(descriptor, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _WAITS:
                raise
            size = await asyncio.to_thread(os.preadv, descriptor, [buffer], offset)
        if not size:
            raise EOFError(f"The file has less than {self.size} bytes")
        del buffer[size:]
        return bytes(buffer)

    def acquire(self) -> None:
        """Add a reference. Each needs one call of `release`."""
        self._references += 1

    def release(self) -> None:
        """Close the file with the last release."""
        self._references -= 1
        if self._references:
            return
        self._folder.release(self._account_id, self.size, self._files)
        if self._file is not None and self._finalizer is not None:
            self._finalizer.detach()
            self._folder.close(self._file)

    async def _flush(self, *, is_last: bool = False) -> None:
        data: bytes | bytearray = self._buffer
        self._buffer = bytearray()
        if self.is_gzip:
            data = await self._folder.run(partial(self._compress, data, is_last=is_last))
        self._folder.reserve(self._account_id, len(data), 1 - self._files)
        self.size += len(data)
        self._files = 1
        try:
            await self._folder.run(partial(_write_all, self._open(), data))
        except OSError as error:
            raise Unavailable(f"A large list can't be stored: {error.strerror}", retry_after=10) from error

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


def build_compressor() -> isal_zlib.Compress:
    """Return a compressor of one body, in the format of gzip."""
    return isal_zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)


def _write_all(file: IO[bytes], data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
