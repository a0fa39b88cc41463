"""Security headers, static files, errors, origin checks and size limits of the pages."""

import asyncio
import gc
import gzip
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from sys import getsizeof
from time import process_time
from typing import Any, cast

import pytest
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from listings.api.app import Application, Options
from listings.api.codec import build_problem_response
from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import AsgiExchange
from listings.service.tokens import create_token
from listings.site import app, cookies, market, pages, security
from listings.site.console.guards import read_form
from listings.site.context import SiteOptions
from listings.telemetry.logs import RequestLine
from tests.harness import TIMEOUT, Harness, Reply, build_scope, fetch
from tests.site.market import BROWSER_HEADERS, ParsedPage, get
from tests.site.tab import open_console

PACKAGE = Path(app.__file__).parent
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "img-src": "'self' https: http:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("path", ["/", "/nothing", "/robots.txt", "/listings/1", "/static/x/site.css"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_every_response_has_the_security_headers(harness: Harness, method: str, path: str) -> None:
    headers = get(harness, path, method, Sec_Fetch_Site="same-origin").headers
    assert dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; ")) == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert re.fullmatch(r"[a-z/]+; charset=utf-8", headers["content-type"])
    assert "strict-transport-security" not in headers


def test_no_template_has_inline_styles_or_scripts() -> None:
    for file in PACKAGE.joinpath("templates").rglob("*.html"):
        text = file.read_text("utf-8")
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|hx-on|js:|\|\s*safe", text), file
        assert re.findall(r"<script(?! src=\"{{ asset\()[^>]*>", text) in ([], ['<script type="application/ld+json">'])


def test_vendored_files_have_the_recorded_checksum() -> None:
    notes = PACKAGE.joinpath("static", "VENDORED.md").read_text("utf-8")
    rows = re.findall(r"\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|", notes)
    assert [name for name, _ in rows] == ["htmx.min.js", "inter.woff2"]
    for name, digest in rows:
        assert hashlib.sha256(PACKAGE.joinpath("static", name).read_bytes()).hexdigest() == digest


def test_static_files_are_cached_forever_by_digest(harness: Harness) -> None:
    page = ParsedPage(get(harness, "/").body.decode())
    urls = [*page.values("link", "href", rel="stylesheet"), *page.values("script", "src")]
    assert len(urls) == 3
    for url in urls:
        reply = get(harness, str(url))
        assert (reply.status, reply.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    style = get(harness, str(urls[0])).body.decode()
    for name in re.findall(r'url\("([^"]+)"\)', style):
        assert re.fullmatch(r"\.\./[0-9a-f]{16}/[a-z]+\.(?:svg|woff2)", name)
        assert get(harness, f"/static/{name[3:]}").headers["cache-control"].endswith("immutable")


def test_texts_are_compressed_for_clients_that_accept_it(harness: Harness) -> None:
    page = ParsedPage(get(harness, "/").body.decode())
    (style,) = page.values("link", "href", rel="stylesheet")
    plain, compressed = get(harness, str(style)), get(harness, str(style), Accept_Encoding="br, gzip")
    assert (compressed.headers["content-encoding"], gzip.decompress(compressed.body)) == ("gzip", plain.body)
    assert plain.headers["vary"] == compressed.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in get(harness, str(style), Accept_Encoding="gzip;q=0").headers
    (font,) = page.values("link", "href", rel="preload")
    assert "content-encoding" not in get(harness, str(font), Accept_Encoding="gzip").headers


def test_a_file_with_another_digest_is_not_cached(harness: Harness) -> None:
    assert get(harness, "/static/0000000000000000/site.css").headers["cache-control"] == "no-cache"
    for name in ("VENDORED.md", "nothing.css", "..", "%2e%2e%2fapp.py", "../app.py"):
        assert get(harness, f"/static/0000000000000000/{name}").status == 404


def test_an_unknown_path_is_html_for_browsers_and_json_otherwise(harness: Harness) -> None:
    reply = get(harness, "/nothing")
    assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert reply.headers["x-request-id"] in reply.body.decode()
    for accept in ("*/*", "application/json"):
        reply = get(harness, "/nothing", Accept=accept)
        assert (reply.status, reply.json()) == (404, {"error": "Path not found: /docs lists all paths"})
    for path in ("/api", "/api/", "/api/v2/listings"):
        assert get(harness, path).json() == {"error": "Path not found: /docs lists all paths"}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/", "GET, HEAD"), ("/listings/1", "GET, HEAD"), ("/robots.txt", "GET, HEAD"), ("/sign-in", "GET, HEAD, POST")],
)
def test_a_wrong_method_is_rejected_with_the_allowed_ones(harness: Harness, path: str, allowed: str) -> None:
    message = f"DELETE is not allowed here. Allowed methods: {allowed}"
    reply = get(harness, path, "DELETE")
    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    assert message in ParsedPage(reply.body.decode()).text
    for headers in ({"accept": "*/*"}, {"x-api-key": "x", "content-encoding": "gzip"}):
        reply = harness.fetch("DELETE", path, headers=headers)
        assert (reply.status, reply.headers["allow"], reply.json()) == (405, allowed, {"error": message})
        assert reply.headers["x-error-code"] == "method_not_allowed"
        assert reply.headers["content-type"] == "application/json; charset=utf-8"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/console/", "/console"),
        ("/console/listings/?q=rimu+table&page=2", "/console/listings?q=rimu+table&page=2"),
        ("/sign-in/", "/sign-in"),
        ("/robots.txt/", "/robots.txt"),
        ("/listings/%5Cevil.example%3F%0D%0Ax/", "/listings/%5Cevil.example%3F%0D%0Ax"),
    ],
)
def test_a_trailing_slash_redirects_to_the_page(harness: Harness, path: str, location: str) -> None:
    for method in ("GET", "HEAD"):
        reply = get(harness, path, method)
        assert (reply.status, reply.headers["location"]) == (308, location)


