"""nginx and Caddy before the service, each with its file as it is deployed but for names and addresses."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.cli.commands import DEADLINE
from tests.cli.crowds import until
from tests.harness import Cast, RunningService, unused_port
from tests.telemetry.test_metrics import Scrape

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NAME = "api.example.com"
PATH = "/api/v1/listings"
BODY_SECONDS = 1
MEBIBYTE = 1024 * 1024
SELF_SIGNED = [
    *("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
]
NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/unused;
    uwsgi_temp_path {folder}/unused;
    scgi_temp_path {folder}/unused;
    include {folder}/listings.conf;
}}
"""


class Proxy(NamedTuple):
    """A proxy that runs, with its socket and its folder."""

    name: str
    folder: Path
    listener: Path
    tls: ssl.SSLContext | None
    http: httpx.Client

    def connect(self) -> socket.socket:
        """A connection of a client's own."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DEADLINE)
        try:
            connection.connect(str(self.listener))
            return connection if self.tls is None else self.tls.wrap_socket(connection, server_hostname=NAME)
        except OSError:
            connection.close()
            raise

    def log(self) -> str:
        """All that it has written."""
        return "".join(path.read_text("utf-8") for path in self.folder.glob("*.log"))


def nginx_command(folder: Path, listener: Path, upstream: str) -> list[str]:
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    for deployed, here in (
        ("443 ssl", f"unix:{listener} ssl"),
        ("127.0.0.1:8000", upstream),
        ("/etc/ssl/listings", str(folder)),
        ("/var/log/nginx", str(folder)),
    ):
        assert deployed in text
        text = text.replace(deployed, here)
    (folder / "listings.conf").write_text(text, "utf-8")
    user = "user root;" if Path("/root").owner() == folder.owner() else ""  # else its workers can't enter the folder
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user), "utf-8")
    certificate = ["-keyout", f"{folder}/privkey.pem", "-out", f"{folder}/fullchain.pem"]
    subprocess.run(
        [*SELF_SIGNED, *certificate],
        check=True,
        capture_output=True,
    )
    return ["nginx", "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]


def caddy_command(folder: Path, listener: Path, upstream: str) -> list[str]:
    text = (DEPLOY / "Caddyfile").read_text("utf-8")
    for deployed, here in (
        ("\n{\n", "\n{\n\tadmin off\n"),
        (f"{NAME} {{", f"http://{NAME} {{\n\tbind unix/{listener}"),
        ("127.0.0.1:8000", upstream),
    ):
        assert deployed in text
        text = text.replace(deployed, here, 1)
    (folder / "Caddyfile").write_text(text, "utf-8")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


COMMANDS: dict[str, Callable[[Path, Path, str], list[str]]] = {"nginx": nginx_command, "caddy": caddy_command}
PROXIES = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in COMMANDS
]


@contextmanager
def running_proxy(name: str, folder: Path, upstream: str) -> Iterator[Proxy]:
    """From its first accepted connection on; `upstream` is HOST:PORT of the service."""
    listener = folder / "s"
    command = COMMANDS[name](folder, listener, upstream)
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(folder)}
    tls = ssl.create_default_context(cafile=folder / "fullchain.pem") if name == "nginx" else None
    with (
        (folder / "output.log").open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
        httpx.Client(
            base_url=f"{'http' if tls is None else 'https'}://{NAME}",
            transport=httpx.HTTPTransport(uds=str(listener), verify=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
            timeout=DEADLINE,
        ) as http,
    ):
        proxy = Proxy(name, folder, listener, tls, http)
        try:
            wait_for(proxy, process)
            yield proxy
        finally:
            process.terminate()
            assert process.wait(DEADLINE) == 0


def wait_for(proxy: Proxy, process: subprocess.Popen[bytes]) -> None:
    last = time.monotonic() + DEADLINE
    while True:
        try:
            proxy.connect().close()
        except OSError:
            assert process.poll() is None, proxy.log()
            assert time.monotonic() < last, proxy.log()
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    with RunningService(folder, metrics_address="0", trusted_proxies="127.0.0.1") as service:
        yield service


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that waits no longer than a second for a body."""
    with RunningService(tmp_path_factory.mktemp("hasty"), body_timeout=str(BODY_SECONDS)) as service:
        yield service


