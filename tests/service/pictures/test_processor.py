"""The process that converts pictures: its limits, its start and its end."""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from time import process_time

import pytest
from PIL import Image

from listings.domain.errors import Problem, Unavailable
from listings.service.pictures import processor as module
from listings.service.pictures.processor import Processor
from tests.pictures import draw, encode, noise, photo
from tests.processes import has_ended
from tests.waiting import until, until_async

NAME = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def processor(tmp_path: Path) -> Iterator[Processor]:
    processor = Processor(tmp_path)
    yield processor
    processor.close()


async def process(processor: Processor, data: bytes, folder: Path, account_id: int = 1, name: str = NAME) -> None:
    upload = folder / f"upload-{name}"
    upload.write_bytes(data)
    with upload.open("rb") as source:
        upload.unlink()
        await processor.process(account_id, source, name)


def find_pid(processor: Processor) -> int:
    child = processor._process  # noqa: SLF001 - its life is tested
    assert child is not None
    return child.pid


def test_one_process_converts_many_pictures(processor: Processor, tmp_path: Path) -> None:
    async def convert() -> set[int]:
        pids = set()
        for number in range(3):
            await process(processor, photo(number), tmp_path, name=f"{number:032x}")
            pids.add(find_pid(processor))
        return pids

    assert len(asyncio.run(convert())) == 1
    assert len(list(tmp_path.glob("*.webp"))) == 9


def test_the_process_is_of_low_priority_without_secrets(
    processor: Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTINGS_STRIPE_SECRET_KEY", "sk_secret")
    asyncio.run(process(processor, photo(), tmp_path))
    folder = Path(f"/proc/{find_pid(processor)}")
    assert os.getpriority(os.PRIO_PROCESS, find_pid(processor)) == 19
    assert (folder / "oom_score_adj").read_text().strip() == "1000"
    assert b"sk_secret" not in (folder / "environ").read_bytes()


def test_the_process_ends_with_the_service(tmp_path: Path) -> None:
    processor = Processor(tmp_path)
    asyncio.run(process(processor, photo(), tmp_path))
    pid = find_pid(processor)
    processor.close()
    assert has_ended(pid)


def test_the_process_ends_if_the_service_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, sys
from pathlib import Path
from listings.service.pictures.processor import Processor
processor = Processor(Path({str(tmp_path)!r}))
with open(sys.argv[1], "rb") as source:
    asyncio.run(processor.process(1, source, {NAME!r}))
print(processor._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    (tmp_path / "upload").write_bytes(photo())
    done = run([sys.executable, "-c", program, str(tmp_path / "upload")], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: has_ended(int(done.stdout)))


def test_an_idle_process_ends(processor: Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0)

    async def convert() -> int:
        await process(processor, photo(), tmp_path)
        pid = find_pid(processor)
        await until_async(lambda: has_ended(pid))
        await process(processor, photo(1), tmp_path, name="1" * 32)
        return pid

    asyncio.run(convert())
    assert (tmp_path / f"{'1' * 32}.jpg").exists()


def test_a_killed_process_is_replaced(processor: Processor, tmp_path: Path) -> None:
    async def convert() -> None:
        await process(processor, photo(), tmp_path)
        os.kill(find_pid(processor), signal.SIGKILL)
        with pytest.raises(Unavailable, match="try again later"):
            await process(processor, photo(1), tmp_path)
        await process(processor, photo(1), tmp_path)

    asyncio.run(convert())


def test_a_refused_picture_leaves_the_process_alive(processor: Processor, tmp_path: Path) -> None:
    async def convert() -> None:
        with pytest.raises(Problem, match="but it is PDF") as caught:
            await process(processor, b"%PDF-1.7", tmp_path)
        assert caught.value.code == "invalid_image"
        pid = find_pid(processor)
        await process(processor, photo(), tmp_path)
        assert find_pid(processor) == pid

    asyncio.run(convert())


@pytest.mark.parametrize(
    ("limit", "lower", "hindrance"),
    [
        ("_MAX_MEMORY = 512 *", "_MAX_MEMORY = 512 *", "bytearray(2**29)"),
        ("_MAX_SECONDS = 5, 60", "_MAX_SECONDS = 1, 60", "any(iter(int, 1))"),
        ("_MAX_SECONDS = 5, 60", "_MAX_SECONDS = 5, 1", "signal.pause()"),
    ],
    ids=["memory", "processor-time", "time"],
)
def test_a_picture_beyond_a_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, lower: str, hindrance: str
) -> None:
    program = Path(module.__file__).with_name("decoder.py").read_text("utf-8")
    first = "    kind = _find_kind(source.read(32))\n"
    assert limit in program
    assert first in program
    hindered = program.replace(limit, lower).replace(first, f"    if name == '{NAME}': {hindrance}\n{first}")
    (tmp_path / "decoder.py").write_text(hindered, "utf-8")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "processor.py"))
    processor = Processor(tmp_path)
    try:
        with pytest.raises(Problem, match="takes too long or too much memory") as caught:
            asyncio.run(process(processor, photo(), tmp_path))
        assert caught.value.code == "invalid_image"
        asyncio.run(process(processor, photo(), tmp_path, name="1" * 32))
    finally:
        processor.close()