@pytest.mark.parametrize("path", ["//", "//evil.example/", "/nothing/", "/console//", "/sign-out/"])
def test_a_trailing_slash_without_a_page_is_not_found(harness: Harness, path: str) -> None:
    assert get(harness, path).status == 404


def test_an_unknown_path_is_404_before_the_origin_check(harness: Harness) -> None:
    assert get(harness, "/nothing", "POST", Sec_Fetch_Site="cross-site").status == 404


def test_page_errors_are_json_for_other_clients(harness: Harness) -> None:
    message = "This page does not exist or is no longer available"
    assert get(harness, "/listings/0").headers["content-type"] == "text/html; charset=utf-8"
    reply = get(harness, "/listings/0", Accept="*/*")
    assert (reply.status, reply.json()) == (404, {"error": message})
    assert reply.headers["x-error-code"] == "listing_not_found"


def test_only_pages_of_the_console_lead_back_to_it(harness: Harness) -> None:
    assert [b"Back to the console" in get(harness, path).body for path in ("/console/x", "/consolex")] == [True, False]


def test_head_has_the_headers_of_get_and_no_body(harness: Harness) -> None:
    full, head = get(harness, "/"), get(harness, "/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(full.body))


async def _echo(request: Request) -> Response:
    form = await request.form()
    return PlainTextResponse(str(form["text"]))


async def _fail(request: Request) -> Response:
    if "unavailable" in request.query_params:
        raise Unavailable("The database can't be reached", retry_after=7)
    if "account" in request.query_params:
        raise Problem("account_not_found", "There is no account 99")
    raise RuntimeError("internal detail")


async def _cut(_: Request) -> Response:
    async def read() -> AsyncIterator[bytes]:
        yield b"half"
        raise Unavailable("The database can't be reached")

    return StreamingResponse(read())


class PagesUnderTest:
    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch, max_body_bytes: int = 1000) -> None:
        routes = [
            Route("/echo", _echo, methods=["POST"]),
            Route("/form", _echo_form, methods=["POST"]),
            Route("/fail", _fail),
            Route("/cut", _cut),
        ]
        monkeypatch.setattr(market, "ROUTES", routes)
        self._harness = harness
        self.lines: list[RequestLine] = []
        self.pages = app.build_pages(harness.services, SiteOptions(max_body_bytes=max_body_bytes))
        self.application = Application(harness.services, Options(pages=self.pages, on_response=self.lines.append))

    def fetch(
        self, method: str, path: str, *chunks: bytes, headers: dict[str, str] | None = None, complete: bool = True
    ) -> Reply:
        header_list = [
            (name.lower().encode(), value.encode()) for name, value in (BROWSER_HEADERS | (headers or {})).items()
        ]
        return self._harness.run(
            fetch(self.application, method, path, header_list, list(chunks) or [b""], complete=complete)
        )


