"""Where request bodies wait until they are complete, and how much memory large ones take."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from listings.domain.errors import Unavailable
from listings.http import large_bodies
from listings.http.body_files import REQUESTS, BodyFolder, Usage
from listings.http.large_bodies import LARGE_BODY_BYTES, LargeBodies, ReceivedBody, Upload
from tests.processes import list_open_files
from tests.waiting import until_async

PIECE = bytes(range(256)) * 64  # 16 KiB
MIB = 1 << 20


@pytest.fixture
def bodies(tmp_path: Path) -> Iterator[LargeBodies]:
    bodies = LargeBodies(BodyFolder(tmp_path, REQUESTS), 4)
    yield bodies
    assert (bodies.folder.total, bodies.incomplete_bytes) == (Usage(), 0)
    assert bodies.has_room("anyone", 100 * MIB)


async def receive(bodies: LargeBodies, owner: int | str, pieces: int, *, more: bool = False) -> ReceivedBody:
    body = ReceivedBody(bodies, owner)
    try:
        for number in range(1, pieces + 1):
            body.add((PIECE, more or number < pieces))
            await body.needs_more()
    except Unavailable:
        body.release()
        raise
    return body


async def read(body: ReceivedBody) -> bytes:
    return b"".join([piece async for piece in body.read_pieces()])


def count_files(folder: Path) -> int:
    return sum(name.startswith(str(folder)) for name in list_open_files(os.getpid()).values())


@pytest.mark.parametrize(("pieces", "files"), [(1, 0), (4, 0), (5, 1), (100, 1)])
def test_an_incomplete_body_above_64_kib_is_in_a_file(
    bodies: LargeBodies, tmp_path: Path, pieces: int, files: int
) -> None:
    async def work() -> None:
        body = await receive(bodies, 1, pieces, more=True)
        assert count_files(tmp_path) == files
        assert bodies.incomplete_bytes == (0 if files else len(PIECE) * pieces)
        body.add((b"end", False))
        assert await read(body) == PIECE * pieces + b"end"
        body.release()
        await bodies.folder.run(lambda: None)
        assert count_files(tmp_path) == 0

    asyncio.run(work())


def test_a_body_that_arrives_complete_needs_no_file(bodies: LargeBodies, tmp_path: Path) -> None:
    async def work() -> None:
        body = ReceivedBody(bodies, 1)
        body.add((PIECE * 20, False))
        await body.finish_receiving()
        assert count_files(tmp_path) == 0
        assert await read(body) == PIECE * 20
        body.release()

    asyncio.run(work())


def test_small_bodies_wait_in_files_while_the_memory_for_them_is_full(
    bodies: LargeBodies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_bodies, "_MAX_INCOMPLETE_BYTES", 2 * len(PIECE))

    async def work() -> None:
        stalled = [await receive(bodies, 1, 1, more=True) for _ in range(10)]
        assert (count_files(tmp_path), bodies.incomplete_bytes) == (8, 2 * len(PIECE))
        tiny = ReceivedBody(bodies, 2)
        tiny.add((b"{", True))
        await tiny.needs_more()
        assert count_files(tmp_path) == 8
        for body in (*stalled, tiny):
            body.release()

    asyncio.run(work())


def test_complete_bodies_wait_in_files_while_the_memory_is_full(
    bodies: LargeBodies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_bodies, "_MAX_INCOMPLETE_BYTES", 2 * len(PIECE))

    async def work() -> None:
        waiting = [await receive(bodies, owner, 1) for owner in range(10)]
        assert (count_files(tmp_path), bodies.incomplete_bytes) == (8, 2 * len(PIECE))
        assert [await read(body) for body in waiting] == [PIECE] * 10
        assert bodies.incomplete_bytes == 0
        for body in waiting:
            body.release()

    asyncio.run(work())


def test_what_has_arrived_of_a_body_can_count_for_another_owner(bodies: LargeBodies) -> None:
    async def work() -> None:
        body = await receive(bodies, "192.0.2.1", 5, more=True)
        body.set_owner(1)
        bodies.folder.reserve(1, 0, 63)
        with pytest.raises(Unavailable):
            bodies.folder.reserve(1, 0, 1)
        bodies.folder.release(1, 0, 63)
        body.release()

    asyncio.run(work())


def test_an_upload_counts_as_one_file_from_its_beginning(bodies: LargeBodies) -> None:
    async def work() -> None:
        upload = Upload(bodies, 1, (b"", True))
        assert bodies.folder.total == Usage(0, 1)
        upload.add((PIECE, False))
        await upload.finish_upload()
        assert bodies.folder.total == Usage(len(PIECE), 1)
        upload.release()

    asyncio.run(work())


def test_the_files_of_an_owner_and_of_all_are_limited(tmp_path: Path) -> None:
    folder = BodyFolder(tmp_path, REQUESTS._replace(all=Usage(3 * MIB, 3), owner=Usage(2 * MIB, 2)))

    async def work() -> None:
        bodies = LargeBodies(folder, 4)
        held = [await receive(bodies, owner, 6, more=True) for owner in (1, 1, 2)]
        for owner in (1, 2, "192.0.2.1"):
            with pytest.raises(Unavailable, match="Too many large request bodies"):
                await receive(bodies, owner, 6, more=True)
        held.pop().release()
        with pytest.raises(Unavailable):  # there is room for another owner only
            await receive(bodies, 1, 6, more=True)
        held.append(await receive(bodies, 2, 6, more=True))
        for body in held:
            body.release()

    asyncio.run(work())
    assert folder.total == Usage()


def test_complete_bodies_wait_in_files_until_there_is_memory(bodies: LargeBodies, tmp_path: Path) -> None:
    finished: list[int] = []

    async def process(owner: int, done: asyncio.Event) -> None:
        body = ReceivedBody(bodies, owner)
        body.add((PIECE * 64, False))  # one mebibyte; an owner may have two
        await body.finish_receiving()
        assert await read(body) == PIECE * 64
        finished.append(owner)
        await done.wait()
        body.release()

    async def work() -> None:
        done = asyncio.Event()
        tasks = [asyncio.create_task(process(1, done)) for _ in range(5)]
        await until_async(lambda: count_files(tmp_path) == 3)
        tasks += [asyncio.create_task(process(owner, done)) for owner in range(2, 20)]
        await until_async(lambda: len(finished) == 12 and count_files(tmp_path) == 11)
        assert finished == [1, 1, *range(2, 12)]  # 12 MiB, as each of the others has its first body
        done.set()
        await asyncio.gather(*tasks)
        assert len(finished) == 23

    asyncio.run(work())


def test_a_body_that_is_cancelled_while_it_waits_takes_no_memory(bodies: LargeBodies) -> None:
    async def work() -> None:
        for owner in range(10, 16):
            await bodies.wait_for_room(owner, 2 * MIB)
        body = await receive(bodies, 2, 10)
        waiting = asyncio.create_task(body.finish_receiving())
        await until_async(lambda: bodies.folder.total.files == 1)
        await asyncio.sleep(0)
        assert waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        body.release()
        assert not bodies.has_room(2, 1)
        for owner in range(10, 16):
            bodies.reserve(owner, -2 * MIB)

    asyncio.run(work())


def test_more_memory_for_a_request_is_refused_rather_than_awaited(bodies: LargeBodies) -> None:
    async def work() -> None:
        body = await receive(bodies, 1, LARGE_BODY_BYTES // len(PIECE))
        body.reserve(MIB)
        with pytest.raises(Unavailable):
            body.reserve(2 * MIB)
        body.release()

    asyncio.run(work())
