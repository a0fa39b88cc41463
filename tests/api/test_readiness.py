"""GET /healthz and GET /readyz: whether the process answers, and whether the service can do its work."""

import os
from collections.abc import Callable
from pathlib import Path

import apsw
import httpx
import pytest

from tests.harness import Harness


@pytest.mark.parametrize(("path", "said"), [("/healthz", {"status": "ok"}), ("/readyz", {"status": "ready"})])
def test_a_service_that_works_says_so_without_a_key(http: httpx.Client, path: str, said: dict[str, str]) -> None:
    for method in ("GET", "HEAD"):
        response = http.request(method, path)
        assert response.status_code == 200
        assert not [name for name in response.headers if "ratelimit" in name.lower()]
    assert http.get(path).json() == said


def test_a_closed_store_is_not_ready(harness: Harness) -> None:
    harness.run(harness.service.store.close())
    answer = harness.fetch("GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"error": "The service is stopping"})
    assert harness.fetch("GET", "/healthz").status == 200


def test_a_service_that_stops_is_not_ready(harness: Harness) -> None:
    harness.service.stopping = True
    assert harness.fetch("GET", "/readyz").status == 503


def test_a_schema_of_another_program_is_not_ready(harness: Harness) -> None:
    other = apsw.Connection(str(harness.settings.database))
    other.execute("INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)").fetchall()
    other.close()
    answer = harness.fetch("GET", "/readyz")
    assert answer.status == 503
    assert "newer schema" in answer.json()["error"]


def test_a_full_disk_is_not_ready(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = list(os.statvfs(harness.settings.database))
    fields[4] = 0  # f_bavail
    full: Callable[[Path], os.statvfs_result] = lambda _: os.statvfs_result(fields)  # noqa: E731
    monkeypatch.setattr(os, "statvfs", full)
    answer = harness.fetch("GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"error": "The disk is almost full"})


def test_a_database_that_was_removed_is_not_ready_and_takes_no_writes_but_is_read(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.settings.file.unlink()
    answer = harness.fetch("GET", "/readyz")
    assert (answer.status, "removed" in answer.json()["error"]) == (503, True)
    refused = harness.fetch("POST", "/api/v1/listings", key=alice.key, json={"title": "Lamp", "content": "Bright."})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert harness.fetch("GET", "/api/v1/listings", key=alice.key).json() == {"listings": []}


def test_a_limiter_that_cannot_count_is_not_ready(harness: Harness) -> None:
    limits = Path(f"{harness.settings.database}.limits-0000")
    limits.mkdir()
    answer = harness.fetch("GET", "/readyz")
    assert answer.status == 503
    assert "can't be counted" in answer.json()["error"]


def test_a_limiter_that_cannot_count_refuses_requests_with_503(harness: Harness) -> None:
    alice = harness.person("alice")
    Path(f"{harness.settings.database}.limits-0000").mkdir()
    answer = harness.fetch("GET", "/api/v1/listings", key=alice.key)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_a_house_without_a_limit_is_ready(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        assert harness.fetch("GET", "/readyz").status == 200