@pytest.fixture
def site(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> PagesUnderTest:
    return PagesUnderTest(harness, monkeypatch)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://market.example"}, 200),
        ({"origin": "http://market.example"}, 200),
        ({"origin": "HTTPS://Market.Example"}, 200),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://market.example.evil.example"}, 403),
        ({"origin": "http://market.example:81"}, 403),
        ({"origin": "http://[market.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://market.example"}, 403),
        ({"referer": "http://market.example/"}, 403),
    ],
)
def test_forms_of_other_origins_are_rejected(site: PagesUnderTest, headers: dict[str, str], status: int) -> None:
    content_type = {"content-type": "application/x-www-form-urlencoded"}
    assert site.fetch("POST", "/echo", b"text=moa", headers=content_type | headers).status == status


def test_the_base_url_is_an_accepted_origin(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://market.example") as harness:
        headers = {"Host": "127.0.0.1:8000", "Origin": "https://market.example"}
        assert harness.fetch("POST", "/sign-out", headers=headers).status == 303
        assert harness.fetch("POST", "/sign-out", headers=headers | {"Origin": "https://evil.example"}).status == 403


def test_a_form_in_several_chunks_is_read_completely(site: PagesUnderTest) -> None:
    reply = site.fetch("POST", "/echo", b"text=m", b"o", b"a", headers=FORM_HEADERS)
    assert (reply.status, reply.body) == (200, b"moa")


@pytest.mark.parametrize(
    ("chunks", "headers", "status"),
    [
        ([b"text=" + b"x" * 995], {}, 200),
        ([b"text=" + b"x" * 996], {}, 413),
        ([b"text=" + b"x" * 600, b"x" * 600], {}, 413),
        ([b"text=x"], {"content-length": "1001"}, 413),
        ([b"text=x"], {"content-length": "9" * 40}, 413),
        ([b"text=x"], {"content-encoding": "gzip"}, 415),
    ],
)
def test_the_size_of_a_form_is_limited(
    site: PagesUnderTest, chunks: list[bytes], headers: dict[str, str], status: int
) -> None:
    reply = site.fetch("POST", "/echo", *chunks, headers=FORM_HEADERS | headers)
    assert reply.status == status
    assert status == 200 or "h1" in reply.body.decode()


async def _echo_form(request: Request) -> Response:
    """Return the form of a member, and the bytes of memory that are reserved for it."""
    await cookies.member_of(request)
    form = await read_form(request)
    return PlainTextResponse(f"{request.state.body._reserved} {form['text']}")  # noqa: SLF001 - no page shows it


@pytest.mark.parametrize("declares", [True, False])
def test_only_a_member_may_send_a_large_form(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, declares: bool
) -> None:
    site = PagesUnderTest(harness, monkeypatch, 200_000)
    body = b"text=" + b"x" * 65_532
    headers = FORM_HEADERS | ({"content-length": str(len(body))} if declares else {})
    for cookie, status in (("", 413), (sign_in(harness), 200)):
        reply = site.fetch("POST", "/form", body[:50_000], body[50_000:], headers=headers | {"cookie": cookie})
        assert reply.status == status


def sign_in(harness: Harness) -> str:
    return "; ".join(f"{name}={value}" for name, value in open_console(harness).cookies.items())


@pytest.mark.parametrize("text", ["x" * 100_000, "x" * 60_000, "💡" + "x" * 100_000], ids=["text", "small", "emoji"])
@pytest.mark.parametrize("is_multipart", [True, False])
def test_the_memory_of_a_large_form_is_reserved_while_its_request_runs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, text: str, *, is_multipart: bool
) -> None:
    site = PagesUnderTest(harness, monkeypatch, 200_000)
    body = f"text={text}".encode()
    headers = FORM_HEADERS | {"cookie": sign_in(harness)}
    if is_multipart:
        headers["content-type"] = "multipart/form-data; boundary=b"
        body = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n%b\r\n--b--\r\n' % text.encode()
    chunks = [body[start : start + 30_000] for start in range(0, len(body), 30_000)]
    reserved, shown = site.fetch("POST", "/form", *chunks, headers=headers).body.decode().split(" ", 1)
    assert shown == text
    assert int(reserved) == (max(len(body), getsizeof(text)) if len(body) > 65_536 else 0)


