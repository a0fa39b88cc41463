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
from typing import IO, TypeVar

from isal import isal_zlib

from listings.domain.errors import Unavailable

_BUFFER_BYTES = 256 * 1024  # written at a time
_MIN_FREE_BYTES = 256 * 1024 * 1024  # of the disk, for the database
_GZIP_LEVEL, _GZIP_FORMAT = 2, 31
_WAITS = {errno.EAGAIN, errno.EOPNOTSUPP}  # the pages are not in memory, or the file system can't tell

T = TypeVar("T")


class BodyFolder:
    """The folder of temporary files, and the disk space that they use."""

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self._path = path or Path(tempfile.gettempdir())
        self._max_bytes = max_bytes
        self._thread = ThreadPoolExecutor(1, "listings-files")  # only one: a file is closed after its last write
        self.bytes = 0

    @property
    def is_half_full(self) -> bool:
        """Whether half of the space is in use."""
        return self.bytes > self._max_bytes // 2

    def create(self) -> IO[bytes]:
        """Create a file without a name."""
        return tempfile.TemporaryFile(dir=self._path, buffering=0)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in the thread: it may wait for the disk, or compress."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self, file: IO[bytes]) -> None:
        """Close a file in the thread: the system takes 1 ms for each 20 MB that it removes from memory."""
        self._thread.submit(file.close)

    def reserve(self, count: int) -> None:
        """Count bytes that are about to be written. Raises Unavailable if there is no room for them."""
        if self.bytes + count > self._max_bytes or shutil.disk_usage(self._path).free < _MIN_FREE_BYTES:
            raise Unavailable("There is no room for another large list", retry_after=10)
        self.bytes += count


class BodyFile:
    """A body that is written once and then read by any number of responses. Small bodies have no file."""

    def __init__(self, folder: BodyFolder, *, is_gzip: bool = False) -> None:
        """`is_gzip`: the file is compressed while it is written."""
        self.is_gzip = is_gzip
        self._compressor: isal_zlib.Compress | None = None
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._finalizer: weakref.finalize[..., BodyFile] | None = None
        self._buffer = bytearray()
        self._references = 1
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
        """Keep the file until `release` is called once more."""
        self._references += 1

    def release(self) -> None:
        """Close the file with the last release."""
        self._references -= 1
        if self._references:
            return
        self._folder.bytes -= self.size
        if self._file is not None and self._finalizer is not None:
            self._finalizer.detach()
            self._folder.close(self._file)

    async def _flush(self, *, is_last: bool = False) -> None:
        data: bytes | bytearray = self._buffer
        self._buffer = bytearray()
        if self.is_gzip:
            data = await self._folder.run(partial(self._compress, data, is_last=is_last))
        self._folder.reserve(len(data))
        self.size += len(data)
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
