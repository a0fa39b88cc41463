"""What is around every page: headers, origins of forms, bounds, refusals."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from listings.domain.errors import Problem, Unavailable
from listings.site import app, market, security
from listings.site.context import SiteOptions
from listings.telemetry.logs import RequestLine
from tests.harness import Harness, Reply, fetch
from tests.site.market import PAGE, Reading, get

HOME = Path(app.__file__).parent
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "img-src": "'self' https: http:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


# Headers


@pytest.mark.parametrize("path", ["/", "/nothing", "/robots.txt", "/listings/1", "/static/x/site.css"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_every_answer_has_the_policy_and_its_type(harness: Harness, method: str, path: str) -> None:
    headers = get(harness, path, method, Sec_Fetch_Site="same-origin").headers
    assert dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; ")) == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert re.fullmatch(r"[a-z/]+; charset=utf-8", headers["content-type"])
    assert "strict-transport-security" not in headers


def test_no_template_needs_an_inline_style_or_script() -> None:
    for file in HOME.joinpath("templates").rglob("*.html"):
        text = file.read_text("utf-8")
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|hx-on|js:|\|\s*safe", text), file
        assert re.findall(r"<script(?! src=\"{{ asset\()[^>]*>", text) in ([], ['<script type="application/ld+json">'])


def test_what_is_vendored_is_what_was_published() -> None:
    notes = HOME.joinpath("static", "VENDORED.md").read_text("utf-8")
    rows = re.findall(r"\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|", notes)
    assert [name for name, _ in rows] == ["htmx.min.js"]
    for name, digest in rows:
        assert hashlib.sha256(HOME.joinpath("static", name).read_bytes()).hexdigest() == digest


# Files


def test_a_file_is_kept_for_ever_under_the_digest_of_its_content(harness: Harness) -> None:
    page = Reading(get(harness, "/").body.decode())
    addresses = [*page.values("link", "href", rel="stylesheet"), *page.values("script", "src")]
    assert len(addresses) == 3
    for address in addresses:
        reply = get(harness, str(address))
        assert (reply.status, reply.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    style = get(harness, str(addresses[0])).body.decode()
    for name in re.findall(r'url\("([^"]+)"\)', style):
        assert re.fullmatch(r"\.\./[0-9a-f]{16}/[a-z]+\.svg", name)
        assert get(harness, f"/static/{name[3:]}").headers["cache-control"].endswith("immutable")


def test_a_file_under_another_digest_is_not_kept_and_others_are_not_there(harness: Harness) -> None:
    assert get(harness, "/static/0000000000000000/site.css").headers["cache-control"] == "no-cache"
    for name in ("VENDORED.md", "nothing.css", "..", "%2e%2e%2fapp.py", "../app.py"):
        assert get(harness, f"/static/0000000000000000/{name}").status == 404


# Refusals


def test_a_path_that_is_nobodys_is_a_page_for_people_and_json_for_programs(harness: Harness) -> None:
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
def test_another_method_is_refused_with_those_that_there_are(harness: Harness, path: str, allowed: str) -> None:
    said = f"DELETE is not possible here, only {allowed}"
    reply = get(harness, path, "DELETE")
    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    assert said in Reading(reply.body.decode()).text
    for headers in ({"accept": "*/*"}, {"x-api-key": "x", "content-encoding": "gzip"}):
        reply = harness.fetch("DELETE", path, headers=headers)
        assert (reply.status, reply.headers["allow"], reply.json()) == (405, allowed, {"error": said})
        assert reply.headers["x-error-code"] == "method_not_allowed"
        assert reply.headers["content-type"] == "application/json; charset=utf-8"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("/console/", "/console"),
        ("/console/listings/?q=rimu+table&page=2", "/console/listings?q=rimu+table&page=2"),
        ("/sign-in/", "/sign-in"),
        ("/robots.txt/", "/robots.txt"),
        ("/listings/%5Cevil.example%3F%0D%0Ax/", "/listings/%5Cevil.example%3F%0D%0Ax"),
    ],
)
def test_a_slash_behind_a_pages_address_leads_to_the_one_without(harness: Harness, address: str, location: str) -> None:
    for method in ("GET", "HEAD"):
        reply = get(harness, address, method)
        assert (reply.status, reply.headers["location"]) == (308, location)


@pytest.mark.parametrize("path", ["//", "//evil.example/", "/nothing/", "/console//", "/sign-out/"])
def test_a_slash_behind_what_is_no_page_leads_nowhere(harness: Harness, path: str) -> None:
    assert get(harness, path).status == 404


def test_a_path_that_is_nobodys_is_told_before_where_a_form_comes_from(harness: Harness) -> None:
    assert get(harness, "/nothing", "POST", Sec_Fetch_Site="cross-site").status == 404


def test_what_a_page_refuses_is_told_to_programs_as_the_api_tells_it(harness: Harness) -> None:
    said = "There is no such listing, or it is not on show any more"
    assert get(harness, "/listings/0").headers["content-type"] == "text/html; charset=utf-8"
    reply = get(harness, "/listings/0", Accept="*/*")
    assert (reply.status, reply.json()) == (404, {"error": said})
    assert reply.headers["x-error-code"] == "listing_not_found"


def test_to_head_the_headers_are_those_of_get_and_there_is_no_body(harness: Harness) -> None:
    whole, head = get(harness, "/"), get(harness, "/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))


# Forms, and what fails


async def _echo(request: Request) -> Response:
    form = await request.form()
    return PlainTextResponse(str(form["text"]))


async def _fail(request: Request) -> Response:
    if "unavailable" in request.query_params:
        raise Unavailable("The database can't be reached", retry_after=7)
    raise RuntimeError("a secret of ours")


class Site:
    """The application with pages of the test's own."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        routes = [Route("/echo", _echo, methods=["POST"]), Route("/fail", _fail)]
        monkeypatch.setattr(market, "ROUTES", routes)
        self._house = harness
        self.lines: list[RequestLine] = []
        pages = app.application(harness.service, SiteOptions(most_body=1000))
        self._application = type(harness.application)(harness.service, pages=pages, on_response=self.lines.append)

    def fetch(
        self, method: str, path: str, *chunks: bytes, headers: dict[str, str] | None = None, complete: bool = True
    ) -> Reply:
        sent = [(name.lower().encode(), value.encode()) for name, value in (PAGE | (headers or {})).items()]
        return self._house.run(fetch(self._application, method, path, sent, list(chunks) or [b""], complete=complete))


