"""Detecting removed, replaced and truncated files by inode and size, without reading their timestamps."""

import ctypes
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from listings.store.sqlite import file_identity
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.file_identity import OpenFiles, read_file_id

WITH_STATX = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "statx"), reason="this system has no statx")


@pytest.fixture(params=[pytest.param("statx", marks=WITH_STATX), "stat"])
def open_files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """A database and its WAL, on a system with statx and on one without."""
    if request.param == "stat":
        monkeypatch.setattr(file_identity, "_statx", None)
    for name in ("listings.db", "listings.db-wal"):
        (tmp_path / name).write_text(name)
    return OpenFiles(tmp_path / "listings.db")


def test_writes_leave_the_files_unchanged(open_files: OpenFiles, tmp_path: Path) -> None:
    assert open_files.find_change(None) is None
    (tmp_path / "listings.db-wal").write_text("more")
    assert open_files.find_change(None) is None


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_removed_file_is_detected_until_it_is_restored(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "away")
    assert open_files.find_change(None) == "replaced"
    (tmp_path / "away").rename(tmp_path / name)
    assert open_files.find_change(None) is None


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_replaced_file_is_detected(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_text(name)
    (tmp_path / "other").replace(tmp_path / name)
    assert open_files.find_change(None) == "replaced"


@pytest.mark.usefixtures("open_files")
def test_a_new_wal_is_detected(tmp_path: Path) -> None:
    (tmp_path / "listings.db-wal").unlink()
    without = OpenFiles(tmp_path / "listings.db")
    assert without.find_change(None) is None
    (tmp_path / "listings.db-wal").write_text("new")
    assert without.find_change(None) == "replaced"


@WITH_STATX
def test_statx_returns_the_same_id_as_stat(tmp_path: Path) -> None:
    (tmp_path / "listings.db").touch()
    status = (tmp_path / "listings.db").stat()
    assert read_file_id(bytes(tmp_path / "listings.db")) == (status.st_dev, status.st_ino)
    assert read_file_id(bytes(tmp_path / "other")) is None


@WITH_STATX
def test_the_timestamps_of_an_existing_file_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("listings.db", "listings.db-wal"):
        (tmp_path / name).touch()
    open_files = OpenFiles(tmp_path / "listings.db")

    def fail(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(file_identity, "_read_status_with_stat", fail)
    assert open_files.find_change(None) is None


@WITH_STATX
def test_stat_is_used_if_statx_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listings.db").touch()
    open_files = OpenFiles(tmp_path / "listings.db")
    monkeypatch.setattr(file_identity, "_statx", lambda *_: -1)
    assert open_files.find_change(None) is None


class BusyConnection(apsw.Connection):
    """A connection during whose first `wal_checkpoint` another one writes."""

    is_first = True

    def wal_checkpoint(self, *args: object, **options: object) -> tuple[int, int]:
        if self.is_first:
            self.is_first = False
            with closing(open_writer(Path(self.filename))) as other:
                other.execute("CREATE TABLE second (number)")
        return super().wal_checkpoint(*args, **options)  # type: ignore[arg-type]  # passed on as they are


def test_a_wal_that_grows_during_the_check_is_not_truncated(tmp_path: Path) -> None:
    (tmp_path / "listings.db").touch()
    with closing(open_writer(tmp_path / "listings.db")) as writer:
        writer.execute("CREATE TABLE first (number)")
        open_files = OpenFiles(tmp_path / "listings.db")
        with closing(BusyConnection(str(tmp_path / "listings.db"))) as connection:
            connection.execute("SELECT * FROM first").fetchall()  # opens the WAL
            assert open_files.find_change(connection) is None
            assert not connection.is_first
