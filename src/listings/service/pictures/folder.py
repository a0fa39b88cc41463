"""The files of pictures in a folder."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from listings.domain import pictures
from listings.files import sync_folder
from listings.service.pictures.files import PictureFiles, list_older

_OWNER = "database-id"


class PictureFolder(PictureFiles):
    """The folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, str(path))
        self.path = path

    def claim(self, database_id: str) -> bool:
        self.create()
        owner, draft = self.drafts / _OWNER, self.drafts / f"{_OWNER}-{database_id}-{os.getpid()}"
        with suppress(FileNotFoundError):
            return owner.read_text("ascii") == database_id
        with draft.open("w", encoding="ascii") as file:
            file.write(database_id)
            file.flush()
            os.fsync(file.fileno())  # after a power cut, an empty one would belong to no database
        with suppress(FileExistsError):
            owner.hardlink_to(draft)
        draft.unlink()
        return owner.read_text("ascii") == database_id

    def publish(self, draft: str, name: str) -> None:
        for source, file in zip(pictures.list_files(draft), pictures.list_files(name), strict=True):
            (self.drafts / source).replace(self.path / file)
        sync_folder(self.path)

    def find_missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not all((self.path / file).is_file() for file in pictures.list_files(name))]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            for file in pictures.list_files(name):
                (self.path / file).unlink(missing_ok=True)

    def open(self, file: str) -> int | None:
        try:
            return os.open(self.path / file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None

    def read(self, file: str) -> bytes:
        return (self.path / file).read_bytes()

    def list_older(self, moment: float) -> Iterator[str]:
        return list_older(self.path, moment)
