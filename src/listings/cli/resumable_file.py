"""Resumable writing of a file: FILE.part has the data and FILE.part.json the progress of an interrupted export."""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from listings.domain.errors import Problem
from listings.files import replace_file, sync_folder


class Origin(msgspec.Struct, frozen=True):
    """The source of the data. A partial file can be continued only from the same source."""

    account_id: int
    database_id: str
    format: str


class Progress(msgspec.Struct, frozen=True):
    """The progress of an export: the bytes and listings on disk, and the id of the last of these listings."""

    origin: Origin
    bytes: int = 0
    listings: int = 0
    last_id: int = 0


def resolve_target(file: Path) -> Path:
    """Return the path of a file with symbolic links resolved. Raises Problem("invalid_request") if it is not a file."""
    target = Path(os.path.realpath(file))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        raise Problem("invalid_request", f"{str(file)[:200]} can't be written: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise Problem("invalid_request", f"{file} is not a regular file: choose another name")
    return target


def require_absent(target: Path, *, force: bool) -> None:
    """Raise Problem("invalid_request") if the file exists, unless `force` allows to overwrite it."""
    if target.exists() and not force:
        raise _build_exists_problem(target)


def _build_exists_problem(target: Path) -> Problem:
    return Problem("invalid_request", f"{target} exists: choose another name, or overwrite it with --force")


class PartialFile:
    """FILE.part, open for appending to the data of an interrupted run with the same origin.

    The caller handles OSError.
    """

    def __init__(self, target: Path, origin: Origin, *, force: bool) -> None:
        """Raises Problem("invalid_request") if another export is writing the file, or if `target` exists."""
        self._target = target
        self._force = force
        self._path = target.with_name(f"{target.name}.part")
        self._progress_path = target.with_name(f"{target.name}.part.json")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = open(os.open(self._path, flags, 0o600), "r+b")  # noqa: PTH123, SIM115 - a descriptor with its mode
        try:
            os.fchmod(self._file.fileno(), 0o600)  # fails if another user owns the file
            self._lock()
            self._require_target_absent(force=force)
            self.progress = self._load_progress(origin)
            if not self.progress.bytes:
                self._discard_progress()
            self._file.truncate(self.progress.bytes)
            self._file.seek(self.progress.bytes)
        except BaseException:
            self._file.close()
            raise

    def _require_target_absent(self, *, force: bool) -> None:
        try:
            require_absent(self._target, force=force)
        except Problem:
            self._path.unlink()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:  # so that the next run can continue
            with suppress(OSError):
                self.save()
        with suppress(OSError):
            self._file.close()

    def write(self, data: bytes, listings: int = 0, last_id: int = 0) -> None:
        """Append the data of `listings` listings, the last of which has `last_id`."""
        self._file.write(data)
        done = self.progress
        self.progress = Progress(done.origin, done.bytes + len(data), done.listings + listings, last_id)

    def save(self) -> None:
        """Flush the data to disk, then record the progress."""
        self._file.flush()
        os.fsync(self._file.fileno())
        with replace_file(self._progress_path) as file:
            file.write(msgspec.json.encode(self.progress))

    def finish(self) -> None:
        """Flush the data to disk and rename the partial file to its target.

        Raises Problem("invalid_request") if the target was created meanwhile.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._rename()
        sync_folder(self._target.parent)
        self._progress_path.unlink(missing_ok=True)

    def _rename(self) -> None:
        """Rename the partial file to its target. Without `force`, a link detects that the target exists."""
        if self._force:
            self._path.replace(self._target)
            return
        try:
            os.link(self._path, self._target)
        except FileExistsError:
            raise _build_exists_problem(self._target) from None
        except OSError:  # a file system without hard links
            self._path.replace(self._target)
        else:
            self._path.unlink()

    def _lock(self) -> None:
        """Lock the file. Compare it with its path, since another export may have finished between open and lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise Problem("invalid_request", f"Another export is writing {self._target}: wait until it ends")

    def _discard_progress(self) -> None:
        """Delete saved progress, which would fit the new data if this run were killed before it saved its own."""
        self._progress_path.unlink(missing_ok=True)
        sync_folder(self._target.parent)

    def _load_progress(self, origin: Origin) -> Progress:
        try:
            saved = msgspec.json.decode(self._progress_path.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return Progress(origin)
        is_complete = 0 <= saved.bytes <= os.fstat(self._file.fileno()).st_size
        return saved if saved.origin == origin and is_complete else Progress(origin)
