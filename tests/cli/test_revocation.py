"""A change of a key or an account applies in every process on PostgreSQL when the command or the call returns."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from listings.service import Services
from listings.store.postgres import store
from tests.cli.commands import DEADLINE, Program
from tests.harness import RunningService
from tests.postgres_server import PostgresServer

CHANGE_SECONDS = store._CALLER_CHANGE_SECONDS  # noqa: SLF001 - before the fixture of the server sets it to zero


class Poll(threading.Thread):
    """Sends requests with one key, one after the other, so that the service always has its caller in the cache."""

    def __init__(self, base_url: str, key: str) -> None:
        super().__init__(daemon=True)
        self.statuses: list[tuple[float, int]] = []  # with the time at which the request was sent
        self.accepted = threading.Event()
        self._stopping = threading.Event()
        self._url = f"{base_url}/api/v1/listings"
        self._key = key

    def run(self) -> None:
        with httpx2.Client(timeout=DEADLINE, headers={"X-API-Key": self._key}) as http:
            while not self._stopping.is_set():
                sent = time.monotonic()
                self.statuses.append((sent, http.get(self._url).status_code))
                self.accepted.set()

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE)


@pytest.fixture(scope="module")
def program(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with postgres.database() as url:
        folder = tmp_path_factory.mktemp("program")
        quiet = {"LISTINGS_LOG_LEVEL": "error"}  # nobody reads the services' logs
        program = Program(folder, LISTINGS_DATABASE_URL=url, LISTINGS_RATE_LIMIT="0", **quiet)
        program.run("account", "create", "--name", "alice", "--email", "alice@example.com", "--months", "12")
        yield program


@pytest.fixture(scope="module")
def other(program: Program) -> Iterator[str]:
    with program.serve() as serving:
        yield serving.base_url


@pytest.fixture
def here(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    monkeypatch.setattr(store, "_CALLER_CHANGE_SECONDS", CHANGE_SECONDS)
    with RunningService(tmp_path, database=program.environment["LISTINGS_DATABASE_URL"], rate_limit="0") as service:
        yield service


def create_key(program: Program) -> tuple[int, str]:
    data = json.loads(program.run("key", "create", "alice@example.com", "--name", "shop", "--json").out)
    return data["id"], data["key"]


def list_statuses_after(change: Callable[[], object], base_url: str, key: str) -> set[int]:
    poll = Poll(base_url, key)
    poll.start()
    assert poll.accepted.wait(DEADLINE)
    change()
    returned = time.monotonic()
    with httpx2.Client(timeout=DEADLINE) as http:
        next_status = http.get(f"{base_url}/api/v1/listings", headers={"X-API-Key": key}).status_code
    poll.stop()
    assert poll.statuses[0][1] == 200
    return {next_status, *(status for sent, status in poll.statuses if sent > returned)}


@pytest.mark.slow
@pytest.mark.decision("G25")
def test_a_key_revoked_by_the_command_is_rejected_by_the_next_request(program: Program, other: str) -> None:
    key_id, key = create_key(program)
    assert list_statuses_after(lambda: program.run("key", "revoke", str(key_id)), other, key) == {401}


@pytest.mark.decision("G25")
@pytest.mark.parametrize("way", ["revoked", "rotated without grace", "disabled"])
def test_a_change_in_one_process_applies_to_the_next_request_in_another(
    way: str, program: Program, other: str, here: RunningService
) -> None:
    key_id, key = create_key(program)

    async def change(services: Services) -> object:
        if way == "revoked":
            return await services.keys.revoke(key_id)
        if way == "rotated without grace":
            return await services.keys.rotate(key_id, 0)
        return await services.accounts.disable("alice@example.com")

    assert list_statuses_after(lambda: here.run(change), other, key) == ({403} if way == "disabled" else {401})
