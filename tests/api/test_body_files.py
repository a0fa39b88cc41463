"""The temporary files of large bodies."""

import asyncio
import gc
from io import FileIO
from pathlib import Path
from threading import Event, current_thread
from typing import IO, Any, cast

from listings.api.body_files import BodyFile, BodyFolder
from tests.harness import TIMEOUT


class FolderWithFile(BodyFolder):
    """A folder whose file is older than the body, so that the garbage collector finalizes it first."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        super().__init__(path, 1 << 30)
        self._made = [file or super().create()]

    def create(self) -> IO[bytes]:
        return self._made.pop()


def test_the_file_of_a_body_that_is_not_released_is_closed_without_a_warning(tmp_path: Path) -> None:
    body = BodyFile(FolderWithFile(tmp_path))
    cycle: list[object] = [body]
    cycle.append(cycle)
    asyncio.run(body.write(bytes(1 << 20)))
    del body, cycle
    gc.collect()  # pytest reports the ResourceWarning of a file that was not closed


class RecordedFile(FileIO):
    """A file that records its calls. A write sets `has_begun` and waits for `may_write`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self.calls: list[tuple[str, str]] = []
        self.has_begun = Event()
        self.may_write = Event()
        self.was_closed = Event()

    def write(self, data: Any) -> int:
        self.has_begun.set()
        assert self.may_write.wait(TIMEOUT)
        count = super().write(data)
        self.calls.append(("write", current_thread().name))
        return count

    def close(self) -> None:
        super().close()
        self.calls.append(("close", current_thread().name))
        self.was_closed.set()


def test_a_file_is_closed_by_the_thread_after_its_last_write(tmp_path: Path) -> None:
    file = RecordedFile(tmp_path / "body")

    async def write_and_leave() -> None:
        body = BodyFile(FolderWithFile(tmp_path, cast("IO[bytes]", file)))
        write = asyncio.ensure_future(body.write(bytes(1 << 20)))
        await asyncio.to_thread(file.has_begun.wait, TIMEOUT)
        write.cancel()
        body.release()

    asyncio.run(write_and_leave())
    gc.collect()
    assert not file.closed
    file.may_write.set()
    assert file.was_closed.wait(TIMEOUT)
    assert file.calls == [("write", "listings-files_0"), ("close", "listings-files_0")]
