"""nginx and Caddy in front of the service, with the deployed files except for names and addresses."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from listings.http.limits import ConnectionLimits
from tests.cli.commands import DEADLINE
from tests.harness import Cast, RunningService, cheap_passwords, unused_port
from tests.processes import run_program
from tests.site.tab import FORM_HEADERS, PASSWORD
from tests.telemetry.test_metrics import Scrape
from tests.waiting import until

pytestmark = pytest.mark.uncovered

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
    gzip on;  # as Debian's nginx.conf
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/responses;
    fastcgi_temp_path {folder}/unused;
    uwsgi_temp_path {folder}/unused;
    scgi_temp_path {folder}/unused;
    include {folder}/listings.conf;
}}
"""


class Proxy(NamedTuple):
    """A running proxy with its socket and its folder."""

    name: str
    folder: Path
    listener: Path
    tls: ssl.SSLContext | None
    http: httpx2.Client

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(DEADLINE)
        try:
            connection.connect(str(self.listener))
            return connection if self.tls is None else self.tls.wrap_socket(connection, server_hostname=NAME)
        except OSError:
            connection.close()
            raise

    def log(self) -> str:
        return "".join(path.read_text("utf-8") for path in self.folder.glob("*.log"))


def nginx_command(folder: Path, listener: Path, upstream: str, prefixes: Mapping[str, str] | None = None) -> list[str]:
    """Return the command. With `prefixes`, several services share the host: HOST:PORT by path prefix."""
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    if prefixes:
        (location,) = re.findall(r"(?ms)^    location / \{.*?^    \}\n", text)
        locations = [
            location.replace(" / ", f" {prefix}/ ").replace("//listings;", f"//{address};")
            for prefix, address in prefixes.items()
        ]
        text = text.replace(location, "".join(locations))
    for deployed, here in (
        ("    listen [::]:443 ssl http2;\n", ""),
        ("443 ssl", f"unix:{listener} ssl"),
        ("127.0.0.1:8000", upstream),
        ("/etc/ssl/listings", str(folder)),
        ("/var/log/nginx", str(folder)),
    ):
        assert deployed in text
        text = text.replace(deployed, here)
    (folder / "listings.conf").write_text(text, "utf-8")
    # otherwise the workers can't access the folder
    user = "user root;" if Path("/root").owner() == folder.owner() else ""
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
        ("read_body 140m", "read_body 5s"),  # after which a slow client gets the service's 408
    ):
        assert deployed in text
        text = text.replace(deployed, here, 1)
    (folder / "Caddyfile").write_text(text, "utf-8")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


COMMANDS: dict[str, Callable[..., list[str]]] = {"nginx": nginx_command, "caddy": caddy_command}
PROXIES = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in COMMANDS
]


