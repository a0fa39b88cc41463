"""Whether the open files are still there is told by their inodes, with no question for anything else."""

import ctypes
from pathlib import Path

import pytest

from listings.store.sqlite import file_identity
from listings.store.sqlite.file_identity import OpenFiles, number_of

WITH_STATX = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "statx"), reason="this system has no statx")


@pytest.fixture(params=[pytest.param("statx", marks=WITH_STATX), "stat"])
def open_files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """Of a database and its WAL, as they are known where there is a statx, and where there is none."""
    if request.param == "stat":
        monkeypatch.setattr(file_identity, "_statx", None)
    for name in ("listings.db", "listings.db-wal"):
        (tmp_path / name).write_text(name)
    return OpenFiles(tmp_path / "listings.db")


def test_files_that_are_written_to_are_there(open_files: OpenFiles, tmp_path: Path) -> None:
    assert open_files.are_there()
    (tmp_path / "listings.db-wal").write_text("more")
    assert open_files.are_there()


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_file_that_is_removed_is_missed_until_it_is_back(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / name).rename(tmp_path / "away")
    assert not open_files.are_there()
    (tmp_path / "away").rename(tmp_path / name)
    assert open_files.are_there()


@pytest.mark.parametrize("name", ["listings.db", "listings.db-wal"])
def test_a_file_that_is_replaced_is_another(open_files: OpenFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_text(name)
    (tmp_path / "other").replace(tmp_path / name)
    assert not open_files.are_there()


@pytest.mark.usefixtures("open_files")
def test_a_wal_that_comes_is_another(tmp_path: Path) -> None:
    (tmp_path / "listings.db-wal").unlink()
    without = OpenFiles(tmp_path / "listings.db")
    assert without.are_there()
    (tmp_path / "listings.db-wal").write_text("new")
    assert not without.are_there()


@WITH_STATX
def test_what_statx_says_is_what_stat_says(tmp_path: Path) -> None:
    (tmp_path / "listings.db").touch()
    status = (tmp_path / "listings.db").stat()
    assert number_of(bytes(tmp_path / "listings.db")) == (status.st_dev, status.st_ino)
    assert number_of(bytes(tmp_path / "other")) is None


@WITH_STATX
def test_nobody_asks_for_the_times_of_a_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("listings.db", "listings.db-wal"):
        (tmp_path / name).touch()
    open_files = OpenFiles(tmp_path / "listings.db")

    def fail(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(file_identity, "_number_with_times", fail)
    assert open_files.are_there()


@WITH_STATX
def test_where_statx_is_refused_stat_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listings.db").touch()
    open_files = OpenFiles(tmp_path / "listings.db")
    monkeypatch.setattr(file_identity, "_statx", lambda *_: -1)
    assert open_files.are_there()
