"""A worker as the supervisor sees it: a process that was started anew, and a pair of sockets to talk by."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from signal import SIGKILL, Signals
from subprocess import DEVNULL, Popen
from typing import Self

from listings.domain.errors import Problem
from listings.telemetry.metrics import Family
from listings.workers.protocol import LONGEST, Ask, Begin, Order, Ready, Refused, Report, Retire, line_of, news_of

_START_SECONDS = 60.0


class Worker:
    """One process. Made by `start`, on one event loop."""

    def __init__(
        self,
        process: Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_report: Callable[[int, list[Family]], None],
    ) -> None:
        """`on_report` is told of the metrics, with the process's number."""
        loop = asyncio.get_running_loop()
        self.pid = process.pid
        self.leaving = False  # its end is wanted
        self.started = loop.time()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._on_report = on_report
        self._ready: asyncio.Future[None] = loop.create_future()
        self._asked: list[asyncio.Future[None]] = []
        self.ended = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        flags: Mapping[str, str | None],
        listener: socket.socket,
        on_report: Callable[[int, list[Family]], None],
    ) -> Self:
        """Start a process that is to answer on the listener; it is told the flags. It may not be ready yet.

        The numbers of its end of the channel and of the listener follow the command. It has a process group of its
        own, so that a Ctrl-C reaches the supervisor alone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = (theirs.fileno(), listener.fileno())
            try:
                process = _started(command, descriptors)
            except OSError as error:
                ours.close()
                raise Problem("unavailable", f"A worker can't be started: {error.strerror}") from error
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST)
        worker = cls(process, reader, writer, on_report)
        worker.tell(Begin(dict(flags)))
        return worker

    async def until_ready(self) -> None:
        """Raises Problem when the worker ends, or takes a minute; it has ended then."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), _START_SECONDS)
        except TimeoutError:
            await self.end_by(SIGKILL)
            raise Problem("unavailable", f"A worker was not ready within {_START_SECONDS:g} seconds") from None

    def tell(self, order: Order) -> None:
        """Say something to it, if it is still there."""
        if not self._writer.is_closing():
            self._writer.write(line_of(order))

    async def report(self, seconds: float) -> None:
        """Let it report its metrics; after so many seconds what it told before has to do."""
        if not self._ready.done() or self.ended.done():
            return
        told = asyncio.get_running_loop().create_future()
        self._asked.append(told)
        self.tell(Ask())
        await asyncio.wait([told], timeout=seconds)

    def signal(self, number: Signals) -> None:
        """Send it a signal, if it is still there."""
        self._process.send_signal(number)

    async def end_by(self, order: Retire | Signals, seconds: float | None = None) -> bool:
        """Have it end, as is wanted; False when it has not within these seconds."""
        self.leaving = True
        if isinstance(order, Retire):
            self.tell(order)
        else:
            self.signal(order)
        done, _ = await asyncio.wait([self.ended], timeout=seconds)
        return bool(done)

    async def _listen(self) -> int:
        """Hear it out; returns its exit code, or the negative number of the signal that ended it."""
        last_word = None
        try:
            while line := await self._reader.readline():
                news = news_of(line)
                if isinstance(news, Ready):
                    self._ready.set_result(None)
                elif isinstance(news, Refused):
                    last_word = Problem(news.code, news.message)
                else:
                    self._heard(news)
        except (ConnectionError, ValueError):  # it was killed in the middle of a word
            pass
        self._writer.close()
        code = await asyncio.to_thread(self._process.wait)
        if not self._ready.done():
            self._ready.set_exception(last_word or Problem("unavailable", f"A worker {manner_of(code)} at its start"))
            self._ready.exception()  # known to whoever waits, and to nobody else
        self._release()
        return code

    def _heard(self, report: Report) -> None:
        self._on_report(self.pid, report.families)
        self._release()

    def _release(self) -> None:
        asked, self._asked = self._asked, []
        for told in asked:
            if not told.done():
                told.set_result(None)


def _started(command: Sequence[str], descriptors: tuple[int, int]) -> Popen[bytes]:
    words = [*command, *map(str, descriptors)]
    return Popen(words, stdin=DEVNULL, pass_fds=descriptors, process_group=0)  # noqa: S603 - it is our own program


def manner_of(code: int) -> str:
    """How a process ended, such as "ended with exit code 1" or "was ended by SIGKILL"."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
