"""Detecting removed and replaced files by their inodes, without reading their timestamps."""

import ctypes
from pathlib import Path

import pytest

from listings.store.sqlite import file_identity
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
    assert open_files.are_unchanged()
    (tmp_path / "listings.db-wal").write_text("more")
    assert open_files.are_unchanged()


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_removed_file_is_detected_until_it_is_restored(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "away")
    assert not open_files.are_unchanged()
    (tmp_path / "away").rename(tmp_path / name)
    assert open_files.are_unchanged()


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_replaced_file_is_detected(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_text(name)
    (tmp_path / "other").replace(tmp_path / name)
    assert not open_files.are_unchanged()


@pytest.mark.usefixtures("open_files")
def test_a_new_wal_is_detected(tmp_path: Path) -> None:
    (tmp_path / "listings.db-wal").unlink()
    without = OpenFiles(tmp_path / "listings.db")
    assert without.are_unchanged()
    (tmp_path / "listings.db-wal").write_text("new")
    assert not without.are_unchanged()


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
    assert open_files.are_unchanged()


@WITH_STATX
def test_stat_is_used_if_statx_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listings.db").touch()
    open_files = OpenFiles(tmp_path / "listings.db")
    monkeypatch.setattr(file_identity, "_statx", lambda *_: -1)
    assert open_files.are_unchanged()