def test_pictures_wait_and_accounts_take_turns(processor: Processor, tmp_path: Path) -> None:
    finished: list[int] = []

    async def convert(account_id: int, number: int) -> None:
        await process(processor, photo(number), tmp_path, account_id, f"{number:032x}")
        finished.append(account_id)

    async def run_all() -> list[BaseException | None]:
        accounts = [1] * 10 + [2] * 12
        return await asyncio.gather(
            *(convert(account, number) for number, account in enumerate(accounts)), return_exceptions=True
        )

    outcomes = asyncio.run(run_all())
    assert [type(outcome) for outcome in outcomes[:21]] == [type(None)] * 21
    assert isinstance(outcomes[21], Unavailable)
    assert outcomes[21].retry_after > 0
    assert set(finished[:4]) == {1, 2}


def test_one_picture_at_a_time_is_converted_on_a_machine(processor: Processor, tmp_path: Path) -> None:
    async def convert() -> None:
        with (tmp_path / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as the process of another service does
            running = asyncio.ensure_future(process(processor, photo(), tmp_path))
            assert await asyncio.wait([running], timeout=0.5) == (set(), {running})
        await running

    asyncio.run(convert())
    assert (tmp_path / f"{NAME}.jpg").exists()


def test_a_full_disk_is_not_the_fault_of_the_picture(tmp_path: Path) -> None:
    processor = Processor(tmp_path)
    try:
        asyncio.run(process(processor, photo(), tmp_path))
        (tmp_path / f"{NAME}.jpg").unlink()
        (tmp_path / f"{NAME}.jpg").symlink_to("/dev/full")
        with pytest.raises(Unavailable, match="can't be written: No space left"):
            asyncio.run(process(processor, photo(), tmp_path))
    finally:
        processor.close()


def test_the_service_itself_never_imports_pillow() -> None:
    program = "import sys, listings.cli.serve, listings.api.app, listings.site.app; print('PIL' in sys.modules)"
    assert run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.timing
def test_a_photo_takes_thrice_its_full_decoding_and_150_mib(tmp_path: Path) -> None:
    grain = noise((1000, 750)).resize((8000, 6000), Image.Resampling.BICUBIC)
    picture = Image.blend(grain, draw((8000, 6000)), 0.5)
    (tmp_path / "upload").write_bytes(encode(picture, quality=95))
    assert (tmp_path / "upload").stat().st_size > 7_000_000
    request = {"source": str(tmp_path / "upload"), "folder": str(tmp_path), "name": NAME}
    command = [sys.executable, "-I", str(Path(module.__file__).with_name("decoder.py")), str(tmp_path / "lock")]
    done = run(command, input=json.dumps(request) + "\n", capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert (answer["width"], answer["height"]) == (1600, 1200)
    began = process_time()
    with Image.open(tmp_path / "upload") as full:
        full.load()
    assert answer["cpu"] < 3 * (process_time() - began)  # which takes a third of a second
    assert answer["kibibytes"] < 150 * 1024
