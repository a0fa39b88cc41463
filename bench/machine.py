"""What it was measured on: the machine's cores, its versions."""

import os
import platform
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import apsw

from bench import RejectedRequest, wrk
from listings import is_compiled

TICKS = os.sysconf("SC_CLK_TCK")
"""In how many parts the kernel divides a second of processor time."""


def two_cores() -> tuple[int, int]:
    """The server's core and the client's, of two physical ones where there are. Raises Refusal."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:  # noqa: PLR2004 - one for the server, one for the client
        raise RejectedRequest("The benchmark needs two cores: one for the server, one for the client")
    apart = [core for core in allowed[1:] if core not in siblings(allowed[0])]
    return allowed[0], (apart or allowed[1:])[0]


def siblings(core: int) -> set[int]:
    """The hyperthreads of a core's physical core, itself included."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return {core}
    spans = [span.partition("-") for span in text.split(",")]
    return {number for first, _, last in spans for number in range(int(first), int(last or first) + 1)}


def busy_seconds(cores: Collection[int], stat: str) -> float:
    """How long cores have worked since the start of the machine, for whomever, out of the text of /proc/stat."""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    of_cores = [values for name, *values in lines if name in {f"cpu{core}" for core in cores}]
    return sum(sum(map(int, (*values[:3], *values[5:7]))) for values in of_cores) / TICKS


def used_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [number for child in task.read_text("ascii").split() for number in family(int(child))]
    return found


def facts(cores: tuple[int, int], folder: Path) -> Mapping[str, str]:
    """Machine and versions, by their names."""
    sqlite = f"SQLite {apsw.sqlite_lib_version()}"
    return {
        "Machine": f"{_processor()}, {os.cpu_count()} cores{_virtual()}, {_memory()} of memory",
        "Cores": _cores(*cores),
        "File system": file_system(folder, Path("/proc/self/mounts").read_text("utf-8")),
        "System": f"Linux {platform.release()}",
        "Versions": ", ".join(
            [
                f"Listings {version('listings')}{', compiled' if is_compiled() else ', interpreted'}",
                f"Python {platform.python_version()}",
                *(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools")),
                f"apsw {version('apsw')} with {sqlite}",
                f"wrk {wrk.version()}",
            ]
        ),
    }


def file_system(folder: Path, mounts: str) -> str:
    """The kind of file system that a folder is on, out of the lines of /proc/mounts."""
    best, kind = "", "an unknown file system"
    for line in mounts.splitlines():
        _, place, found, *_ = line.split()
        if len(place) >= len(best) and folder.resolve().is_relative_to(place):
            best, kind = place, found
    return kind


def _cores(server: int, client: int) -> str:
    shared = "two hyperthreads of one physical core" if client in siblings(server) else "two physical cores"
    return f"the server on core {server}, wrk on core {client} ({shared}, according to the kernel)"


def _processor() -> str:
    return _entry(Path("/proc/cpuinfo"), "model name") or platform.machine()


def _virtual() -> str:
    return " of a virtual machine" if re.search(r"\bhypervisor\b", _entry(Path("/proc/cpuinfo"), "flags")) else ""


def _memory() -> str:
    kibibytes = _entry(Path("/proc/meminfo"), "MemTotal").removesuffix("kB")
    return f"{int(kibibytes) / 1024**2:.1f} GiB"


def _entry(path: Path, name: str) -> str:
    """The first value of a name in a file of `name: value` lines."""
    found = re.search(rf"^{name}\s*:\s*(.*)$", path.read_text("utf-8"), re.MULTILINE)
    return found[1] if found is not None else ""
