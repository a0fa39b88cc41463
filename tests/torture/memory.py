"""Measures memory: the resident set, and the bytes in use from within the process, which changes in smaller steps."""

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


def read_status_mib(pid: int, name: str) -> float:
    """Return a value of the process's status in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


def reset_peak(pid: int) -> None:
    """Let the peak of a process's resident set, VmHWM, begin with its present size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")
