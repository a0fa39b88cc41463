"""Where the files of pictures are: the interface of a folder and of a bucket.

Files are written once, under a name that is never used again. They are written to a folder on this machine first.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from listings.domain import pictures

_DRAFTS = ".new"


class PictureFiles(ABC):
    """The files. The methods wait for the disk or the network, so call them in a thread. They raise OSError."""

    base_url = ""  # the URL below which browsers load the files, or "": from the service

    def __init__(self, folder: Path, place: str) -> None:
        """`folder`: for files that are being written. `place`: where the others are, for messages."""
        self.drafts = folder / _DRAFTS
        self.place = place

    def create(self) -> None:
        """Create the folders, unless they exist. Only their owner may then read them."""
        self.drafts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.drafts.mkdir(mode=0o700, exist_ok=True)

    def discard(self, draft: str) -> None:
        """Delete files that were written under this name but not published, as far as they exist."""
        for file in pictures.list_files(draft):
            (self.drafts / file).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Return whether all files of a picture are there."""
        return not self.find_missing([name])

    def discard_older(self, moment: float) -> None:
        """Delete the files that were written before a Unix time but not published."""
        for name in list_older(self.drafts, moment):
            self.discard(name)

    @abstractmethod
    def claim(self, database_id: str) -> bool:
        """Return whether the place belongs to this database: the first one that used it."""

    @abstractmethod
    def publish(self, draft: str, name: str) -> None:
        """Move the files written as `draft` to where they are served as `name`. They then survive a power cut."""

    @abstractmethod
    def find_missing(self, names: Sequence[str]) -> list[str]:
        """Return those pictures of which a file is missing. `names` are in ascending order."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete the files of pictures, as far as they exist."""

    @abstractmethod
    def open(self, file: str) -> int | str | None:
        """Return a descriptor of a file, None if there is none, or the URL where browsers load it."""

    @abstractmethod
    def read(self, file: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""

    @abstractmethod
    def list_older(self, moment: float) -> Iterator[str]:
        """Yield the names of published pictures with a file from before a Unix time. A name may be repeated."""


def list_older(folder: Path, moment: float) -> Iterator[str]:
    """Yield the names of pictures with a file in a folder from before a Unix time. A name may be repeated."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            name = pictures.parse_file(entry.name)
            with suppress(FileNotFoundError):
                if name is not None and entry.stat(follow_symlinks=False).st_mtime < moment:
                    yield name
