"""What is measured in earnest in seconds has two minutes in the tests."""

from collections.abc import Iterator

import pytest

from bench import exchange, witness
from bench.scale import postgres
from listings.store.postgres import pool
from tests.harness import TIMEOUT


@pytest.fixture(scope="package", autouse=True)
def _patient() -> Iterator[None]:
    """A machine that stands still for some seconds is no fault of what is tested on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_SECONDS", TIMEOUT)
        patch.setattr(witness, "_START_SECONDS", TIMEOUT)
        patch.setattr(postgres, "_START_SECONDS", TIMEOUT)
        patch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", TIMEOUT)
        yield
