"""Storing and sweeping pictures, over a store and a folder."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from subprocess import run
from zipfile import ZipFile

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.history import CONSOLE, Actor
from listings.domain.listings import AddStep
from listings.domain.model import NewListing, bucket_of
from listings.domain.pictures import Picture, build_path
from listings.service.pictures.folder import PictureFolder
from listings.wiring import find_missing_pictures
from tests.harness import Harness
from tests.pictures import photo

DAY = 86_400
CREATED = "2026-11-21 10:00:00"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path) as harness:
        create_accounts(harness)
        yield harness


def create_accounts(harness: Harness) -> None:
    for name in ("alice", "bob"):
        harness.run(harness.store.add_account(name.title(), f"{name}@example.com", None, 1_000))


def find_account_id(harness: Harness, name: str = "alice") -> int:
    return harness.run(harness.services.accounts.find(f"{name}@example.com")).id


def add(harness: Harness, number: int = 1, name: str = "alice", file_name: str = "") -> Picture:
    upload = harness.settings.file.parent / f"upload-{number}"
    upload.write_bytes(photo(number))
    picture, _ = harness.run(harness.services.pictures.add(find_account_id(harness, name), upload, file_name))
    return picture


def sweep(harness: Harness, days: float = 1) -> None:
    harness.clock.advance(days * DAY)
    harness.run(harness.services.pictures.sweep())


def create_listing(harness: Harness, picture: Picture) -> int:
    account_id = find_account_id(harness)
    new = NewListing(title="t", content="c", images=f'["{build_path(picture.name)}"]')
    step, actor = AddStep(new, CREATED), Actor(CONSOLE, int(harness.clock()))
    return harness.run(harness.store.add_listing(bucket_of(account_id), account_id, step, actor=actor)).listing_id


def exists(harness: Harness, picture: Picture) -> bool:
    return harness.run(harness.store.get_picture(picture.name)) is not None


def list_files(harness: Harness) -> list[str]:
    return sorted(path.name for path in harness.settings.media_folder.rglob("*.*") if path.is_file())


@pytest.mark.decision("G56")
def test_an_upload_waits_8_days_for_its_listing(harness: Harness) -> None:
    picture = add(harness)
    sweep(harness)
    sweep(harness, 7)
    create_listing(harness, picture)
    sweep(harness)
    sweep(harness, 97)
    sweep(harness, 97)
    assert exists(harness, picture)
    assert len(list_files(harness)) == 4


@pytest.mark.decision("G56")
def test_a_picture_is_deleted_97_days_after_its_last_use(harness: Harness) -> None:
    picture = add(harness)
    listing_id = create_listing(harness, picture)
    sweep(harness, 200)
    actor = Actor(CONSOLE, int(harness.clock()))
    harness.run(harness.store.change_listing(listing_id, lambda _: {"images": "[]"}, actor))
    sweep(harness)
    sweep(harness, 97)
    assert exists(harness, picture)
    sweep(harness)
    assert not exists(harness, picture)
    assert list_files(harness) == []


def test_a_picture_of_a_deleted_listing_stays(harness: Harness) -> None:
    picture = add(harness)
    listing_id = create_listing(harness, picture)
    actor = Actor(CONSOLE, int(harness.clock()))
    harness.run(harness.store.change_listing(listing_id, lambda _: {"is_active": False, "deleted_at": 5}, actor))
    sweep(harness)
    sweep(harness, 300)
    assert exists(harness, picture)


def test_uploading_again_starts_the_days_anew(harness: Harness) -> None:
    picture = add(harness)
    sweep(harness)
    sweep(harness, 96)
    assert add(harness).name == picture.name
    sweep(harness, 90)
    sweep(harness, 90)
    assert exists(harness, picture)
    sweep(harness, 10)
    assert not exists(harness, picture)


def test_only_one_process_sweeps_in_a_day(harness: Harness) -> None:
    picture = add(harness)
    sweep(harness, 0.1)
    sweep(harness, 0.1)
    found = harness.run(harness.store.get_picture(picture.name))
    assert found is not None
    assert found.unused_since == int(harness.clock() - 0.1 * DAY)


def test_files_without_a_row_go_after_a_day(harness: Harness) -> None:
    picture, stray = add(harness), "f" * 32
    folder = harness.settings.media_folder
    for path in (folder / f"{stray}.jpg", folder / ".new" / f"{stray}-400.webp", folder / "README.txt"):
        path.write_bytes(b"x")
    harness.clock.now = (folder / "README.txt").stat().st_mtime
    sweep(harness, 0.9)
    assert len(list_files(harness)) == 4 + 3
    sweep(harness, 1.1)
    assert list_files(harness) == sorted(
        [*(f"{picture.name}{end}" for end in (".jpg", "-400.webp", "-800.webp", "-1600.webp")), "README.txt"]
    )


def test_two_databases_do_not_share_a_folder(harness: Harness, tmp_path: Path) -> None:
    picture = add(harness)
    (tmp_path / "b").mkdir()
    with Harness(tmp_path / "b", media_url=harness.settings.media_folder.as_uri()) as other:
        create_accounts(other)
        with pytest.raises(Unavailable, match="belongs to another database"):
            add(other)
        other.clock.advance(10 * 365 * DAY)
        with pytest.raises(Unavailable, match="belongs to another database"):
            sweep(other)
    assert len(list_files(harness)) == 4
    assert add(harness) == picture


@pytest.mark.parametrize("point", ["process", "publish", "add_picture"])
def test_a_kill_leaves_nothing_that_stays(tmp_path: Path, point: str) -> None:
    """Kill the service after its `process`, after `publish`, or before `add_picture`: in each case, there is no row."""
    (tmp_path / "upload").write_bytes(photo())
    program = f"""
