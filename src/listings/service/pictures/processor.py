"""Convert pictures in the process of `decoder.py`, which starts with the first upload and ends when it is idle."""

import asyncio
import json
import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, TypeVar, cast

import msgspec

from listings.domain.errors import Problem, Unavailable
from listings.queues import FairQueue
from listings.tasks import finish

T = TypeVar("T")

_MAX_WAITING = 20
_IDLE_SECONDS = 60
_ANSWER_SECONDS = 600  # other processes of the machine may each convert a picture for a minute first
_FAILED = "Pictures can't be processed at the moment: try again later"


class _Answer(msgspec.Struct):
    width: int = 0
    height: int = 0
    size: int = 0
    error: str = ""  # why the picture is invalid
    unavailable: str = ""  # why it could not be stored


class Processed(NamedTuple):
    """The size of a picture in pixels, and the bytes of its files."""

    width: int
    height: int
    size: int


class Processor:
    """Converts one picture at a time. Accounts take turns."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for the results, and for the lock that all processes of the machine share."""
        self._folder = folder
        self._queue = FairQueue(None, max_callers=_MAX_WAITING, max_total=_MAX_WAITING + 1)
        self._thread = ThreadPoolExecutor(1, "listings-pictures")
        self._process: subprocess.Popen[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def process(self, account_id: int, source: IO[bytes], name: str) -> Processed:
        """Write the files of a picture to the folder.

        Raises Problem("invalid_image"), or Unavailable if too many uploads wait or the files can't be written.
        """
        request = {"source": f"/proc/{os.getpid()}/fd/{source.fileno()}", "folder": str(self._folder), "name": name}
        async with self._queue.acquire(account_id):
            loop = asyncio.get_running_loop()
            if self._timer is not None:
                self._timer.cancel()
            try:
                # A cancelled caller must not close the source while it is read.
                running = loop.run_in_executor(self._thread, self._ask, json.dumps(request).encode() + b"\n")
                answer = await finish(running)
            finally:
                self._timer = loop.call_later(_IDLE_SECONDS, self._thread.submit, self._end)
        if answer.error:
            raise Problem("invalid_image", answer.error)
        if answer.unavailable:
            raise Unavailable(answer.unavailable, retry_after=10)
        return Processed(answer.width, answer.height, answer.size)

    def close(self) -> None:
        """End the process, even if it is converting a picture."""
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.kill()
        self._thread.submit(self._end)
        self._thread.shutdown()

    def _ask(self, request: bytes) -> _Answer:
        process = self._process = self._process or self._start()
        input_, output = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        line = b""
        with suppress(OSError):  # it has ended
            input_.write(request)
            if select.select([output], [], [], _ANSWER_SECONDS)[0]:
                line = output.readline()
        if not line:
            process.kill()
            self._end()
            raise Unavailable(_FAILED, retry_after=10)
        return msgspec.json.decode(line, type=_Answer)

    def _start(self) -> subprocess.Popen[bytes]:
        decoder = Path(__file__).with_name("decoder.py")
        program = [sys.executable, "-I", "-W", "ignore", str(decoder), str(self._folder / "lock")]
        pipe = subprocess.PIPE
        return subprocess.Popen(  # noqa: S603 - our own program, without our environment, which may contain secrets
            program, stdin=pipe, stdout=pipe, bufsize=0, cwd="/", env={}, start_new_session=True
        )

    def _end(self) -> None:
        if self._process is not None:
            with self._process as process:  # closes the pipes and waits
                self._process = None
                if process.stdin is not None:
                    process.stdin.close()