def test_forms_wait_for_memory_and_release_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    site = PagesUnderTest(harness, monkeypatch, 8 << 20)
    headers = [(name.encode(), value.encode()) for name, value in (BROWSER_HEADERS | FORM_HEADERS).items()]
    headers.append((b"cookie", sign_in(harness).encode()))
    pieces = [b"text=", *[b"x" * 65_536] * 64]  # four mebibytes, of which a member may have two

    async def work() -> list[int]:
        sent = (fetch(site.application, "POST", "/form", headers, pieces) for _ in range(10))
        return [reply.status for reply in await asyncio.gather(*sent)]

    assert harness.run(work()) == [200] * 10


def test_the_memory_of_a_form_is_released_before_its_response_is_sent(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, reserved = PagesUnderTest(harness, monkeypatch, 200_000), []
    headers = FORM_HEADERS | {"cookie": sign_in(harness)}
    scope = build_scope("POST", "/form", [(name.encode(), value.encode()) for name, value in headers.items()])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"text=" + b"x" * 100_000}

    async def send(_: Any) -> None:
        reserved.append(scope["listings.body"]._reserved)  # noqa: SLF001 - as above

    harness.run(site.application(scope, receive, send))
    assert reserved == [getsizeof("x" * 100_000), 0]


def test_a_multipart_form_is_freed_before_its_response_is_sent(harness: Harness) -> None:
    forms: list[int] = []
    headers = FORM_HEADERS | {"cookie": sign_in(harness), "content-type": "multipart/form-data; boundary=b"}
    scope = build_scope(
        "POST", "/console/account/name", [(name.encode(), value.encode()) for name, value in headers.items()]
    )
    body = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n%b\r\n--b--\r\n' % (b"x" * 100_000)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(_: Any) -> None:
        forms.append(sum(isinstance(it, FormData) for it in gc.get_objects()))

    gc.collect()
    before = sum(isinstance(it, FormData) for it in gc.get_objects())
    harness.run(harness.application(scope, receive, send))
    assert forms[-1] <= before


def test_large_forms_are_decoded_one_at_a_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    site = PagesUnderTest(harness, monkeypatch, 200_000)
    headers = [(name.encode(), value.encode()) for name, value in (BROWSER_HEADERS | FORM_HEADERS).items()]
    headers.append((b"cookie", sign_in(harness).encode()))
    queue = site.pages._bodies.queue  # noqa: SLF001 - no page shows it

    async def work() -> Reply:
        async with queue.acquire("another owner"):
            large = asyncio.create_task(fetch(site.application, "POST", "/form", headers, [b"text=" + b"x" * 100_000]))
            async with asyncio.timeout(TIMEOUT):
                while queue._total < 2:  # noqa: ASYNC110, SLF001 - no event says so
                    await asyncio.sleep(0.001)
            assert (await fetch(site.application, "POST", "/form", headers, [b"text=small"])).status == 200
            assert not large.done()
        return await large

    assert harness.run(work()).status == 200


def test_an_incomplete_form_gets_no_response(site: PagesUnderTest) -> None:
    assert site.fetch("POST", "/echo", b"text=m", headers=FORM_HEADERS, complete=False).status == 0
    assert site.lines[-1].status == 499


