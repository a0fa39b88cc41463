"""A worker process, started by `listings serve --workers N`.

    python -P -m listings.cli.worker CHANNEL LISTENER

The arguments are inherited file descriptors: a socket to the supervisor, and the listening socket.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial

import uvloop

from listings import wiring
from listings.cli.memory_tuning import limit_malloc, tune_garbage_collector
from listings.cli.serve import limit_connections
from listings.cli.service import configure_logs
from listings.domain.errors import Problem, Unavailable
from listings.settings import Settings, load
from listings.telemetry import logs
from listings.telemetry.logs import RequestLog
from listings.workers.protocol import Failed, Ready, Report
from listings.workers.supervisor_link import SupervisorLink

_EXIT_ERROR = 1

_log = logging.getLogger("listings.cli.worker")  # __name__ is __main__ here


async def work(channel: socket.socket, listener: socket.socket) -> int:
    """Serve requests on the listener until the supervisor stops the worker. Return the exit code."""
    async with SupervisorLink.connect(channel) as supervisor:
        begin = await supervisor.receive_begin()
        if begin is None:
            return 0
        try:
            await _serve(limit_connections(load(os.environ, begin.flags)), listener, supervisor)
        except Problem as problem:
            supervisor.send(Failed(problem.code, problem.message))
            return _EXIT_ERROR
    return 0


async def _serve(settings: Settings, listener: socket.socket, supervisor: SupervisorLink) -> None:
    pid = os.getpid()
    as_json = configure_logs(settings, pid=pid)
    request_log = RequestLog(logs.open_stderr(), settings.log_level, as_json=as_json, pid=pid)
    with logs.write_in_thread(), wiring.open_observers(settings, listening=False) as observers:
        async with wiring.open_services(settings, metrics=observers.metrics) as services:
            with suppress(Unavailable):
                await services.require_ready()  # connects to Redis, so that the first request does not wait for it
            tune_garbage_collector()
            on_start = partial(supervisor.send, Ready())
            server = wiring.build_server(services, settings, request_log, on_start, observers)
            commands = asyncio.create_task(supervisor.run_commands(server, observers.metrics))
            await server.serve([listener])
        commands.cancel()
        if observers.metrics is not None:
            supervisor.send(Report(observers.metrics.report()))
        request_log.close()
        _log.info("Stopped")


def main() -> int:
    """Run the worker and return its exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # only the supervisor handles reloads
    limit_malloc()
    channel, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    return uvloop.run(work(channel, listener))


if __name__ == "__main__":
    sys.exit(main())
