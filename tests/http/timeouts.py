"""Run `listings` with other timeouts of connections: `LISTINGS_TEST_TIMEOUT=6 python timeouts.py serve`."""

import os
import sys

from listings import cli
from listings.http.limits import ConnectionLimits

VARIABLE = "LISTINGS_TEST_TIMEOUT"


def set_timeouts() -> None:
    """Set the timeouts of an idle connection, headers, body and write."""
    seconds = float(os.environ[VARIABLE])
    limits = ConnectionLimits(idle_seconds=seconds, header_seconds=seconds, body_seconds=seconds, write_seconds=seconds)
    ConnectionLimits.__new__.__defaults__ = tuple(limits)


if __name__ == "__main__":
    set_timeouts()
    sys.exit(cli.main())