@pytest.fixture
def site(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(harness, monkeypatch)


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
def test_a_form_has_to_come_from_a_page_of_ours(site: Site, headers: dict[str, str], status: int) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert site.fetch("POST", "/echo", b"text=moa", headers=kind | headers).status == status


def test_a_form_of_the_operators_own_address_is_ours_whatever_the_proxy_calls_us(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://market.example") as harness:
        headers = {"Host": "127.0.0.1:8000", "Origin": "https://market.example"}
        assert harness.fetch("POST", "/sign-out", headers=headers).status == 303
        assert harness.fetch("POST", "/sign-out", headers=headers | {"Origin": "https://evil.example"}).status == 403


def test_a_form_is_read_whole_however_it_comes(site: Site) -> None:
    reply = site.fetch("POST", "/echo", b"text=m", b"o", b"a", headers=FORM)
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
def test_a_form_is_bounded(site: Site, chunks: list[bytes], headers: dict[str, str], status: int) -> None:
    reply = site.fetch("POST", "/echo", *chunks, headers=FORM | headers)
    assert reply.status == status
    assert status == 200 or "h1" in reply.body.decode()


def test_nobody_is_answered_whose_form_never_ends(site: Site) -> None:
    assert site.fetch("POST", "/echo", b"text=m", headers=FORM, complete=False).status == 0
    assert site.lines[-1].status == 499


def test_what_fails_is_told_with_a_number_and_logged_with_the_reason(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    reply = site.fetch("GET", "/fail")
    text = reply.body.decode()
    assert (reply.status, reply.headers["cache-control"]) == (500, "no-store")
    assert reply.headers["x-request-id"] in text
    assert "secret" not in text
    (record,) = caplog.records
    assert reply.headers["x-request-id"] in record.getMessage()
    assert "a secret of ours" in str(record.exc_info)


def test_what_is_away_is_told_with_when_to_come_back(site: Site) -> None:
    reply = site.fetch("GET", "/fail?unavailable")
    assert (reply.status, reply.headers["retry-after"]) == (503, "7")


def test_pages_are_logged_by_their_pattern_and_never_by_their_address(site: Site) -> None:
    for path in ("/fail", "/nothing?q=secret", "/static/x/site.css"):
        site.fetch("GET", path)
    noted = [(line.method, line.route, line.status) for line in site.lines]
    assert noted == [("GET", "/fail", 500), ("GET", "-", 404), ("GET", "/static/{digest}/{name}", 200)]
    assert len({line.request_id for line in site.lines}) == 3


# Tokens


def test_a_forms_token_is_of_its_secret_alone_and_does_not_tell_it() -> None:
    secret = security.new_secret()
    assert len(secret) >= 43
    assert secret != security.new_secret()
    token = security.form_token(secret)
    security.require_form_token(secret, token)
    assert secret not in token
    wrong: list[Any] = ["", "x", token[:-1], security.form_token(security.new_secret()), None, b"x", "é"]
    for sent in wrong:
        with pytest.raises(Problem) as refused:
            security.require_form_token(secret, sent)
        assert refused.value.code == "cross_site"
