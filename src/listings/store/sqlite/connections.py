"""Open connections to the SQLite file, and check the file and the SQLite library before use."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.files import sync_folder

# 3.7.0 to 3.51.2 can corrupt a file when a WAL is reset while another process writes.
_MIN_SQLITE_VERSION = (3, 51, 3)
_READER_BUSY_TIMEOUT_MS = 50  # short, because it blocks the event loop
WRITER_BUSY_TIMEOUT_MS = 5_000
_EXCLUSIVE_BUSY_TIMEOUT_MS = 1_000
_WAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024
_INDEX_CHECKS, _INDEX_CHECK_SECONDS = 5, 0.01
MIN_FREE_BYTES = 64 * 1024 * 1024  # with less free disk space the store isn't ready
_ORPHANED_WAL_ADVICE = (
    "put the file back, restore a backup with `listings restore FILE --force`, or move the remaining files"
    " (-wal, -shm, -journal) away to start with an empty database"
)
_RECOVERY_ADVICE = (
    "restore a backup with `listings restore FILE --force`, or put the original database and its WAL back and remove"
)
MARKER_SUFFIX = ".needs-recovery"  # of the marker: see `write_recovery_marker`
FILE_HEADER = b"SQLite format 3\0"  # of every database file that is not empty
_CREATE_ADVICE = "run `listings migrate` or `listings serve` to create it"


def get_sqlite_version() -> str:
    """Return the version of the SQLite library in use, such as 3.54.1."""
    return apsw.sqlite_lib_version()


def require_safe_sqlite() -> None:
    """Raise Problem("schema_mismatch") if this version of SQLite can corrupt the file."""
    version = get_sqlite_version()
    if tuple(int(part) for part in version.split(".")) < _MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, _MIN_SQLITE_VERSION))
        raise Problem("schema_mismatch", f"SQLite {version} can corrupt a database: install {oldest} or newer")


def require_database_file(path: Path) -> None:
    """Raise Problem("database_missing") if the database file does not exist, or is empty next to a WAL."""
    require_no_orphaned_wal(path)
    if not path.exists():
        raise Problem("database_missing", f"There is no database at {path.absolute()}: {_CREATE_ADVICE}")


def find_orphaned_wal(path: Path) -> Path | None:
    """Return the WAL of a deleted or emptied database, or the journal of a deleted one, or None.

    SQLite considers such a file obsolete and removes it when the database is next opened.
    """
    real = os.path.realpath(path)
    wal, journal = Path(f"{real}-wal"), Path(f"{real}-journal")
    # Check these before the database: another process may be creating it, and its pages are written before its WAL.
    has_wal, has_journal = _get_size(wal) > 0, _get_size(journal) > 0
    if has_wal and not _get_size(path):
        return wal
    return journal if has_journal and not path.exists() else None


def require_no_orphaned_wal(path: Path) -> None:
    """Raise Problem("database_missing") if `find_orphaned_wal` finds a WAL or journal."""
    orphan = find_orphaned_wal(path)
    if orphan is not None:
        raise Problem(
            "database_missing",
            f"The database {path.absolute()} is missing or empty, but {orphan} still contains writes to it:"
            f" {_ORPHANED_WAL_ADVICE}",
        )


def write_recovery_marker(path: Path, reason: str) -> None:
    """Write the marker: a file next to the database that makes every start fail until it is removed. Raises OSError."""
    marker = _recovery_marker_of(path)
    marker.write_text(f"{reason}\n", "utf-8")
    marker.chmod(0o600)
    sync_folder(marker.parent)


def describe_recovery(path: Path) -> tuple[str, str] | None:
    """Return why the database needs recovery, and how to recover it, or None if it needs none."""
    marker = _recovery_marker_of(path)
    if not marker.exists():
        return None
    reason = marker.read_text("utf-8", "replace").strip() or "The database was damaged while in use"
    return reason, f"{_RECOVERY_ADVICE} {marker}"


def require_no_recovery_marker(path: Path) -> None:
    """Raise Unavailable if the database needs recovery. Raises OSError if the marker can't be read."""
    found = describe_recovery(path)
    if found is not None:
        raise Unavailable(": ".join(found))


def remove_recovery_marker(path: Path) -> None:
    """Let the database be used again. Raises OSError."""
    _recovery_marker_of(path).unlink(missing_ok=True)


def _recovery_marker_of(path: Path) -> Path:
    return Path(f"{os.path.realpath(path)}{MARKER_SUFFIX}")


def require_sqlite_file(path: Path) -> None:
    """Raise Unavailable if the path exists but can't be a SQLite file. Creates nothing next to it."""
    if not path.exists():
        return
    if not path.is_file():
        raise Unavailable(f"The database {path} can't be used: it is not a regular file")
    with path.open("rb") as file:
        header = file.read(len(FILE_HEADER))
    if header not in {b"", FILE_HEADER}:
        raise Unavailable(f"The database {path} can't be used: file is not a database")


def get_free_bytes(path: Path) -> int:
    """Return the free disk space, in bytes, on the file system of a file or folder."""
    return shutil.disk_usage(path).free


