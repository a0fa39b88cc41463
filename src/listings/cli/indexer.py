"""The process that keeps this machine's search index current, started by `listings serve`.

    python -P -m listings.cli.indexer

It receives the settings given as flags as a line of JSON on its standard input, and stops when that is closed.
"""

import asyncio
import logging
import os
import signal
import sys

import msgspec

from listings import wiring
from listings.cli.memory_tuning import limit_malloc
from listings.cli.service import configure_logs
from listings.domain.errors import Problem
from listings.search.folders import find_root
from listings.search.indexer import Indexer
from listings.settings import Settings, load

_NICENESS = 10
_RETRY_SECONDS = 1.0

_log = logging.getLogger("listings.cli.indexer")  # __name__ is __main__ here


async def work(settings: Settings) -> None:
    """Follow the database until the standard input is closed."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            stopped.set()

    loop.add_reader(sys.stdin.fileno(), read_input)
    indexing = asyncio.create_task(_index(settings))
    await stopped.wait()
    indexing.cancel()
    await asyncio.wait([indexing])


async def _index(settings: Settings) -> None:
    while True:
        try:
            async with wiring.open_store(settings) as store:
                indexer = Indexer(store, find_root(settings.file))
                try:
                    await indexer.run()
                finally:
                    indexer.close()
        except Problem as problem:
            _log.warning("The search index waits for the database: %s", problem.message)
        await asyncio.sleep(_RETRY_SECONDS)


def main() -> None:
    """Run the process."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the service handles them, and closes our input
    limit_malloc()
    os.nice(_NICENESS)
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1)):  # nothing after the line
        line += byte
    if not line:
        return  # the service has ended
    try:
        settings = load(os.environ, msgspec.json.decode(line, type=dict[str, str | None]))
    except Problem as problem:
        sys.exit(f"listings: {problem.message}")
    configure_logs(settings, pid=os.getpid())
    asyncio.run(work(settings))
    os._exit(0)  # without waiting for merges


if __name__ == "__main__":
    main()
