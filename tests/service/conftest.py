"""Alice in a whole service, with cheap password hashes. Some modules have a harness of their own."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Harness, cheap_passwords, create_member
from tests.service.importing import Shop
from tests.service.members import HERE, PASSWORD


@pytest.fixture
def harness(tmp_path: Path) -> Any:
    """A harness with cheap password hashes."""
    with cheap_passwords(), Harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> str:
    return harness.run(harness.services.sessions.sign_up("Alice", "Alice@Example.com", PASSWORD, HERE, "Firefox"))


@pytest.fixture
def shop(harness: Harness) -> Shop:
    return Shop(harness, harness.run(create_member(harness.services, "alice")))