def is_read_only(path: Path) -> bool:
    """Return whether the file system of a file is mounted as read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def create_file(path: Path) -> None:
    """Create an empty file and its folder, accessible to their owner only, unless they exist."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def open_writer(path: Path) -> apsw.Connection:
    """Open a connection whose commits are durable when they return. The file must exist.

    Only one thread at a time may use it: it has no mutex, so a create takes 1% fewer instructions.
    """
    connection = _open(path, apsw.SQLITE_OPEN_NOMUTEX)
    connection.set_busy_timeout(WRITER_BUSY_TIMEOUT_MS)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "wal_autocheckpoint = 1000",
        f"journal_size_limit = {_WAL_SIZE_LIMIT_BYTES}",
        "temp_store = MEMORY",  # for savepoint rollbacks: the disk of the temporary folder may be full
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def open_reader(path: Path, cache_kibibytes: int = 16384, *, one_thread: bool = False) -> apsw.Connection:
    """Open a connection that can't write. The file must exist.

    `one_thread`: only one thread uses it, so it needs no mutex. Reading a listing then takes 4% fewer instructions.
    """
    connection = _open(path, apsw.SQLITE_OPEN_NOMUTEX if one_thread else apsw.SQLITE_OPEN_FULLMUTEX)
    connection.set_busy_timeout(_READER_BUSY_TIMEOUT_MS)
    for pragma in ("query_only = ON", f"cache_size = -{cache_kibibytes}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """Open a connection that can't write, and close it. If the database needs recovery, closing it keeps the WAL."""
    connection = open_reader(path)
    try:
        yield connection
    finally:
        if _recovery_marker_of(path).exists():  # the WAL may belong to a file that was replaced
            set_checkpoint_on_close(connection, enabled=False)
        connection.close()


def open_exclusive(path: Path) -> apsw.Connection:
    """Open a connection that locks out every other process until it is closed. The file must exist.

    Closing it keeps an existing WAL, because a damaged file must not be written to: see `set_checkpoint_on_close`.
    Raises apsw.BusyError while another process has the file open: in WAL mode even an idle connection holds a shared
    lock.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI  # URI: needed to attach a backup
    connection = apsw.Connection(str(path.absolute()), flags=flags)
    try:
        connection.set_busy_timeout(_EXCLUSIVE_BUSY_TIMEOUT_MS)
        set_checkpoint_on_close(connection, enabled=False)
        for statement in (
            "PRAGMA main.locking_mode = EXCLUSIVE",  # before the first access, or the WAL's index would be shared
            "PRAGMA synchronous = EXTRA",
            "BEGIN EXCLUSIVE",
            "COMMIT",
        ):
            connection.execute(statement).fetchall()
    except apsw.Error:
        connection.close(force=True)
        raise
    return connection


def set_checkpoint_on_close(connection: apsw.Connection, *, enabled: bool) -> None:
    """Set whether closing the last connection checkpoints the WAL and removes it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(not enabled))


def open_without_writes(path: Path) -> apsw.Connection:
    """Open a connection that changes no byte on disk, not even in the -wal and -shm files.

    Raises Problem("database_missing") for a missing file, and Problem("schema_mismatch") for one that can't be read
    without changing it.
    """
    connection = apsw.Connection(build_read_only_uri(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(WRITER_BUSY_TIMEOUT_MS)
    return connection


def build_read_only_uri(path: Path) -> str:
    """Return the URI with which SQLite reads a database without changing anything.

    If there is a WAL, its index is read without being written. Otherwise the file is opened as immutable: compare
    `read_file_state` before and after to detect a concurrent write.
    """
    require_database_file(path)
    real = path.resolve()
    wal, index, journal = (Path(f"{real}{suffix}") for suffix in ("-wal", "-shm", "-journal"))
    migrate = f"`listings --database-url sqlite:///{quote(str(real))} migrate`"  # it may not be the configured database
    if _get_size(journal):
        raise Problem("schema_mismatch", f"{real} has an unfinished transaction: {migrate} rolls it back")
    if _lacks_index(wal, index):
        raise Problem("schema_mismatch", f"{real} has a WAL without its index: {migrate} rebuilds it")
    parameter = "readonly_shm=1" if wal.exists() and index.exists() else "immutable=1"
    return f"file:{quote(str(real))}?mode=ro&{parameter}"


def read_file_state(path: Path) -> tuple[object, ...]:
    """Return a value that changes if the database file is written, or a WAL appears or disappears.

    A commit to an existing WAL does not change it.
    """
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, Path(f"{path.resolve()}-wal").exists()


def is_damage(error: apsw.Error) -> bool:
    """Return whether an error means that the database or its WAL is damaged."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return True
    return getattr(error, "extendedresult", None) in {apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS}


def _lacks_index(wal: Path, index: Path) -> bool:
    # SQLite removes the index just before the WAL, so check more than once.
    for _ in range(_INDEX_CHECKS):
        if index.exists() or not _get_size(wal):
            return False
        time.sleep(_INDEX_CHECK_SECONDS)
    return True


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _open(path: Path, mutex: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | mutex)
    # Query planner stability: without it, a SQLite built with STAT4 replans a statement for each new set of values,
    # which takes three times as long as running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection
