"""One of many processes of the service: what `listings serve --workers N` starts.

    python -P -m listings.cli.worker CHANNEL LISTENER

The two are the numbers of inherited descriptors: a socket to the supervisor, and the socket to answer on.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress

import uvloop

from listings import wiring
from listings.cli.gc_tuning import spare_lasting_objects
from listings.cli.parameters import configure_logs
from listings.cli.serve import with_possible_connections
from listings.domain.errors import Problem, Unavailable
from listings.settings import Settings, load
from listings.telemetry.logs import RequestLog
from listings.workers.supervisor_link import SupervisorLink

_REFUSED = 1

_log = logging.getLogger("listings.cli.worker")  # which is __main__ here


async def work(channel: socket.socket, listener: socket.socket) -> int:
    """Answer on the listener as the supervisor says; returns the exit code."""
    async with SupervisorLink.connect(channel) as supervisor:
        begin = await supervisor.receive_begin()
        if begin is None:
            return 0
        try:
            await _serve(with_possible_connections(load(os.environ, begin.flags)), listener, supervisor)
        except Problem as problem:
            supervisor.send_failure(problem)
            return _REFUSED
    return 0


async def _serve(settings: Settings, listener: socket.socket, supervisor: SupervisorLink) -> None:
    pid = os.getpid()
    as_json = configure_logs(settings, pid=pid)
    request_log = RequestLog(sys.stderr.buffer, settings.log_level, as_json=as_json, pid=pid)
    with wiring.open_observers(settings, listening=False) as observers:
        async with wiring.open_service(settings, metrics=observers.metrics) as service:
            with suppress(Unavailable):
                await service.require_ready()  # which connects to Redis, so that no request waits for that
            spare_lasting_objects()
            server = wiring.build_server(service, settings, request_log, supervisor.send_ready, observers)
            heeding = asyncio.create_task(supervisor.run_commands(server, observers.metrics))
            await server.serve([listener])
        heeding.cancel()
        if observers.metrics is not None:
            supervisor.send_report(observers.metrics)
    request_log.close()
    _log.info("Stopped")


def main() -> int:
    """Run as a process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a reload is the supervisor's
    channel, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    return uvloop.run(work(channel, listener))


if __name__ == "__main__":
    sys.exit(main())
