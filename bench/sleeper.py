"""One core's half of the witness, as a process: takes short naps and prints wakes that were late.

    python bench/sleeper.py CORE

Prints its scheduling class first, then for each late wake when it should have been, and by how much it was late:
seconds of the machine's monotonic clock. Ends with its parent.
"""

import os
import sys
import time

NAP_SECONDS = 0.002  # at 0.0005 it takes 4 % of the core that it watches, so 1 %
LATE_SECONDS = 0.008


def main(core: int) -> None:
    """Sleep until the parent is gone."""
    os.sched_setaffinity(0, {core})
    _say("fifo" if _go_first() else "fair")
    parent = os.getppid()
    while os.getppid() == parent:
        due = time.monotonic() + NAP_SECONDS
        time.sleep(NAP_SECONDS)
        late = time.monotonic() - due
        if late > LATE_SECONDS:
            _say(f"{due:.6f} {late:.6f}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _go_first() -> bool:
    """Run before every ordinary process of the core, if that is allowed: then only a stalled machine makes it late."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]))
