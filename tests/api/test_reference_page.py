"""The reference page at /docs: complete without scripts, safe, and without external resources."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from listings.api.docs import document, schemas
from listings.api.docs.handlers import BASE_URL
from listings.api.docs.page import Operation, build_environment, list_titles, render_page
from listings.api.docs.texts import read_texts
from listings.api.routes import ROUTES
from listings.service import NO_INFO
from tests.harness import Harness, RunningService
from tests.processes import run_program
from tests.site.browser import CHROMIUM, needs_chromium
from tests.site.market import VOID

DOCUMENT = document.build_document(ROUTES, NO_INFO)
PAGE = render_page(DOCUMENT, "http://shop.example").decode()
FILES = {"/docs": "text/html", "/docs/reference.css": "text/css", "/docs/reference.js": "text/javascript"}


class ParsedPage(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str | None] = []
        self.controls: list[str | None] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        self.attributes.update(known)
        self.ids += [value for key, value in attributes if key == "id" and value]
        self.links += [value for key, value in attributes if key in {"href", "src", "action"} and value]
        if name == "label":
            self.labels.append(known.get("for"))
        if name in {"input", "select", "textarea"}:
            self.controls.append(known.get("id"))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


@pytest.fixture(scope="module")
def parsed() -> ParsedPage:
    return ParsedPage(PAGE)


def test_every_link_leads_into_the_page_or_to_the_service(parsed: ParsedPage) -> None:
    inner = {link[1:] for link in parsed.links if link.startswith("#")}
    assert inner <= set(parsed.ids)
    outer = {link.partition("#")[0] for link in parsed.links if not link.startswith("#")}
    guides = {f"/docs/{name}" for name in list_titles()}
    assert outer == {*FILES, "/docs/inter.woff2", *guides, "/openapi.json", "data:,", "/", "/console/keys", "/sign-in"}


def test_there_are_no_inline_styles_or_scripts(parsed: ParsedPage) -> None:
    assert not {name for name in parsed.attributes if name == "style" or name.startswith("on")}
    assert parsed.links.count("/docs/reference.js") == 1


def test_the_page_has_every_operation_parameter_field_and_code() -> None:
    for item in DOCUMENT["paths"].values():
        for method, operation in item.items():
            if method != "parameters":
                assert f'id="{operation["operationId"]}"' in PAGE
    names = {*read_texts().parameters, *schemas.FIELD_DOCS, *DOCUMENT["components"]["headers"]}
    assert not {name for name in names if f"<code>{name}</code>" not in PAGE}
    operations_of_paths = [
        one for item in DOCUMENT["paths"].values() for one in item.values() if "x-error-codes" in one
    ]
    codes = {code for operation in operations_of_paths for code in operation["x-error-codes"]}
    assert not {code for code in codes if f"<code>{code}</code>" not in PAGE}


def test_fields_of_batch_operations_and_results_are_listed_once() -> None:
    assert not re.search(r"<code>(operations|results)\[\]", PAGE)
    assert PAGE.count("Like the header If-Match: ") == 4  # once in each schema that has it
    assert PAGE.count('<a href="#schema-CreateOperation">CreateOperation</a>') == 2  # in the body, and in its schema


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("shop.example:8080", "http://shop.example:8080"),
        ("[::1]:8000", "http://[::1]:8000"),
        ('"><script>alert(1)</script>', "http://localhost"),
        ("a b", "http://localhost"),
        ("", "http://localhost"),
    ],
)
def test_samples_use_the_host_of_the_request(harness: Harness, host: str, base_url: str) -> None:
    text = harness.fetch("GET", "/docs", headers={"Host": host}).body.decode()
    assert f'curl "{base_url}/api/v1/listings"' in text
    assert BASE_URL.decode() not in text
    assert "<script>" not in text


@pytest.mark.parametrize("path", ["/docs", "/docs/quick-start"])
def test_eight_hosts_get_their_samples_and_others_those_of_an_example(harness: Harness, path: str) -> None:
    hosts = [f"shop{number}.example" for number in range(9)] * 2
    pages = [harness.fetch("GET", path, headers={"Host": host}).body.decode() for host in hosts]
    named = [f"http://{host}" in page for host, page in zip(hosts, pages, strict=True)]
    assert named == [*[True] * 8, False] * 2
    assert "http://market.example" in pages[8]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("path", ["/docs", "/docs/undo", "/docs/reference.css", "/docs/reference.js", "/openapi.json"])
def test_all_responses_share_one_body(harness: Harness, path: str, encoding: str) -> None:
    headers = {"Host": "shop.example", "Accept-Encoding": encoding}
    first, second = (harness.fetch("GET", path, headers=headers) for _ in range(2))
    assert first.headers.get("content-encoding", "identity") == encoding
    assert first.body is second.body


@pytest.mark.parametrize(("path", "kind"), FILES.items())
def test_the_files_of_the_page_need_no_key(http: httpx2.Client, path: str, kind: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
    again = http.get(path, headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert http.head(path).headers["content-length"] == str(response.num_bytes_downloaded)


def test_the_policy_blocks_external_resources(http: httpx2.Client) -> None:
    policy = dict(part.split(" ", 1) for part in http.get("/docs").headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "font-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    style = http.get("/docs/reference.css").text
    assert re.findall(r"https?:|url\([^)]*\)|@import", style) == ['url("inter.woff2")']
    assert http.get("/docs/inter.woff2").headers["content-type"] == "font/woff2"


def test_text_is_escaped_and_backquotes_mark_code() -> None:
    changed = {**DOCUMENT, "info": {**DOCUMENT["info"], "description": "`<b>` & <i>\n\nmore"}}
    text = render_page(changed, "http://shop.example").decode()
    assert "<p><code>&lt;b&gt;</code> &amp; &lt;i&gt;</p>\n  <p>more</p>" in text


@pytest.mark.parametrize("body", [None, {"title": 'It\'s "here"', "is_active": True, "latitude": None}])
def test_the_samples_are_valid(body: object) -> None:
    operation = Operation("POST", "/api/v1/listings/{id}", {"security": [{"ApiKey": []}]}, [], [], {}, None, body)
    templates = build_environment("http://shop.example").get_template("samples.html").module
    curl, python, script = (
        html.unescape(getattr(templates, language)(operation)) for language in ("curl", "python", "javascript")
    )
    assert all('"http://shop.example/api/v1/listings/1025"' in text for text in (curl, python, script))
    compile(python, "sample", "exec")
    assert (json.dumps(body, indent=2) if body else "YOUR_API_KEY") in script.replace("\n  ", "\n")
    parsed = run_program(["bash", "-n"], input=curl)
    assert (parsed.returncode, parsed.stderr) == (0, "")


@needs_chromium
def test_a_browser_runs_the_page_without_errors(running: RunningService, tmp_path: Path) -> None:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    done = run_program([*command, f"--user-data-dir={tmp_path}", f"{running.base_url}/docs"], check=True)
    assert "CONSOLE" not in done.stderr
    assert 'class="try" hidden' not in done.stdout
    assert 'class="try"' in done.stdout
