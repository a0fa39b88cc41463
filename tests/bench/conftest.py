"""Longer timeouts for the benchmark tests."""

from collections.abc import Iterator

import pytest

from bench import http_client, stall_detector
from bench.scale import postgres
from listings.store.postgres import pool
from tests.harness import TIMEOUT


@pytest.fixture(scope="package", autouse=True)
def _long_timeouts() -> Iterator[None]:
    """Tolerate stalls of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_client, "_TIMEOUT_SECONDS", TIMEOUT)
        patch.setattr(stall_detector, "_START_SECONDS", TIMEOUT)
        patch.setattr(postgres, "_START_SECONDS", TIMEOUT)
        patch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", TIMEOUT)
        yield
