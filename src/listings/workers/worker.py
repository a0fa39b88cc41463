"""A worker process as seen by the supervisor, which exchanges messages with it over a socket pair."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from signal import SIGKILL, SIGTERM, Signals
from subprocess import DEVNULL, Popen
from typing import Any, Self, cast

import msgspec

from listings.domain.errors import STATUS, Code, Problem
from listings.telemetry.metrics import Family
from listings.workers import protocol

_START_TIMEOUT_SECONDS = 60.0

_log = logging.getLogger(__name__)


class WorkerKilledError(Problem):
    """A signal ended a worker before it was ready. The kernel sends SIGKILL when memory is short."""


class Worker:
    """One worker process. Created by `start`, for one event loop."""

    def __init__(
        self,
        process: Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_report: Callable[[int, list[Family]], None],
    ) -> None:
        """`on_report` is called with the process ID and the metrics of each report."""
        loop = asyncio.get_running_loop()
        self.pid = process.pid
        self.is_exit_expected = False
        self.started = loop.time()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._on_report = on_report
        self._ready: asyncio.Future[None] = loop.create_future()
        self._next_report: asyncio.Future[None] = loop.create_future()
        self._unanswered_pings = 0
        self.ended = asyncio.create_task(self._read_events())  # the exit code, or the negated number of a signal

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        flags: Mapping[str, str | None],
        listener: socket.socket,
        on_report: Callable[[int, list[Family]], None],
    ) -> Self:
        """Start a process that serves requests on the listener, and send it the flags. It may not be ready yet.

        The command gets two more arguments: the descriptors of the worker's socket and of the listener. The process has
        its own process group, so that Ctrl-C reaches only the supervisor. Raises Problem if it can't be started.
        """
        try:
            process, own_end = _start_process(command, listener)
            reader, writer = await asyncio.open_unix_connection(sock=own_end, limit=protocol.MAX_LINE_BYTES)
        except OSError as error:
            raise Problem("unavailable", f"A worker can't be started: {error.strerror}") from error
        worker = cls(process, reader, writer, on_report)
        worker.send(protocol.Begin(dict(flags)))
        return worker

    @property
    def is_ready(self) -> bool:
        return self._ready.done() and self._ready.exception() is None

    async def wait_until_ready(self) -> None:
        """Wait until the worker is ready. Raises Problem if it exits, or is not ready within a minute and is killed.

        The Problem is a WorkerKilledError if a signal of another program ended it.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), _START_TIMEOUT_SECONDS)
        except TimeoutError:
            await self.kill()
            raise Problem("unavailable", f"A worker was not ready within {_START_TIMEOUT_SECONDS:g} seconds") from None

    def send(self, command: protocol.Command) -> None:
        if not self._writer.is_closing():
            self._writer.write(protocol.encode(command))

    async def request_report(self, seconds: float) -> None:
        """Request the metrics and wait at most `seconds` for them. Without a reply, the last report stays valid."""
        if not self._ready.done() or self.ended.done():
            return
        self.send(protocol.RequestMetrics())
        either: list[asyncio.Future[Any]] = [self._next_report, self.ended]
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def ping(self) -> int:
        """Ping the worker, unless it is starting or stopping. Return how many earlier pings it has not answered."""
        unanswered = self._unanswered_pings
        if self._ready.done() and not self.is_exit_expected:
            self._unanswered_pings += 1
            self.send(protocol.Ping())
        return unanswered

    def signal(self, number: Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._process.send_signal(number)

    async def stop(self, command: protocol.Retire | protocol.Stop, seconds: float) -> bool:
        """Stop the worker with a command. Return whether it ended within `seconds`.

        No signal is used, because a process manager may have sent one to all processes, and a worker exits immediately
        at its second one. A worker that is starting executes no commands yet, so `Stop` ends it with SIGTERM.
        """
        self.is_exit_expected = True
        if isinstance(command, protocol.Stop) and not self._ready.done():
            self.signal(SIGTERM)
        else:
            self.send(command)
        done, _ = await asyncio.wait([self.ended], timeout=seconds)
        return bool(done)

    async def kill(self) -> None:
        self.is_exit_expected = True
        self.signal(SIGKILL)
        await asyncio.wait([self.ended])

    async def _read_events(self) -> int:
        problem = None
        while line := await protocol.read_line(self._reader):
            try:
                event = protocol.decode_event(line)
            except msgspec.MsgspecError:
                _log.warning("Worker %d sent an unknown event", self.pid)
                continue
            if isinstance(event, protocol.Ready):
                self._ready.set_result(None)
            elif isinstance(event, protocol.Failed):
                code = cast("Code", event.code) if event.code in STATUS else "unavailable"
                problem = Problem(code, event.message)
            elif isinstance(event, protocol.Pong):
                self._unanswered_pings = 0
            else:
                self._on_report(self.pid, event.families)
                reported, self._next_report = self._next_report, asyncio.get_running_loop().create_future()
                reported.set_result(None)
        self._writer.close()
        exit_code = await asyncio.to_thread(self._process.wait)
        if not self._ready.done():
            error = WorkerKilledError if exit_code < 0 else Problem
            message = f"A worker {describe_exit(exit_code)} during startup"
            self._ready.set_exception(problem or error("unavailable", message))
            self._ready.exception()  # mark as retrieved, because nobody may be waiting
        return exit_code


def _start_process(command: Sequence[str], listener: socket.socket) -> tuple[Popen[bytes], socket.socket]:
    own_end, worker_end = socket.socketpair()
    with worker_end, ExitStack() as on_error:
        on_error.enter_context(own_end)
        descriptors = (worker_end.fileno(), listener.fileno())
        arguments = [*command, *map(str, descriptors)]
        process = Popen(arguments, stdin=DEVNULL, pass_fds=descriptors, process_group=0)  # noqa: S603 - our own command
        on_error.pop_all()
    return process, own_end


def describe_exit(code: int) -> str:
    """Return how a process ended, such as "exited with code 1" or "was killed by SIGKILL"."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
