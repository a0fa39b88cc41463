"""Fixtures of the tests of the pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.harness import Harness, Person
from tests.site.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")
