"""A file is replaced as a whole or not at all."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from listings.files import replace_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [False, True])
def test_the_file_is_replaced_after_the_block(tmp_path: Path, durable: bool) -> None:  # noqa: FBT001 - a parameter
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replace_file(path, durable=durable) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch(0o644)
    with replace_file(path):
        assert path.with_name("a.txt.new").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_block_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with replace_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_failed_rename_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError, match="folder"), replace_file(path):
        pass
    assert names(tmp_path) == ["folder"]


def test_a_leftover_or_link_is_replaced_and_not_written_to(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("untouched")
    (tmp_path / "a.txt.new").symlink_to(other)
    with replace_file(tmp_path / "a.txt") as file:
        file.write(b"new")
    assert other.read_text() == "untouched"
    assert names(tmp_path) == ["a.txt", "other"]
    assert not (tmp_path / "a.txt").is_symlink()


def test_a_second_writer_does_not_lose_its_file_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    first = ExitStack()
    first.enter_context(replace_file(path)).write(b"first")
    with replace_file(path) as file:
        file.write(b"second")
        with pytest.raises(FileExistsError, match="Another process is writing this file"):
            first.close()
    assert path.read_text() == "second"
    assert names(tmp_path) == ["a.txt"]
