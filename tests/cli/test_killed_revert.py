"""A large revert that is killed continues when the service runs again."""

import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.commands import Program
from tests.harness import TIMEOUT, Harness
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]

LISTINGS = 3_000


def get_revert(http: httpx2.Client, path: str) -> Any:
    response = http.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def wait(http: httpx2.Client, path: str, reverted: int) -> Any:
    """Return the revert as soon as it has reverted this many listings."""
    end = time.monotonic() + TIMEOUT
    while (revert := get_revert(http, path))["counts"]["reverted"] < reverted:
        assert time.monotonic() < end, revert
    return revert


def create_listings(http: httpx2.Client) -> Any:
    """Create the listings. Return the first change set."""
    create = {"op": "create", "listing": {"title": "Lamp", "content": "Brass."}}
    for _ in range(LISTINGS // 100):
        response = http.post("/api/v1/listings/batch", json={"operations": [create] * 100})
        assert response.status_code == 200, response.text
    return http.get("/api/v1/changes?limit=1").json()["change_sets"][0]


@pytest.mark.decision("G55")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_killed_revert_continues_and_reverts_each_listing_once(
    tmp_path: Path, engine: str, postgres: PostgresServer
) -> None:
    with postgres.database() as url:
        settings = {"database": url} if engine == "postgres" else {}
        with Harness(tmp_path / "data", **settings) as harness:
            key = {"X-API-Key": harness.person("alice").key}
        program = Program(tmp_path, LISTINGS_LOG_LEVEL="error", LISTINGS_RATE_LIMIT="0")
        if settings:
            program.environment["LISTINGS_DATABASE_URL"] = url
        with program.serve() as service:
            service.http.headers.update(key)
            first = create_listings(service.http)
            body = {"key": first["actor"]["id"], "since": first["time"]}
            started = service.http.post("/api/v1/changes/revert", json=body)
            assert started.status_code == 202, started.text
            path = started.headers["location"]
            assert wait(service.http, path, 300)["status"] == "running"
            service.process.send_signal(signal.SIGKILL)
            service.process.wait(TIMEOUT)
        with program.serve() as service:
            service.http.headers.update(key)
            assert get_revert(service.http, path)["counts"]["reverted"] < LISTINGS
            finished = wait(service.http, path, LISTINGS)
            assert finished["counts"] == {"reverted": LISTINGS, "unchanged": 0, "conflicts": 0}
            assert service.http.get("/api/v1/listings").json() == {"listings": []}
            assert count_deletions(service.http, finished["id"]) == LISTINGS


def count_deletions(http: httpx2.Client, revert_id: int) -> int:
    """Return the number of listings that the revert deleted, each of which must be in one change set only."""
    found: list[int] = []
    after, more = 0, True
    while more:
        page = http.get(f"/api/v1/changes?after={after}&limit=1000").json()
        own = [one for one in page["change_sets"] if one.get("revert") == revert_id]
        found += [change["id"] for one in own for change in one["changes"]]
        after, more = page["last"], page["more"]
    assert len(set(found)) == len(found)
    return len(found)
