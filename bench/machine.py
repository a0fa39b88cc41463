"""The cores, the versions and the load of the machine."""

import os
import platform
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import apsw

from bench import BenchmarkError, wrk
from listings import __version__, is_compiled

TICKS = os.sysconf("SC_CLK_TCK")
"""Ticks per second of processor time."""


def choose_cores() -> tuple[int, int]:
    """Choose a core for the server and one for the client, on different physical cores if possible.

    Raise BenchmarkError if there is only one.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:  # noqa: PLR2004 - one for the server, one for the client
        raise BenchmarkError("The benchmark needs two cores: one for the server, one for the client")
    apart = [core for core in allowed[1:] if core not in get_siblings(allowed[0])]
    return allowed[0], (apart or allowed[1:])[0]


def get_siblings(core: int) -> set[int]:
    """Return the hyperthreads of the same physical core, this one included."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return {core}
    spans = [span.partition("-") for span in text.split(",")]
    return {number for first, _, last in spans for number in range(int(first), int(last or first) + 1)}


def compute_busy_seconds(cores: Collection[int], stat: str) -> float:
    """Return the seconds that the cores have worked since boot, from the text of /proc/stat."""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    of_cores = [values for name, *values in lines if name in {f"cpu{core}" for core in cores}]
    return sum(sum(map(int, (*values[:3], *values[5:7]))) for values in of_cores) / TICKS


def get_processor_seconds(pid: int) -> float:
    """Return the user and system time of a process in seconds."""
    values = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / TICKS


def list_processes(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            pids += [number for child in task.read_text("ascii").split() for number in list_processes(int(child))]
    return pids


def describe_machine(cores: tuple[int, int], folder: Path) -> Mapping[str, str]:
    """Return the machine and the versions by name."""
    sqlite = f"SQLite {apsw.sqlite_lib_version()}"
    return {
        "Machine": f"{_processor()}, {os.cpu_count()} cores{_virtual()}, {_memory()} of memory",
        "Cores": _cores(*cores),
        "File system": find_file_system(folder, Path("/proc/self/mounts").read_text("utf-8")),
        "System": f"Linux {platform.release()}",
        "Versions": ", ".join(
            [
                f"Listings {__version__}{', compiled' if is_compiled() else ', interpreted'}",
                f"Python {platform.python_version()}",
                *(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools")),
                f"apsw {version('apsw')} with {sqlite}",
                f"wrk {wrk.get_version()}",
            ]
        ),
    }


def find_file_system(folder: Path, mounts: str) -> str:
    """Return the type of the file system of a folder, from the text of /proc/mounts."""
    best, kind = "", "an unknown file system"
    for line in mounts.splitlines():
        _, mount_point, file_system, *_ = line.split()
        if len(mount_point) >= len(best) and folder.resolve().is_relative_to(mount_point):
            best, kind = mount_point, file_system
    return kind


def _cores(server: int, client: int) -> str:
    shared = "two hyperthreads of one physical core" if client in get_siblings(server) else "two physical cores"
    return f"the server on core {server}, wrk on core {client} ({shared}, according to the kernel)"


def _processor() -> str:
    return _entry(Path("/proc/cpuinfo"), "model name") or platform.machine()


def _virtual() -> str:
    return " of a virtual machine" if re.search(r"\bhypervisor\b", _entry(Path("/proc/cpuinfo"), "flags")) else ""


def _memory() -> str:
    kibibytes = _entry(Path("/proc/meminfo"), "MemTotal").removesuffix("kB")
    return f"{int(kibibytes) / 1024**2:.1f} GiB"


def _entry(path: Path, name: str) -> str:
    """Return the first value of a name in a file of `name: value` lines."""
    found = re.search(rf"^{name}\s*:\s*(.*)$", path.read_text("utf-8"), re.MULTILINE)
    return found[1] if found is not None else ""
