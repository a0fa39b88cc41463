"""Fixtures of the tests of the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Harness
from tests.site.tab import Tab, open_console, open_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> Tab:
    return open_console(harness)