@contextmanager
def running_proxy(name: str, folder: Path, upstream: str, **options: Mapping[str, str]) -> Iterator[Proxy]:
    """Run a proxy and wait until it accepts connections; `upstream` is HOST:PORT of the service."""
    listener = folder / "s"
    command = COMMANDS[name](folder, listener, upstream, **options)
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(folder)}
    tls = ssl.create_default_context(cafile=folder / "fullchain.pem") if name == "nginx" else None
    with (
        (folder / "output.log").open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
        httpx2.Client(
            base_url=f"{'http' if tls is None else 'https'}://{NAME}",
            transport=httpx2.HTTPTransport(uds=str(listener), verify=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
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
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a body timeout of one second."""
    limits = ConnectionLimits(body_seconds=BODY_SECONDS)
    with RunningService(tmp_path_factory.mktemp("impatient"), limits=limits) as service:
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
def closed_address() -> Iterator[str]:
    with unused_port() as port:
        yield f"127.0.0.1:{port}"


def build_body(size: int) -> bytes:
    """Return a listing as JSON with `size` bytes, padded with an ignored field."""
    base = json.dumps({"title": "Bicycle", "content": "Two wheels.", "padding": ""}).encode()
    return base.removesuffix(b'"}') + b"x" * (size - len(base)) + b'"}'


def test_a_listing_can_be_created_and_read_through_the_proxy(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    created = proxy.http.post(PATH, headers=headers, json={"title": "Bicycle", "content": "Two wheels."})
    assert created.status_code == 201
    listing_id = created.json()["id"]
    assert created.headers["Location"] == f"{PATH}/{listing_id}"
    bearer = {"Authorization": f"Bearer {cast.alice.key}"}
    assert proxy.http.get(f"{PATH}/{listing_id}", headers=bearer).json()["title"] == "Bicycle"
    other = proxy.http.get(f"{PATH}/{listing_id}", headers={"X-API-Key": cast.bob.key})
    assert (other.status_code, other.headers["X-Error-Code"]) == (403, "not_owner")
    assert other.headers["Strict-Transport-Security"]


def test_bodies_up_to_two_mebibytes_pass_through_the_proxy(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    assert proxy.http.post(PATH, headers=headers, content=build_body(2 * MEBIBYTE)).status_code == 201
    rejected = proxy.http.post(PATH, headers=headers, content=build_body(3 * MEBIBYTE))
    assert (rejected.status_code, rejected.headers["X-Error-Code"]) == (413, "body_too_large")
    assert set(rejected.json()) == {"error"}


def test_a_long_response_passes_completely(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.bob.key}
    content = "Two wheels. " * 8000
    ids = [
        proxy.http.post(PATH, headers=headers, json={"title": "Bicycle", "content": content}).json()["id"]
        for _ in range(30)
    ]
    listings = proxy.http.get(PATH, headers=headers).json()["listings"]
    assert [listing["id"] for listing in listings[:30]] == ids[::-1]
    assert all(listing["content"] == content for listing in listings)


@pytest.mark.decision("G41")
def test_the_service_alone_compresses(proxy: Proxy, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    content = {"title": "Bicycle", "content": "Two wheels. " * 200}
    path = f"{PATH}/{proxy.http.post(PATH, headers=headers, json=content).json()['id']}"
    plain = proxy.http.get(path, headers=headers | {"Accept-Encoding": "identity"})
    packed = proxy.http.get(path, headers=headers | {"Accept-Encoding": "gzip"})
    assert packed.content == plain.content
    assert ("Content-Encoding" in plain.headers, packed.headers["Content-Encoding"]) == (False, "gzip")
    assert packed.headers["ETag"] == f'{plain.headers["ETag"][:-1]}-gzip"'
    assert packed.headers["Vary"] == plain.headers["Vary"] == "accept-encoding"
    assert int(packed.headers["Content-Length"]) == packed.num_bytes_downloaded < len(plain.content) / 4
    tag = {"If-None-Match": packed.headers["ETag"], "Accept-Encoding": "gzip"}
    assert proxy.http.get(path, headers=headers | tag).status_code == 304
    page = proxy.http.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    assert (page.status_code, "<form" in page.text) == (200, True)
    assert "Content-Encoding" not in page.headers


@pytest.mark.parametrize("name", PROXIES)
def test_a_client_with_a_slow_body_gets_the_services_408(
    name: str, impatient: RunningService, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = impatient.cast().alice.key
    head = f"POST {PATH} HTTP/1.1\r\nHost: {NAME}\r\nX-API-Key: {key}\r\nContent-Length: 99\r\n\r\n{{"
    folder = tmp_path_factory.mktemp(name)
    with (
        running_proxy(name, folder, impatient.base_url.removeprefix("http://")) as proxy,
        proxy.connect() as connection,
    ):
        connection.sendall(head.encode())
        response = connection.recv(MEBIBYTE)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in response


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        (f"{PATH}?q={'x' * 9000}", {}, "uri_too_long"),
        (PATH, {"X-Long": "x" * 16_000, "X-Longer": "x" * 1000}, "header_too_large"),
    ],
    ids=["URL", "headers"],
)
def test_long_urls_and_headers_are_rejected_by_the_service(
    proxy: Proxy, path: str, headers: dict[str, str], code: str
) -> None:
    assert proxy.http.get(path, headers=headers).headers["X-Error-Code"] == code


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("GET {}%00", 400),
        ("GET {}%2", 400),
        ("TRACE {}", 405),
        ("PUT {} HTTP/1.1\r\nContent-Length: 199999999", 413),
        ("PUT {} HTTP/1.1\r\nTransfer-Encoding: gzip", 501),
        ("GET {} HTTP/1.1\r\n" + "\r\n".join(f"X-{number}: {'x' * 16_000}" for number in range(9)), 400),
    ],
    ids=["NUL", "half an escape", "TRACE", "large body", "unknown coding", "large headers"],
)
@pytest.mark.parametrize(("path", "kind"), [(f"{PATH}/", "application/json"), ("/search", "text/html")])
@pytest.mark.parametrize("proxy", PROXIES[:1], indirect=True)
def test_what_nginx_rejects_itself_is_json_for_the_api(
    proxy: Proxy, start: str, status: int, path: str, kind: str
) -> None:
    head = start.format(path)
    head = head if " HTTP/1.1" in head else f"{head} HTTP/1.1"
    with proxy.connect() as connection:
        connection.sendall(f"{head}\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
        response = b"".join(iter(lambda: connection.recv(MEBIBYTE), b""))
    received, _, body = response.partition(b"\r\n\r\n")
    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert f"Content-Type: {kind}".encode() in received
    assert received.count(b"Strict-Transport-Security") == 1
    assert kind != "application/json" or set(json.loads(body)) == {"error"}


def test_the_request_id_passes_in_both_directions(proxy: Proxy) -> None:
    assert proxy.http.get("/healthz", headers={"X-Request-Id": "order-66/b"}).headers["X-Request-Id"] == "order-66/b"
    generated = proxy.http.get("/healthz").headers["X-Request-Id"]
    assert generated.isalnum()
    if proxy.name == "nginx":
        until(lambda: generated in proxy.log())  # nginx logs after the response


def test_forwarded_headers_change_nothing(proxy: Proxy, cast: Cast) -> None:
    forged = {"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil.example"}
    body = {"title": "Bicycle", "content": "Two wheels."}
    response = proxy.http.post(PATH, headers={"X-API-Key": cast.alice.key} | forged, json=body)
    assert response.status_code == 201
    assert not re.search("evil|gopher|10.0.0.1", f"{response.headers} {response.text}")


def test_a_page_uses_the_scheme_of_the_proxy(proxy: Proxy) -> None:
    page = proxy.http.get("/", headers={"Accept": "text/html", "X-Forwarded-Proto": "gopher"})
    assert page.status_code == 200
    assert page.headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]  # RFC 6797, 7.1: only one
    scheme = "https" if proxy.tls else "http"
    assert f'<link rel="canonical" href="{scheme}://{page.request.url.host}/">' in page.text


def test_connections_to_the_service_are_persistent(proxy: Proxy, service: RunningService) -> None:
    assert service.observers.metrics is not None
    assert proxy.http.get("/healthz").status_code == 200
    for _ in range(20):
        assert Scrape(service.observers.metrics.url)("listings_connections") >= 1


@pytest.mark.parametrize("name", PROXIES)
def test_an_unreachable_service_is_a_json_503_without_a_logged_key(
    name: str, closed_address: str, tmp_path_factory: pytest.TempPathFactory, cast: Cast
) -> None:
    with running_proxy(name, tmp_path_factory.mktemp(name), closed_address) as proxy:
        for headers in ({"X-API-Key": cast.alice.key}, {"Authorization": f"Bearer {cast.alice.key}"}):
            response = proxy.http.get(f"{PATH}/1025", headers=headers)
            assert (response.status_code, set(response.json())) == (503, {"error"})
            assert response.headers["Content-Type"] == "application/json"
            assert response.headers["Retry-After"] == "1"
            assert response.headers["Strict-Transport-Security"]
    assert f"{PATH}/1025" in proxy.log()
    assert cast.alice.key not in proxy.log()


@pytest.mark.parametrize("name", PROXIES)
def test_no_tokens_of_links_in_mail_are_logged(
    name: str, service: RunningService, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_proxy(name, tmp_path_factory.mktemp(name), service.base_url.removeprefix("http://")) as proxy:
        for path in ("/invitations", "/confirm-email", "/shop/invitations"):
            proxy.http.get(f"{path}/SECRET", headers={"Referer": f"https://{NAME}{path}/SECRET"})
    assert "/confirm-email/-" in proxy.log()
    assert "SECRET" not in proxy.log()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_supports_http_2(service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("h2")
    command = ["curl", "-sS", "--http2", "--cacert", f"{folder}/fullchain.pem", "-w", "%{http_code} %{http_version}"]
    large = ["-X", "POST", "-H", "Content-Length: 199999999", "-d", "{}"]
    with running_proxy("nginx", folder, service.base_url.removeprefix("http://")) as proxy:
        command += ["--unix-socket", str(proxy.listener)]
        for arguments, expected in (
            ([f"https://{NAME}/healthz"], '{"status":"ok"}200 2'),
            ([*large, f"https://{NAME}{PATH}"], '{"error":"The request is not valid, too large or too slow"}413 2'),
        ):
            process = run_program([*command, *arguments], check=True)
            assert process.stdout == expected


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_rejects_http_without_tls_as_json(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("plain")
    with (
        running_proxy("nginx", folder, "127.0.0.1:1") as proxy,
        httpx2.Client(transport=httpx2.HTTPTransport(uds=str(proxy.listener))) as plain,
    ):
        rejected = plain.get(f"http://{NAME}{PATH}")
    assert (rejected.status_code, set(rejected.json())) == (400, {"error"})


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_two_services_share_a_host_below_path_prefixes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("prefixes")
    with (
        cheap_passwords(),
        RunningService(folder / "a", base_url=f"https://{NAME}/shop", sign_up="on") as shop,
        RunningService(folder / "b", base_url=f"https://{NAME}/stock", sign_up="on") as stock,
    ):
        prefixes = {"/shop": shop.base_url.removeprefix("http://"), "/stock": stock.base_url.removeprefix("http://")}
        with running_proxy("nginx", folder, "127.0.0.1:1", prefixes=prefixes) as proxy:
            check_api_below(proxy, "/shop", shop.cast())
            check_pages_below(proxy, "/shop", "/stock")
        assert httpx2.get(f"{shop.base_url}/readyz").json() == {"status": "ready"}
        assert httpx2.get(f"{shop.base_url}{PATH}").json() == {"error": "Path not found: /shop/docs lists all paths"}


def check_api_below(proxy: Proxy, prefix: str, cast: Cast) -> None:
    headers = {"X-API-Key": cast.alice.key}
    body = {"title": "Bicycle", "content": "Two wheels."}
    created = [proxy.http.post(f"{prefix}{PATH}", headers=headers, json=body) for _ in range(2)]
    assert created[0].headers["Location"] == f"https://{NAME}{prefix}{PATH}/{created[0].json()['id']}"
    assert proxy.http.get(created[0].headers["Location"], headers=headers).json()["title"] == "Bicycle"
    page = proxy.http.get(f"{prefix}{PATH}?limit=1", headers=headers)
    (last,) = proxy.http.get(page.links["next"]["url"], headers=headers).json()["listings"]
    assert last["id"] == created[0].json()["id"]
    assert proxy.http.get(f"{prefix}/openapi.json").json()["servers"][0]["url"] == f"https://{NAME}{prefix}"


def check_pages_below(proxy: Proxy, prefix: str, other_prefix: str) -> None:
    home = proxy.http.get(prefix, follow_redirects=True)
    assert str(home.url) == f"https://{NAME}{prefix}/"
    (style,) = re.findall(r'href="([^"]+/site.css)"', home.text)
    assert proxy.http.get(style).headers["Content-Type"] == "text/css; charset=utf-8"
    sign_up(proxy, prefix)
    assert f'action="{prefix}/sign-out"' in proxy.http.get(f"{prefix}/console").text
    assert proxy.http.get(f"{other_prefix}/console").headers["Location"] == f"{other_prefix}/sign-in?next=%2Fconsole"
    sign_up(proxy, other_prefix)
    assert {proxy.http.get(f"{one}/console").status_code for one in (prefix, other_prefix)} == {200}
    assert {cookie.path for cookie in proxy.http.cookies.jar} == {prefix, other_prefix}


def sign_up(proxy: Proxy, prefix: str) -> None:
    page = proxy.http.get(f"{prefix}/sign-up")
    (token,) = re.findall('name="token" value="([^"]+)"', page.text)
    form = {"token": token, "name": "Dana", "email": "dana@example.com", "password": PASSWORD}
    (path,) = re.findall('<form method="post" action="([^"]+)"', page.text)
    response = proxy.http.post(path, data=form, headers=FORM_HEADERS)
    assert (response.status_code, response.headers["Location"]) == (303, f"{prefix}/console")


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
def test_caddy_accepts_the_deployed_file(tmp_path: Path) -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", f"{DEPLOY}/Caddyfile"]
    outcome = run_program(command, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert outcome.returncode == 0, outcome.stderr
    assert '"level":"warn"' not in outcome.stderr
