"""The temporary files of large bodies."""

import asyncio
import gc
from pathlib import Path
from typing import IO

from listings.api.body_files import BodyFile, BodyFolder


class FolderWithFile(BodyFolder):
    """A folder whose file is older than the body, so that the garbage collector finalizes it first."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1 << 30)
        self.made: list[IO[bytes]] = [super().create()]

    def create(self) -> IO[bytes]:
        return self.made.pop()


def test_the_file_of_a_body_that_is_not_released_is_closed_without_a_warning(tmp_path: Path) -> None:
    body = BodyFile(FolderWithFile(tmp_path))
    cycle: list[object] = [body]
    cycle.append(cycle)
    asyncio.run(body.write(bytes(1 << 20)))
    del body, cycle
    gc.collect()  # pytest reports the ResourceWarning of a file that was not closed
