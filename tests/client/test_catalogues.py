"""Random catalogues end as their file says, also with rivals. `make torture` runs a thousand."""

from pathlib import Path

import pytest

from tests.client.catalogues import World
from tests.client.lst import Lst


@pytest.mark.parametrize("seed", range(3))
def test_a_catalogue_ends_as_its_file_says(lst: Lst, tmp_path: Path, seed: int) -> None:
    with lst.connect() as client:
        world = World(client, tmp_path, seed, rows=30)
        for _ in range(8):
            assert list(world.check()) == []
