"""Measures the memory in use from within the process: the resident set changes only in steps of a mebibyte."""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

FILE_VARIABLE = "TORTURE_MEMORY"
_INTERVAL_SECONDS = 0.25
_BLOCK_BYTES = 128  # average size of an object of Python's own allocator, which handles 16 to 512 bytes
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


def start_measuring(file: Path) -> None:
    """Start a thread that writes the bytes in use to a file."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)

    def work() -> None:
        while True:
            info = mallinfo()
            used = info.uordblks + info.hblkhd + sys.getallocatedblocks() * _BLOCK_BYTES
            os.pwrite(descriptor, f"{used:0{_DIGITS}}".encode(), 0)
            time.sleep(_INTERVAL_SECONDS)

    threading.Thread(target=work, name="memory", daemon=True).start()


def read_used_bytes(file: Path) -> int:
    """Return the bytes that were last in use; 0 before the first measurement."""
    return int(file.read_bytes() or b"0") if file.exists() else 0