@pytest.fixture(scope="module")
def cast(service: RunningService) -> Cast:
    return service.cast()


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, service: RunningService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp(request.param)
    with running_proxy(request.param, folder, service.base_url.removeprefix("http://")) as proxy:
        yield proxy


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens, and nobody else can."""
    with unused_port() as port:
        yield f"127.0.0.1:{port}"


def body_of(size: int) -> bytes:
    """A listing as JSON of so many bytes; what fills it is ignored."""
    bare = json.dumps({"title": "Bicycle", "content": "Two wheels.", "padding": ""}).encode()
    return bare.removesuffix(b'"}') + b"x" * (size - len(bare)) + b'"}'


def test_a_listing_is_created_and_read_through_the_proxy(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    created = proxy.http.post(PATH, headers=headers, json={"title": "Bicycle", "content": "Two wheels."})
    assert created.status_code == 201
    listing_id = created.json()["id"]
    assert created.headers["Location"] == f"{PATH}/{listing_id}"
    by_bearer = {"Authorization": f"Bearer {cast.alice.key}"}
    assert proxy.http.get(f"{PATH}/{listing_id}", headers=by_bearer).json()["title"] == "Bicycle"
    stranger = proxy.http.get(f"{PATH}/{listing_id}", headers={"X-API-Key": cast.bob.key})
    assert (stranger.status_code, stranger.headers["X-Error-Code"]) == (403, "not_owner")
    assert stranger.headers["Strict-Transport-Security"]


def test_a_body_of_two_mebibytes_passes_and_a_larger_one_is_refused_by_the_service(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    assert proxy.http.post(PATH, headers=headers, content=body_of(2 * MEBIBYTE)).status_code == 201
    refused = proxy.http.post(PATH, headers=headers, content=body_of(3 * MEBIBYTE))
    assert (refused.status_code, refused.headers["X-Error-Code"]) == (413, "body_too_large")
    assert set(refused.json()) == {"error"}


def test_a_long_answer_passes_whole(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.bob.key}
    content = "Two wheels. " * 8000
    ids = [
        proxy.http.post(PATH, headers=headers, json={"title": "Bicycle", "content": content}).json()["id"]
        for _ in range(30)
    ]
    listed = proxy.http.get(PATH, headers=headers).json()["listings"]
    assert [listing["id"] for listing in listed[:30]] == ids[::-1]
    assert all(listing["content"] == content for listing in listed)


@pytest.mark.parametrize("name", PROXIES)
def test_a_client_whose_body_is_too_slow_reads_the_services_answer(
    name: str, hasty: RunningService, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = hasty.cast().alice.key
    head = f"POST {PATH} HTTP/1.1\r\nHost: {NAME}\r\nX-API-Key: {key}\r\nContent-Length: 99\r\n\r\n{{"
    folder = tmp_path_factory.mktemp(name)
    with (
        running_proxy(name, folder, hasty.base_url.removeprefix("http://")) as proxy,
        proxy.connect() as connection,
    ):
        connection.sendall(head.encode())
        answer = connection.recv(MEBIBYTE)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        (f"{PATH}?q={'x' * 9000}", {}, "uri_too_long"),
        (PATH, {"X-Long": "x" * 16_000, "X-Longer": "x" * 1000}, "header_too_large"),
    ],
    ids=["address", "headers"],
)
def test_what_is_too_long_is_refused_by_the_service(
    proxy: Proxy, path: str, headers: dict[str, str], code: str
) -> None:
    assert proxy.http.get(path, headers=headers).headers["X-Error-Code"] == code


def test_the_id_of_a_request_passes_in_both_directions(proxy: Proxy) -> None:
    assert proxy.http.get("/healthz", headers={"X-Request-Id": "order-66/b"}).headers["X-Request-Id"] == "order-66/b"
    made = proxy.http.get("/healthz").headers["X-Request-Id"]
    assert made.isalnum()
    if proxy.name == "nginx":
        until(lambda: made in proxy.log())  # it is written behind the answer


def test_forwarded_headers_change_nothing(proxy: Proxy, cast: Cast) -> None:
    forged = {"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil.example"}
    body = {"title": "Bicycle", "content": "Two wheels."}
    answer = proxy.http.post(PATH, headers={"X-API-Key": cast.alice.key} | forged, json=body)
    assert answer.status_code == 201
    assert not re.search("evil|gopher|10.0.0.1", f"{answer.headers} {answer.text}")


def test_a_page_through_the_proxy_knows_how_it_was_asked_for(proxy: Proxy) -> None:
    page = proxy.http.get("/", headers={"Accept": "text/html", "X-Forwarded-Proto": "gopher"})
    assert page.status_code == 200
    scheme = "https" if proxy.tls else "http"
    assert f'<link rel="canonical" href="{scheme}://{page.request.url.host}/">' in page.text


def test_connections_to_the_service_are_kept(proxy: Proxy, service: RunningService) -> None:
    assert service.observers.metrics is not None
    assert proxy.http.get("/healthz").status_code == 200
    for _ in range(20):
        assert Scrape(service.observers.metrics.url)("listings_connections") >= 1


@pytest.mark.parametrize("name", PROXIES)
def test_a_service_that_is_away_is_503_in_the_one_shape_of_errors_and_no_key_is_logged(
    name: str, nobody: str, tmp_path_factory: pytest.TempPathFactory, cast: Cast
) -> None:
    with running_proxy(name, tmp_path_factory.mktemp(name), nobody) as proxy:
        for headers in ({"X-API-Key": cast.alice.key}, {"Authorization": f"Bearer {cast.alice.key}"}):
            answer = proxy.http.get(f"{PATH}/1025", headers=headers)
            assert (answer.status_code, set(answer.json())) == (503, {"error"})
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Retry-After"] == "1"
            assert answer.headers["Strict-Transport-Security"]
    assert f"{PATH}/1025" in proxy.log()
    assert cast.alice.key not in proxy.log()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_speaks_http_2(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("h2")
    with running_proxy("nginx", folder, service.base_url.removeprefix("http://")) as proxy:
        command = [
            "curl",
            "-sS",
            "--http2",
            "--unix-socket",
            str(proxy.listener),
            "--cacert",
            f"{folder}/fullchain.pem",
        ]
        answer = subprocess.run(
            [*command, "-w", "%{http_version}", f"https://{NAME}/healthz"], check=True, capture_output=True, text=True
        )
    assert answer.stdout == '{"status":"ok"}2'


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
def test_caddy_takes_its_file_as_it_is_deployed(tmp_path: Path) -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", f"{DEPLOY}/Caddyfile"]
    outcome = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert '"level":"warn"' not in outcome.stderr
