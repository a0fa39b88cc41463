"""GET /healthz and GET /readyz: whether the process responds, and whether the service can process requests."""

import os
from pathlib import Path

import apsw
import httpx2
import pytest

from listings.domain.errors import Unavailable
from listings.domain.timestamps import format_timestamp
from listings.store.market import stamps
from tests.harness import Harness
from tests.postgres_server import PostgresServer
from tests.waiting import until


@pytest.mark.parametrize(("path", "content"), [("/healthz", {"status": "ok"}), ("/readyz", {"status": "ready"})])
def test_a_healthy_service_says_so_without_a_key(http: httpx2.Client, path: str, content: dict[str, str]) -> None:
    for method in ("GET", "HEAD"):
        response = http.request(method, path)
        assert response.status_code == 200
        assert not [name for name in response.headers if "ratelimit" in name.lower()]
    assert content.items() <= http.get(path).json().items()  # on a busy machine, it may also be degraded


def test_a_closed_store_is_not_ready(harness: Harness) -> None:
    harness.run(harness.store.close())
    response = harness.fetch("GET", "/readyz")
    assert (response.status, response.json()) == (503, {"error": "The service is stopping"})
    assert harness.fetch("GET", "/healthz").status == 200


def test_a_stopping_service_is_not_ready(harness: Harness) -> None:
    harness.services.begin_shutdown()
    assert harness.fetch("GET", "/readyz").status == 503


def test_a_newer_schema_is_not_ready(harness: Harness) -> None:
    other = apsw.Connection(str(harness.settings.database))
    other.execute("INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)").fetchall()
    other.close()
    response = harness.fetch("GET", "/readyz")
    assert response.status == 503
    assert "newer schema" in response.json()["error"]


def test_a_full_disk_is_not_ready(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = list(os.statvfs(harness.settings.database))
    fields[4] = 0  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    response = harness.fetch("GET", "/readyz")
    assert (response.status, response.json()) == (503, {"error": "The disk is almost full"})


def test_a_postgres_server_that_does_not_confirm_writes_is_not_ready(tmp_path: Path) -> None:
    with (
        PostgresServer() as server,
        server.database() as url,
        Harness(tmp_path, database=url, database_timeout="1") as harness,
    ):
        alice, new = harness.person("alice"), {"title": "Lamp", "content": "Bright."}
        for statement in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
            server.execute(statement)
        until(lambda: harness.fetch("POST", "/api/v1/listings", key=alice.key, json=new).status == 503)
        assert harness.fetch("GET", "/readyz").status == 503
        for statement in ("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"):
            server.execute(statement)
        until(lambda: harness.fetch("POST", "/api/v1/listings", key=alice.key, json=new).status == 201)
        assert harness.fetch("GET", "/readyz").status == 200


def test_a_removed_database_is_not_ready_and_rejects_only_writes(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.settings.file.unlink()
    response = harness.fetch("GET", "/readyz")
    assert (response.status, "removed" in response.json()["error"]) == (503, True)
    rejected = harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Bright."})
    assert (rejected.status, rejected.headers["retry-after"]) == (503, "1")
    assert harness.fetch("GET", "/api/v1/listings", key=alice.key).json() == {"listings": []}


def test_a_limiter_that_cannot_count_is_not_ready_and_rejects_requests(harness: Harness) -> None:
    alice = harness.person("alice")
    Path(f"{harness.settings.database}.limits-0000").mkdir()
    response = harness.fetch("GET", "/readyz")
    assert response.status == 503
    assert "can't be counted" in response.json()["error"]
    rejected = harness.fetch("GET", "/api/v1/listings", key=alice.key)
    assert (rejected.status, rejected.headers["retry-after"]) == (503, "1")


def test_a_service_without_a_limit_is_ready(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        assert harness.fetch("GET", "/readyz").status == 200


def test_a_market_that_cannot_be_indexed_is_reported(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = harness.person("alice")
    harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Bright."})
    with monkeypatch.context() as patch:
        patch.setattr(stamps, "GET_STATE", "SELECT nothing")
        with pytest.raises(Unavailable):
            harness.index_market()
    degraded = [f"the market has not been updated since {format_timestamp(harness.clock())}"]
    response = harness.fetch("GET", "/readyz")
    assert (response.status, response.json()) == (200, {"status": "ready", "degraded": degraded})
    harness.index_market()
    assert harness.fetch("GET", "/readyz").json() == {"status": "ready"}


def test_an_index_that_does_not_follow_is_reported(harness: Harness) -> None:
    alice, market = harness.person("alice"), harness.services.market
    harness.index_market()
    began = harness.clock()
    for _ in range(2):
        harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Bright."})
        harness.run(market.stamp())
        harness.run(market.watch_index())
        harness.clock.advance(50)
    assert market.measure_lag() == 100
    degraded = [f"the search index has been behind since {format_timestamp(began)}"]
    assert harness.fetch("GET", "/readyz").json() == {"status": "ready", "degraded": degraded}
    harness.index_market()
    harness.run(market.watch_index())
    assert market.measure_lag() == 0
    assert harness.fetch("GET", "/readyz").json() == {"status": "ready"}
