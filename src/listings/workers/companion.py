"""A process that works next to the serving ones: started, started again when it dies, and stopped with them."""

import asyncio
import logging
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from listings.workers.worker import describe_exit

_RESTART_SECONDS = 1.0
_STOP_SECONDS = 5.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_companion(command: Sequence[str], first_line: bytes) -> AsyncIterator[Callable[[], None]]:
    """Yield a function that starts the process, which runs until the block ends.

    The process receives a line on its standard input, and stops when that is closed, as at our own end.
    """
    started = asyncio.Event()
    task = asyncio.create_task(_supervise(command, first_line, started))
    try:
        yield started.set
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _supervise(command: Sequence[str], first_line: bytes, started: asyncio.Event) -> None:
    await started.wait()
    while True:
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, start_new_session=True)
        except OSError as error:
            _log.error("The process %s can't be started: %s", command[-1], error.strerror)
        else:
            try:
                if process.stdin is not None:
                    with suppress(ConnectionError):
                        process.stdin.write(first_line)
                        await process.stdin.drain()
                code = await process.wait()
            finally:
                await _stop(process)
            _log.error("The process %s %s; starting it again", command[-1], describe_exit(code))
        await asyncio.sleep(_RESTART_SECONDS)


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    waiting = asyncio.ensure_future(process.wait())
    await asyncio.wait([waiting], timeout=_STOP_SECONDS)
    if process.returncode is None:
        process.kill()
        await waiting
