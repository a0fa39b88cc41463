"""Common clients can read a rejection while they are still sending a large body (decision G31)."""

import http.client
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator

import httpx2
import pytest
import requests

from tests.harness import TIMEOUT, Person, RunningService

pytestmark = pytest.mark.uncovered

PATH = "/api/v1/listings"
LARGE = b'{"title": "' + b"x" * 10_000_000 + b'"}'


def send_with_http_client(url: str, key: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT)
    connection.request("POST", PATH, LARGE, {"X-API-Key": key})
    status = connection.getresponse().status
    connection.close()
    return status


def send_with_requests(url: str, key: str) -> int:
    return requests.post(url + PATH, data=LARGE, headers={"X-API-Key": key}, timeout=TIMEOUT).status_code


def send_with_requests_chunked(url: str, key: str) -> int:
    chunks = (LARGE[start : start + 100_000] for start in range(0, len(LARGE), 100_000))
    return requests.post(url + PATH, data=chunks, headers={"X-API-Key": key}, timeout=TIMEOUT).status_code


def send_with_httpx2(url: str, key: str) -> int:
    return httpx2.post(url + PATH, content=LARGE, headers={"X-API-Key": key}, timeout=TIMEOUT).status_code


def send_with_curl(url: str, key: str, *more: str) -> int:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", "@-", *more]
    outcome = subprocess.run(
        [*command, "-H", f"X-API-Key: {key}", url + PATH], input=LARGE, capture_output=True, check=True
    )
    return int(outcome.stdout)


def send_with_curl_without_expect(url: str, key: str) -> int:
    return send_with_curl(url, key, "-H", "Expect:")


CLIENTS = [
    send_with_http_client,
    send_with_requests,
    send_with_requests_chunked,
    send_with_httpx2,
    send_with_curl,
    send_with_curl_without_expect,
]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService(tmp_path_factory.mktemp("limited"), rate_limit="20") as service:
        yield service


@pytest.fixture
def alice(limited: RunningService) -> Person:
    return limited.cast().alice


@pytest.mark.parametrize("send", CLIENTS)
def test_a_401_can_be_read(limited: RunningService, send: Callable[[str, str], int]) -> None:
    assert send(limited.base_url, "no-such-key-anywhere") == 401


@pytest.mark.decision("G31")
@pytest.mark.parametrize("send", CLIENTS)
def test_a_413_can_be_read(limited: RunningService, alice: Person, send: Callable[[str, str], int]) -> None:
    assert send(limited.base_url, alice.key) == 413


@pytest.mark.parametrize("send", CLIENTS)
def test_a_429_can_be_read(limited: RunningService, alice: Person, send: Callable[[str, str], int]) -> None:
    for _ in range(20):
        assert httpx2.get(limited.base_url + PATH, headers={"X-API-Key": alice.key}, timeout=TIMEOUT).status_code == 200
    assert send(limited.base_url, alice.key) == 429


@pytest.mark.decision("G31")
def test_more_than_64_mib_after_a_rejection_close_the_connection(limited: RunningService) -> None:
    host, port = limited.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
        connection.sendall(b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert b"404 Not Found" in connection.recv(1000)
        assert 64 <= count_accepted_mebibytes(connection) < 100


def count_accepted_mebibytes(connection: socket.socket) -> int:
    """Return how much is accepted before the connection closes, including the kernel's buffers."""
    for sent in range(200):
        try:
            connection.sendall(bytes(1024 * 1024))
        except OSError:
            return sent
    return 200