import os, sys
from pathlib import Path
from listings.service.pictures.folder import PictureFolder
from listings.service.pictures.processor import Processor
from tests.harness import Harness
from tests.service.pictures.test_pictures import create_accounts

def kill_after(kind, name):
    method = getattr(kind, name)
    if name == "process":
        async def killed(*arguments):
            await method(*arguments)
            os.kill(os.getpid(), 9)
    else:
        def killed(*arguments):
            method(*arguments)
            os.kill(os.getpid(), 9)
    setattr(kind, name, killed)

folder = Path({str(tmp_path)!r})
with Harness(folder) as harness:
    create_accounts(harness)
    if {point!r} == "add_picture":
        harness.store.add_picture = lambda *_: os.kill(os.getpid(), 9)
    else:
        kill_after(Processor if {point!r} == "process" else PictureFolder, {point!r})
    harness.run(harness.services.pictures.add(1, folder / "upload"))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with Harness(tmp_path) as harness:
        assert len(list_files(harness)) == 4
        assert harness.run(harness.store.page_picture_names("", 10)) == []
        harness.clock.now = (tmp_path / "upload").stat().st_mtime
        sweep(harness, 1.5)
        assert list_files(harness) == []


def test_erasing_an_account_deletes_its_files(harness: Harness) -> None:
    add(harness, 1, "alice")
    bobs = add(harness, 1, "bob")
    harness.run(harness.services.accounts.erase("alice@example.com"))
    assert {name[:32] for name in list_files(harness)} == {bobs.name}