def test_an_internal_error_shows_the_request_id_and_is_logged(
    site: PagesUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    reply = site.fetch("GET", "/fail")
    text = reply.body.decode()
    assert (reply.status, reply.headers["cache-control"]) == (500, "no-store")
    assert reply.headers["x-request-id"] in text
    assert "internal detail" not in text
    (record,) = caplog.records
    assert reply.headers["x-request-id"] in record.getMessage()
    assert "internal detail" in str(record.exc_info)


def test_unavailable_is_503_with_retry_after(site: PagesUnderTest) -> None:
    reply = site.fetch("GET", "/fail?unavailable")
    assert (reply.status, reply.headers["retry-after"]) == (503, "7")
    assert "The database" not in reply.body.decode()


def test_a_missing_account_is_not_found(site: PagesUnderTest) -> None:
    reply = site.fetch("GET", "/fail?account", headers={"accept": "text/html"})
    assert reply.status == 404
    assert "There is no account 99" in reply.body.decode()
    assert build_problem_response(Problem("account_not_found", "There is no account 99")).status == 404


def test_an_outage_during_a_response_is_a_warning_and_recorded(
    site: PagesUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    reply = site.fetch("GET", "/cut")
    assert (reply.status, reply.body) == (200, b"half")
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().endswith("The database can't be reached")
    assert [(line.route, line.status) for line in site.lines] == [("/cut", 200)]


def test_a_visitor_reads_only_messages_for_visitors() -> None:
    busy = Unavailable("Too many people are signing in: try again in a moment", for_visitors=True)
    assert pages.replace_message(busy) is busy
    replaced = pages.replace_message(Unavailable("The database's WAL was truncated", retry_after=7))
    assert "may not have been saved" in replaced.message
    assert (replaced.code, replaced.retry_after) == ("unavailable", 7)


def test_pages_are_logged_by_route_not_by_path(site: PagesUnderTest) -> None:
    for path in ("/fail", "/nothing?q=secret", "/static/x/site.css"):
        site.fetch("GET", path)
    logged = [(line.method, line.route, line.status) for line in site.lines]
    assert logged == [("GET", "/fail", 500), ("GET", "-", 404), ("GET", "/static/{digest}/{name}", 200)]
    assert len({line.request_id for line in site.lines}) == 3


def test_a_form_token_depends_on_its_secret_only() -> None:
    secret = create_token()
    assert len(secret) >= 43
    assert secret != create_token()
    token = security.form_token(secret)
    security.require_form_token(secret, token)
    assert secret not in token
    wrong: list[Any] = ["", "x", token[:-1], security.form_token(create_token()), None, b"x", "é"]
    for token in wrong:
        with pytest.raises(Problem) as rejected:
            security.require_form_token(secret, token)
        assert rejected.value.code == "cross_site"


def test_one_page_of_a_burst_starts_per_loop_iteration(harness: Harness) -> None:
    iterations, starts = 0, []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            starts.append(iterations)

    async def count_iterations() -> None:
        nonlocal iterations
        while len(starts) < 20:
            iterations += 1
            await asyncio.sleep(0)

    async def run() -> None:
        pages = app.build_pages(harness.services, SiteOptions())
        scope = build_scope("GET", "/robots.txt", []) | {"listings.request_id": "1"}
        exchange = AsgiExchange(scope, cast("Any", None), send)
        calls = (pages({**scope, "listings.exchange": exchange}, cast("Any", None), send) for _ in range(20))
        await asyncio.gather(count_iterations(), *calls)

    asyncio.run(run())
    assert len(set(starts)) == 20


def test_paths_and_cookies_take_linear_time(harness: Harness) -> None:
    started = process_time()
    page = harness.fetch("GET", "/console" + "/" * 8_000, headers={"accept": "text/html"})
    assert page.status == 404
    assert harness.fetch("GET", "/", headers={"cookie": 'x="' + '\\"' * 8_000}).status == 200
    assert process_time() - started < 0.25  # seconds; quadratic, they take 0.7


def test_cookies_in_several_headers_are_read(harness: Harness) -> None:
    tab = open_console(harness)
    [(name, value)] = [item for item in tab.cookies.items() if item[0] == "listings_session"]
    headers = [(b"host", b"localhost:8000"), (b"cookie", b"a=b"), (b"cookie", f"c=d; {name}={value}".encode())]
    assert harness.run(fetch(harness.application, "GET", "/console", headers, [b""])).status == 200
