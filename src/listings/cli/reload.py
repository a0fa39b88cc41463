"""`listings reload`: reload a running service, and say how it went."""

import os
import signal
import time

import click

from listings.cli.group import example
from listings.cli.output import print_message
from listings.cli.parameters import load_settings
from listings.domain.errors import Problem
from listings.workers.reload_record import get_path, is_running, read_reloads

_INTERVAL_SECONDS = 0.1
_BEGIN_SECONDS = 10.0


@click.command(short_help="Replace the workers of a running service.")
@example("listings reload 4711")
@click.argument("pid", type=click.IntRange(1), metavar="PID")
def reload(pid: int) -> None:
    """Replace the workers of the service with the process ID PID, one at a time, and wait until they are ready.

    The new workers have the program and the secret files of this moment. No request fails. If a new worker can't start,
    the old ones stay, and the exit code is 1. Needs LISTINGS_WORKERS of 2 or more.
    """
    path = get_path(load_settings().file.parent, pid)
    before = read_reloads(path)
    if before is None or not is_running(pid):
        message = f"No service with these settings has the process ID {pid}: use that of `listings serve`"
        raise Problem("invalid_request", message)
    os.kill(pid, signal.SIGHUP)
    end = time.monotonic() + _BEGIN_SECONDS
    while True:
        reloads = read_reloads(path)
        if reloads is None or not is_running(pid):
            raise Problem("unavailable", "The service stopped during the reload: see its log")
        if reloads.finished > before.started:
            break
        if reloads.started == reloads.finished and time.monotonic() > end:
            message = "The service does not say how the reload goes, because it can't write to its folder: see its log"
            raise Problem("unavailable", message)
        time.sleep(_INTERVAL_SECONDS)
    if reloads.error is not None:
        raise Problem("unavailable", f"The service was not reloaded: {reloads.error}")
    print_message("Reloaded")
