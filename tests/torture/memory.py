"""How much memory of a process is in use, told by itself: the system tells only what it was given, by the mebibyte."""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

VARIABLE = "TORTURE_MEMORY"
_EVERY = 0.25  # seconds
_BLOCK = 128  # bytes that an object of Python's own allocator takes, roughly: it has them of 16 to 512
_DIGITS = 20


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, summed over its arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def watch(file: Path) -> None:
    """Write it into a file from now on, by a thread of this process."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)

    def work() -> None:
        while True:
            given = mallinfo()
            used = given.uordblks + given.hblkhd + sys.getallocatedblocks() * _BLOCK
            os.pwrite(descriptor, f"{used:0{_DIGITS}}".encode(), 0)
            time.sleep(_EVERY)

    threading.Thread(target=work, name="memory", daemon=True).start()


def told(file: Path) -> int:
    """The bytes that were in use a moment ago; 0 before there are any."""
    return int(file.read_bytes() or b"0") if file.exists() else 0