def test_a_full_account_loses_its_longest_unused_pictures(tmp_path: Path) -> None:
    size = 0
    with Harness(tmp_path / "measure") as harness:
        create_accounts(harness)
        size = max(add(harness, number).size for number in (1, 2, 3))
    with Harness(tmp_path / "full", max_account_picture_bytes=str(2 * size + size // 2)) as harness:
        create_accounts(harness)
        first, second = add(harness, 1), add(harness, 2)
        create_listing(harness, first)
        with pytest.raises(Problem, match="at most") as caught:
            add(harness, 3)
        assert caught.value.code == "account_full"
        sweep(harness)
        harness.clock.advance(2 * DAY)
        third = add(harness, 3)
        assert [exists(harness, one) for one in (first, second, third)] == [True, False, True]
        assert {name[:32] for name in list_files(harness)} == {first.name, third.name}


def test_an_own_limit_replaces_that_of_all_accounts(harness: Harness) -> None:
    account_id = find_account_id(harness)
    harness.run(harness.store.set_picture_limit(account_id, 10))
    with pytest.raises(Problem, match="at most 10 bytes"):
        add(harness)
    assert harness.run(harness.services.pictures.measure(account_id)) == (0, 10)
    assert list_files(harness) == []


def test_a_blocked_picture_can_not_be_uploaded_again(harness: Harness) -> None:
    url = f"https://market.example{build_path(add(harness).name)}"
    removed, listings = harness.run(harness.services.pictures.remove(url, block=True))
    assert (build_path(removed.name) in url, listings) == (True, [])
    for name in ("alice", "bob"):
        with pytest.raises(Problem, match="operator has removed this picture") as caught:
            add(harness, 1, name)
        assert caught.value.code == "invalid_image"
    add(harness, 2)


def test_missing_files_are_found(harness: Harness) -> None:
    pictures = sorted(add(harness, number).name for number in range(4))
    for name in pictures[1:3]:
        (harness.settings.media_folder / f"{name}-800.webp").unlink()
    assert harness.run(find_missing_pictures(harness.settings, 10)) == pictures[1:3]
    assert harness.run(find_missing_pictures(harness.settings, 1)) == pictures[1:2]


def test_a_full_folder_is_not_the_fault_of_the_picture(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("listings.service.pictures.folder.sync_folder", fail)
    with pytest.raises(Unavailable, match="can't be stored: No space left"):
        add(harness)
    assert harness.run(harness.store.page_picture_names("", 10)) == []
    assert list_files(harness) == []


def test_an_upload_that_is_given_up_leaves_no_file(harness: Harness) -> None:
    """Cancel it after each number of steps, until it is done."""
    (harness.settings.file.parent / "upload").write_bytes(photo())
    account_id, pictures = find_account_id(harness), harness.services.pictures

    async def cancel_after(steps: int) -> bool:
        task = asyncio.create_task(pictures.add(account_id, harness.settings.file.parent / "upload"))
        for _ in range(steps):
            await asyncio.sleep(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return not task.cancelled()

    steps, is_done = 0, False
    while not is_done:
        steps += 1
        is_done = harness.run(cancel_after(steps))
        assert len(list_files(harness)) == 4 * len(harness.run(harness.store.page_picture_names("", 10)))
    assert steps > 5


@pytest.mark.parametrize("step", ["publish", "discard"])
def test_a_client_that_disconnects_while_files_are_moved_finds_them_stored(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (harness.settings.file.parent / "upload").write_bytes(photo())
    account_id, pictures = find_account_id(harness), harness.services.pictures
    do_step = getattr(PictureFolder, step)

    async def cancel() -> None:
        loop, is_cancelled = asyncio.get_running_loop(), threading.Event()

        def cancel_during(self: PictureFolder, *arguments: str) -> None:
            loop.call_soon_threadsafe(task.cancel)
            loop.call_soon_threadsafe(is_cancelled.set)
            is_cancelled.wait()
            do_step(self, *arguments)

        monkeypatch.setattr(PictureFolder, step, cancel_during)
        task = asyncio.create_task(pictures.add(account_id, harness.settings.file.parent / "upload"))
        with pytest.raises(asyncio.CancelledError):
            await task

    harness.run(cancel())
    assert len(list_files(harness)) == 4 * len(harness.run(harness.store.page_picture_names("", 10))) == 4


def test_the_same_lost_picture_twice_at_a_time_is_stored(harness: Harness) -> None:
    picture, account_id = add(harness), find_account_id(harness)
    (harness.settings.media_folder / f"{picture.name}-400.webp").unlink()
    upload = harness.settings.file.parent / "upload-1"

    async def add_both() -> list[tuple[Picture, bool]]:
        return await asyncio.gather(*(harness.services.pictures.add(account_id, upload) for _ in range(2)))

    assert harness.run(add_both()) == [(picture, False)] * 2
    assert len(list_files(harness)) == 4


def test_a_service_without_a_folder_has_no_pictures(harness: Harness) -> None:
    harness.replace_services()
    with pytest.raises(Unavailable, match="no folder for pictures"):
        add(harness)
    harness.run(harness.services.pictures.sweep())


def test_an_archive_has_the_jpegs_of_an_account(harness: Harness) -> None:
    names = [add(harness, number).name for number in (1, 2, 3)]
    add(harness, 4, "bob")
    folder = harness.settings.media_folder
    (folder / f"{names[0]}.jpg").unlink()

    account_id = find_account_id(harness)

    async def read() -> bytes:
        return b"".join([piece async for piece in harness.services.pictures.read_archive(account_id)])

    with ZipFile(BytesIO(harness.run(read()))) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {f"{name}.jpg" for name in names[1:]}
        assert archive.read(f"{names[1]}.jpg") == (folder / f"{names[1]}.jpg").read_bytes()
