"""The temporary files of large bodies."""

import asyncio
import gc
from io import FileIO
from pathlib import Path
from threading import Event, current_thread
from typing import IO, Any, cast

import pytest

from listings.domain.errors import Unavailable
from listings.http.body_files import LISTS, BodyFile, BodyFolder, Usage
from tests.harness import TIMEOUT


class FolderWithFile(BodyFolder):
    """A folder whose file is older than the body, so that the garbage collector finalizes it first."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        super().__init__(path, LISTS)
        self._made = [file or super().create()]

    def create(self) -> IO[bytes]:
        return self._made.pop()


def test_the_file_of_an_unreleased_body_is_closed_without_a_warning(tmp_path: Path) -> None:
    body = BodyFile(FolderWithFile(tmp_path), 1)
    cycle: list[object] = [body]
    cycle.append(cycle)
    asyncio.run(body.write(bytes(1 << 20)))
    del body, cycle
    gc.collect()  # pytest reports the ResourceWarning of a file that was not closed


def test_a_body_without_its_folder_is_unavailable(tmp_path: Path) -> None:
    body = BodyFile(BodyFolder(tmp_path / "missing", LISTS), 1)
    with pytest.raises(Unavailable, match="A temporary file can't be written: No such file"):
        asyncio.run(body.write(bytes(1 << 20)))


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
        body = BodyFile(FolderWithFile(tmp_path, cast("IO[bytes]", file)), 1)
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


def write_files(folder: BodyFolder, *account_ids: int) -> list[BodyFile]:
    """Write a file of one mebibyte for each account, and leave them open."""

    async def write(account_id: int) -> BodyFile:
        body = BodyFile(folder, account_id)
        try:
            await body.write(bytes(1 << 20))
        except Unavailable:
            body.release()
            raise
        return body

    async def write_all() -> list[BodyFile]:
        return [await write(account_id) for account_id in account_ids]

    return asyncio.run(write_all())


def test_the_bytes_of_all_files_and_of_an_owners_are_limited(tmp_path: Path) -> None:
    folder = BodyFolder(tmp_path, LISTS._replace(all=Usage(4 << 20, 9), owner=Usage(2 << 20, 9)))
    first, second = write_files(folder, 1, 1)
    with pytest.raises(Unavailable):
        write_files(folder, 1)
    other = write_files(folder, 2)
    first.release()
    own = write_files(folder, 1, 2)
    with pytest.raises(Unavailable):
        write_files(folder, 3)
    for body in (second, *other, *own):
        body.release()


def test_the_number_of_files_is_limited(tmp_path: Path) -> None:
    folder = BodyFolder(tmp_path, LISTS._replace(all=Usage(1 << 30, 3), owner=Usage(1 << 30, 2)))
    first, *others = write_files(folder, 1, 1, 2)
    for account_id in (1, 2):
        with pytest.raises(Unavailable):
            write_files(folder, account_id)
    first.release()
    for body in (*others, *write_files(folder, 1)):
        body.release()
