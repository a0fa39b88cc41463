"""Fixtures of the tests of the console."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.service import Services
from tests.harness import Harness, RunningService, cheap_passwords
from tests.site.tab import Tab, open_console, open_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> Tab:
    return open_console(harness)


@pytest.fixture
def signed_up(tmp_path: Path) -> Iterator[tuple[RunningService, bytes]]:
    """Return a running service, and the Cookie header of the session of Alice, who has a plan."""

    async def sign_up(services: Services) -> str:
        token = await services.sessions.sign_up("Alice", "alice@shop.example", "wide rivers run", "192.0.2.1")
        await services.accounts.set_plan("alice@shop.example", 4_000_000_000)
        return token

    with cheap_passwords(), RunningService(tmp_path, site="on", sign_up="on") as service:
        yield service, f"Cookie: listings_session={service.run(sign_up)}".encode()
