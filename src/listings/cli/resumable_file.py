"""A file in the making: FILE.part, and beside it how far it is, so that an interrupted export goes on."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from listings.domain.errors import Problem


class Origin(msgspec.Struct, frozen=True):
    """What a part is of."""

    account_id: int
    database_id: str
    format: str


class Progress(msgspec.Struct, frozen=True):
    """How far a part is: so many bytes are on disk, with so many listings, the last of this id."""

    origin: Origin
    bytes: int = 0
    listings: int = 0
    last_id: int = 0


def place_of(file: Path) -> Path:
    """Where a file is to be written, links resolved. Raises Problem("invalid_request") for what is no file."""
    try:
        place = file.resolve()
        is_there, is_file = place.exists(), place.is_file()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "this is no name of a file"
        raise Problem("invalid_request", f"{str(file)[:200]} can't be written: {reason}") from None
    if is_there and not is_file:
        raise Problem("invalid_request", f"{file} is no regular file: name another one")
    return place


def require_free(target: Path, *, force: bool) -> None:
    """Raises Problem("invalid_request") where the file is there, and not to be overwritten."""
    if target.exists() and not force:
        raise Problem("invalid_request", f"{target} exists: name another file, or overwrite it with --force")


class Part:
    """FILE.part, open for writing behind what an earlier run has left of the same origin.

    Every OSError is the caller's to tell.
    """

    def __init__(self, target: Path, origin: Origin, *, force: bool) -> None:
        """Raises Problem("invalid_request") while another export writes it, or has just ended: see `require_free`."""
        self._target = target
        self._path = target.with_name(f"{target.name}.part")
        self._progress_path = target.with_name(f"{target.name}.part.json")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = open(os.open(self._path, flags, 0o600), "r+b")  # noqa: PTH123, SIM115 - a descriptor with its mode
        try:
            os.fchmod(self._file.fileno(), 0o600)  # fails for somebody else's file
            self._lock()
            self._require_free(force=force)
            self.progress = self._left_by_an_earlier_run(origin)
            self._file.truncate(self.progress.bytes)
            self._file.seek(self.progress.bytes)
        except BaseException:
            self._file.close()
            raise

    def _require_free(self, *, force: bool) -> None:
        try:
            require_free(self._target, force=force)
        except Problem:
            self._path.unlink()
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """What was written so far is kept, however it ends."""
        if kind is not None:
            with suppress(OSError):
                self.save()
        with suppress(OSError):
            self._file.close()

    def write(self, data: bytes, listings: int = 0, last_id: int = 0) -> None:
        """Append the bytes of so many listings, the last of this id."""
        self._file.write(data)
        done = self.progress
        self.progress = Progress(done.origin, done.bytes + len(data), done.listings + listings, last_id)

    def save(self) -> None:
        """Remember how far it is, once that is on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        draft = self._progress_path.with_name(f"{self._progress_path.name}.new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - as above
            file.write(msgspec.json.encode(self.progress))
        draft.replace(self._progress_path)

    def finish(self) -> None:
        """Put the whole file in its place."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(self._target)
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._progress_path.unlink(missing_ok=True)

    def _lock(self) -> None:
        """One export at a time; it may also have ended between our opening the file and our locking it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise Problem("invalid_request", f"Another export writes {self._target}: wait for its end")

    def _left_by_an_earlier_run(self, origin: Origin) -> Progress:
        try:
            found = msgspec.json.decode(self._progress_path.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return Progress(origin)
        whole = 0 <= found.bytes <= os.fstat(self._file.fileno()).st_size
        return found if found.origin == origin and whole else Progress(origin)
