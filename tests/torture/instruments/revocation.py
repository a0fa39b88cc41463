"""Revocation: a key is rejected by every process as soon as its revocation has returned."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path

from listings import wiring
from listings.service import Services
from listings.store.postgres import store as postgres_store
from tests.harness import Person, load_test_settings
from tests.postgres_server import PostgresServer
from tests.torture.http_client import PATH, Connection
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.services import RestartableService, create_people

KEYS = 200  # on each engine
_AT_ONCE = 20
_SERVICES = 2
_WAIT_SECONDS = postgres_store._CALLER_CHANGE_SECONDS  # noqa: SLF001 - a fixture of other tests sets it to zero


class Revocations:
    """Revokes keys that every service has just accepted."""

    def __init__(self, services: Sequence[RestartableService], revoking: Services, person: Person) -> None:
        self.failures: list[str] = []
        self._connections = [Connection(service.port, "") for service in services]
        self._revoking = revoking
        self._account = str(person.account.id)

    async def try_keys(self, count: int) -> None:
        """Create keys, use them, revoke them at the same time, and use them again."""
        issued = [await self._revoking.keys.create(self._account, f"key {number}") for number in range(count)]
        for key in issued:
            await self._expect(key.secret, HTTPStatus.OK)
        await asyncio.gather(*(self._revoke(key.key.id, key.secret) for key in issued))

    async def _revoke(self, key_id: int, secret: str) -> None:
        await self._revoking.keys.revoke(key_id)
        await self._expect(secret, HTTPStatus.UNAUTHORIZED)

    async def _expect(self, secret: str, status: HTTPStatus) -> None:
        for number, shared in enumerate(self._connections):
            connection = shared if status == HTTPStatus.OK else Connection(shared.port, "")
            response = await connection.fetch("GET", f"{PATH}?limit=1", headers={"X-API-Key": secret})
            if response.status != status:
                self.failures.append(f"service {number} returned {response.status} instead of {status.value}")
            if connection is not shared:
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()


async def _work(folder: Path, services: Sequence[RestartableService], keys: int) -> list[str]:
    url = services[0].environment["LISTINGS_DATABASE_URL"]
    (alice,) = await create_people(folder, 1, database=url)
    for service in services:
        service.start()
        await service.wait_until_ready()
    async with wiring.open_services(load_test_settings(folder, database=url)) as revoking:
        revocations = Revocations(services, revoking, alice)
        for start in range(0, keys, _AT_ONCE):
            await revocations.try_keys(min(_AT_ONCE, keys - start))
        revocations.close()
    for service in services:
        service.stop()
    return revocations.failures


def work(engine: str, folder: Path, keys: int) -> list[str]:
    """Revoke keys that two services use, from a third process, as the commands do. Return the failures."""
    folder.mkdir()
    with ExitStack() as stack:
        settings = {"LISTINGS_SITE": "off"}
        if engine == "PostgreSQL":
            server = stack.enter_context(PostgresServer())
            settings["LISTINGS_DATABASE_URL"] = stack.enter_context(server.bare_database())
        services = [stack.enter_context(RestartableService(folder, **settings)) for _ in range(_SERVICES)]
        return [f"{engine}: {failure}" for failure in asyncio.run(_work(folder, services, keys))]


def run(scale: Scale) -> Outcome:
    """Revoke keys on both engines."""
    keys, engines = scale.amount(KEYS, 4), ("SQLite", "PostgreSQL")
    with waiting(_WAIT_SECONDS):
        failures = [failure for engine in engines for failure in work(engine, scale.folder / engine, keys)]
    return Outcome(f"{keys} keys on each engine, {_SERVICES} services", failures, keys >= KEYS)


def control(scale: Scale) -> Outcome:
    """Do not wait until the caches of other processes have expired."""
    with waiting(0.0):
        failures = work("PostgreSQL", scale.folder / "control", 4)
    return Outcome("revocations return immediately", failures)


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Let writes of this process that change callers wait until caches have expired."""
    before = postgres_store._CALLER_CHANGE_SECONDS  # noqa: SLF001 - as above
    postgres_store._CALLER_CHANGE_SECONDS = seconds  # noqa: SLF001 - as above
    try:
        yield
    finally:
        postgres_store._CALLER_CHANGE_SECONDS = before  # noqa: SLF001 - as above


INSTRUMENT = Instrument(
    18,
    "revocation: keys in use by two services are revoked by a third process",
    "200 keys on each engine: none accepted after its revocation has returned",
    0.5,
    run,
    control,
    short_fraction=0.02,
)
