"""Connections to the SQLite file: how each is set, and which SQLite is good enough."""

import os
from pathlib import Path
from urllib.parse import quote

import apsw

from listings.domain.errors import Problem, Unavailable

# 3.7.0 to 3.51.2 can corrupt a file when a WAL is reset while another process writes.
_OLDEST_SQLITE = (3, 51, 3)
_READER_WAITS = 50  # milliseconds: the event loop stands still meanwhile
_WRITER_WAITS = 5_000
_ALONE_WAITS = 1_000
_WAL_KEPT = 64 * 1024 * 1024
LEAST_ROOM = 64 * 1024 * 1024  # bytes that are left on the disk: with less the store isn't ready
LEFT_ADVICE = (
    "put the file back, or restore a backup with `listings restore FILE --force`, or move what is left (-wal, -shm,"
    " -journal) away to begin anew"
)
_HEADER = b"SQLite format 3\0"  # of every file that is not empty
_MAKE_IT = "make it with `listings migrate` or `listings serve`"


def sqlite_version() -> str:
    """Of the library in use, such as 3.54.1."""
    return apsw.sqlite_lib_version()


def require_sound_sqlite() -> None:
    """Raises Problem("schema_mismatch") when this SQLite is one that can corrupt the file."""
    version = sqlite_version()
    if tuple(int(part) for part in version.split(".")) < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        raise Problem("schema_mismatch", f"SQLite {version} can corrupt a database; {oldest} or newer is needed")


def require_file(path: Path) -> None:
    """Raises Problem("database_missing") where there is no database."""
    require_nothing_left(path)
    if not path.exists():
        raise Problem("database_missing", f"There is no database at {path.absolute()}: {_MAKE_IT}")


def left_behind(path: Path) -> Path | None:
    """The WAL or journal of a database whose own file is gone, or emptied; None where all is as it should be.

    SQLite takes such a file for one that nobody needs and removes it, whoever opens the database next.
    """
    real = os.path.realpath(path)
    wal, journal = Path(f"{real}-wal"), Path(f"{real}-journal")
    # Before the database itself, since another process may be making it: there are pages in it before there is a WAL.
    has_wal, has_journal = _size_of(wal) > 0, _size_of(journal) > 0
    if has_wal and not _size_of(path):
        return wal
    return journal if has_journal and not path.exists() else None


def require_nothing_left(path: Path) -> None:
    """Raises Problem("database_missing") where a database is gone and what was written to it last is still there."""
    left = left_behind(path)
    if left is not None:
        raise Problem(
            "database_missing",
            f"The database {path.absolute()} is gone, and {left} still holds writes to it: {LEFT_ADVICE}",
        )


def require_kind(path: Path) -> None:
    """Raises Unavailable, before anything is made beside it, for what is there and can be no SQLite file."""
    if not path.exists():
        return
    if not path.is_file():
        raise Unavailable(f"The database {path} can't be used: it is no regular file")
    with path.open("rb") as file:
        header = file.read(len(_HEADER))
    if header not in {b"", _HEADER}:
        raise Unavailable(f"The database {path} can't be used: file is not a database")


def free_room(path: Path) -> int:
    """How many bytes a file or folder can grow by."""
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def create_file(path: Path) -> None:
    """Make an empty file and its folder, readable by their owner alone, where there is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def open_writer(path: Path) -> apsw.Connection:
    """A connection whose commits are on disk when they return. The file must exist."""
    connection = _open(path)
    connection.set_busy_timeout(_WRITER_WAITS)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "wal_autocheckpoint = 1000",
        f"journal_size_limit = {_WAL_KEPT}",
        "temp_store = MEMORY",  # what a savepoint may have to undo; the disk for temporary files may be full
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A connection that can't write, for the thread of the event loop. The file must exist."""
    connection = _open(path)
    connection.set_busy_timeout(_READER_WAITS)
    for pragma in ("query_only = ON", "cache_size = -16384"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def open_alone(path: Path) -> apsw.Connection:
    """A connection that holds the file against every other process until it is closed. The file must exist.

    Closing it leaves a WAL as it was found, since a damaged file is not to be written to: see `fold_wal_on_close`.
    Raises apsw.BusyError while another process has it open: a connection to a file in WAL mode holds a share of the
    lock even when it does nothing.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI  # which a database that is attached is named by
    connection = apsw.Connection(str(path.absolute()), flags=flags)
    try:
        connection.set_busy_timeout(_ALONE_WAITS)
        fold_wal_on_close(connection, fold=False)
        for statement in (
            "PRAGMA locking_mode = EXCLUSIVE",  # before the first access, or a WAL would be shared
            "PRAGMA synchronous = EXTRA",
            "BEGIN EXCLUSIVE",
            "COMMIT",
        ):
            connection.execute(statement).fetchall()
    except apsw.Error:
        connection.close(force=True)
        raise
    return connection


def fold_wal_on_close(connection: apsw.Connection, *, fold: bool) -> None:
    """Whether the last connection that is closed writes the WAL into the file and removes it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not fold))


def open_untouched(path: Path) -> apsw.Connection:
    """A connection that changes no byte on the disk, not even of the files beside the database.

    Raises Problem("database_missing"), Problem("schema_mismatch") for what can't be read without a change.
    """
    connection = apsw.Connection(untouched_address(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(_WRITER_WAITS)
    return connection


def untouched_address(path: Path) -> str:
    """The URI by which SQLite reads a database without changing anything.

    Where there is a WAL, its index is read without being written, or built in memory. Where there is none, the file is
    read as one that nobody writes: ask `state_of` before and afterwards.
    """
    require_file(path)
    real = path.resolve()
    wal, index, journal = (Path(f"{real}{suffix}") for suffix in ("-wal", "-shm", "-journal"))
    if journal.exists() and journal.stat().st_size:
        raise Problem("schema_mismatch", f"{real} was left in the middle of a change: `listings migrate` undoes that")
    if wal.exists() and wal.stat().st_size and not index.exists():
        raise Problem("schema_mismatch", f"{real} has a WAL without its index: `listings migrate` makes it anew")
    manner = "readonly_shm=1" if wal.exists() and index.exists() else "immutable=1"
    return f"file:{quote(str(real))}?mode=ro&{manner}"


def state_of(path: Path) -> tuple[object, ...]:
    """What differs when the database was written between two looks."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, Path(f"{path.resolve()}-wal").exists()


def _size_of(path: Path) -> int:
    """In bytes; 0 where there is no such file."""
    return path.stat().st_size if path.exists() else 0


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    # Without this promise, a SQLite built with STAT4 plans a statement anew whenever other values are bound to it,
    # which takes three times as long as to run it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection
