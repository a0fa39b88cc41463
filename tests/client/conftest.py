"""A service that simulates faults, for all tests of the client, and callers with keys of their own accounts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.callers import open_caller
from tests.client.lst import Lst
from tests.harness import Person, RunningService


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for all tests; each has its own accounts."""
    with RunningService(tmp_path_factory.mktemp("client"), rehearses=True, rate_limit="0") as running:
        yield running


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LISTINGS_API_KEY", raising=False)
    monkeypatch.delenv("LISTINGS_URL", raising=False)


@pytest.fixture
def alice(service: RunningService) -> Person:
    return service.cast().alice


Open = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, service: RunningService, alice: Person) -> Iterator[Open]:
    """Open callers of one kind, by default with alice's key."""
    with ExitStack() as stack:

        def open_one(key: str = alice.key, base_url: str = service.base_url, **options: Any) -> Any:
            caller = open_caller(request.param, key, base_url, **options)
            stack.callback(caller.close)
            return caller

        yield open_one


@pytest.fixture
def client(connect: Open) -> Any:
    return connect()


@pytest.fixture
def lst(tmp_path: Path, service: RunningService, alice: Person) -> Lst:
    return Lst(tmp_path, service, alice)
