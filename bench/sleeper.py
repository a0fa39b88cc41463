"""Sleeps for short times on a core and prints each late wake-up; `stall_detector` runs one on each core.

    python bench/sleeper.py CORE

Prints its scheduling class first. Each late wake-up is a line with the time when it was due and the delay, in seconds
of the monotonic clock. Ends with its parent.
"""

import os
import sys
import time

NAP_SECONDS = 0.002  # uses 1% of the core; 0.0005 would use 4%
LATE_SECONDS = 0.008


def main(core: int) -> None:
    """Sleep until the parent has ended."""
    os.sched_setaffinity(0, {core})
    _print("fifo" if _set_priority() else "fair")
    parent = os.getppid()
    while os.getppid() == parent:
        due = time.monotonic() + NAP_SECONDS
        time.sleep(NAP_SECONDS)
        late = time.monotonic() - due
        if late > LATE_SECONDS:
            _print(f"{due:.6f} {late:.6f}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _set_priority() -> bool:
    """Get real-time priority if permitted: then only a stalled machine delays the wake-up."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]))
