"""The server's own response path and plain ASGI send the same responses, for every endpoint and kind of response.

All other tests over HTTP use the server's own path (`HttpExchange.respond`), and those without a socket plain ASGI.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from listings.api.routes import ROUTES
from tests.api.helpers import LISTINGS, STRICT
from tests.harness import TIMEOUT, RunningService

LAMP = b'{"title": "Lamp", "content": "Brass."}'
KEYED = {"Idempotency-Key": "k1"}
BATCH = b'{"operations": [{"op": "create", "listing": %b}, {"op": "delete", "id": 1}]}' % LAMP
RATE_LIMIT = 100
TIME = re.compile(rb'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(?<="reset":)\d+|(?<=try again in )\d+')
TIME_HEADERS = {"date", "retry-after", "x-ratelimit-reset"}  # and the seconds in `ratelimit`


class Request(NamedTuple):
    """One request and its expected status; {own}, {deleted} and {foreign} in the path are listings."""

    status: int
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    who: str = "alice"  # "" sends no key
    times: int = 1


class Response(NamedTuple):
    """A response without the parts that depend on the time."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


OWN = LISTINGS + "/{own}"
REQUESTS = {
    "list": Request(200, "GET", LISTINGS),
    "head of a list": Request(200, "HEAD", LISTINGS),
    "page with a link": Request(200, "GET", f"{LISTINGS}?limit=1&status=all&include=all"),
    "unchanged list": Request(304, "GET", LISTINGS, headers={"If-None-Match": "*"}),
    "listing": Request(200, "GET", OWN),
    "head of a listing": Request(200, "HEAD", OWN),
    "unchanged listing": Request(304, "GET", OWN, headers={"If-None-Match": "*"}),
    "PUT": Request(200, "PUT", OWN, b'{"price": 5, "colour": "red"}'),
    "PATCH": Request(200, "PATCH", OWN, b'{"price": 6}', STRICT),
    "create": Request(201, "POST", LISTINGS, LAMP),
    "create with a key": Request(201, "POST", LISTINGS, LAMP, KEYED),
    "replay": Request(201, "POST", LISTINGS, LAMP, KEYED),
    "dry run": Request(200, "POST", f"{LISTINGS}?dry_run=true", LAMP),
    "batch": Request(200, "POST", f"{LISTINGS}/batch", BATCH),
    "restore": Request(200, "POST", LISTINGS + "/{deleted}/restore"),
    "delete": Request(200, "DELETE", LISTINGS + "/{deleted}"),
    "changes": Request(200, "GET", "/api/v1/changes?limit=0"),
    "groups": Request(200, "GET", "/api/v1/changes/groups"),
    "history": Request(200, "GET", LISTINGS + "/{deleted}/changes?before=1"),
    "revert": Request(200, "POST", "/api/v1/changes/revert", b'{"change": 1}'),
    "missing revert": Request(404, "GET", "/api/v1/changes/reverts/{own}"),
    "pictures": Request(200, "GET", "/api/v1/images"),
    "upload": Request(400, "POST", "/api/v1/images", b"no picture"),
    "missing picture": Request(404, "DELETE", "/api/v1/images/{own}"),
    "missing file": Request(404, "GET", "/media/{file}", who=""),
    "key": Request(200, "GET", "/api/v1/key"),
    "rate limit": Request(200, "GET", "/api/v1/rate_limit"),
    "health": Request(200, "GET", "/healthz", who=""),
    "readiness": Request(200, "GET", "/readyz", who=""),
    "document": Request(200, "GET", "/openapi.json", who=""),
    "unchanged document": Request(304, "GET", "/openapi.json", headers={"If-None-Match": "*"}, who=""),
    "overview": Request(200, "GET", "/llms.txt", who=""),
    "reference page": Request(200, "GET", "/docs", who=""),
    "style sheet": Request(200, "GET", "/docs/reference.css", who=""),
    "script": Request(200, "GET", "/docs/reference.js", who=""),
    "font": Request(200, "GET", "/docs/inter.woff2", who=""),
    "guide": Request(200, "GET", "/docs/{guide}", who=""),
    "missing key": Request(401, "GET", LISTINGS, who=""),
    "unknown key": Request(401, "HEAD", LISTINGS, who="unknown"),
    "expired plan": Request(403, "POST", LISTINGS, LAMP, who="charlie"),
    "another account's listing": Request(403, "GET", LISTINGS + "/{foreign}"),
    "deleted listing": Request(404, "PATCH", LISTINGS + "/{deleted}", b"{"),
    "unknown path": Request(404, "GET", "/api/v2/listings", who=""),
    "unknown page": Request(404, "GET", "/nothing", headers={"Accept": "text/html"}, who=""),
    "another method": Request(405, "DELETE", LISTINGS, who=""),
    "OPTIONS": Request(405, "OPTIONS", OWN, who=""),
    "bad parameter": Request(400, "GET", f"{LISTINGS}?limit=0"),
    "bad field": Request(400, "POST", LISTINGS, b'{"title": "Lamp"}'),
    "malformed JSON": Request(400, "PUT", OWN, b"{"),
    "stale update": Request(412, "PATCH", OWN, b"{}", {"If-Match": '"v9.0"'}),
    "reused key": Request(422, "POST", LISTINGS, b'{"title": "Other", "content": "Brass."}', KEYED),
    "compressed body": Request(415, "POST", LISTINGS, b"\x1f\x8b", {"Content-Encoding": "gzip"}),
    "body too large": Request(413, "POST", LISTINGS, b" " * (2 * 1024 * 1024 + 1)),
    "too many requests": Request(429, "GET", LISTINGS, who="bob", times=RATE_LIMIT + 1),
}


class Sender:
    def __init__(self, service: RunningService, http: httpx2.Client) -> None:
        cast = service.cast()
        self._http = http
        self._keys = {"alice": cast.alice.key, "bob": cast.bob.key, "charlie": cast.charlie.key, "unknown": "u" * 20}
        self._ids: dict[str, int] = {}
        for name, who in {"own": "alice", "deleted": "alice", "foreign": "bob"}.items():
            self._ids[name] = self._send(Request(201, "POST", LISTINGS, LAMP, who=who)).json()["id"]
        self._send(Request(200, "DELETE", LISTINGS + "/{deleted}"))

    def send(self, request: Request) -> Response:
        """Send the request `times` times; return the last response."""
        response = [self._send(request) for _ in range(request.times)][-1]
        headers = [
            (name, re.sub(r"t=\d+", "t=", value) if name == "ratelimit" else value)
            for name, value in response.headers.multi_items()
            if name not in TIME_HEADERS
        ]
        return Response(response.status_code, sorted(headers), TIME.sub(b"", response.content))

    def _send(self, request: Request) -> httpx2.Response:
        headers: dict[str, Any] = {"Host": "shop.example", "X-Request-Id": "same", **request.headers}
        if request.who:
            headers["X-API-Key"] = self._keys[request.who]
        path = request.path.format(**self._ids, guide="errors", file="x.jpg")
        return self._http.request(request.method, path, content=request.body, headers=headers)


def serve_and_send_all(folder: Path, *, plain: bool) -> dict[str, Response]:
    with (
        RunningService(folder, plain=plain, rate_limit=str(RATE_LIMIT)) as service,
        httpx2.Client(base_url=service.base_url, timeout=TIMEOUT) as http,
    ):
        sender = Sender(service, http)
        return {name: sender.send(request) for name, request in REQUESTS.items()}


def test_both_response_paths_send_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    own, plain = (serve_and_send_all(tmp_path_factory.mktemp("service"), plain=plain) for plain in (False, True))
    assert {name: response.status for name, response in own.items()} == {
        name: request.status for name, request in REQUESTS.items()
    }
    for name, response in own.items():
        assert response == plain[name]


def test_every_endpoint_is_compared() -> None:
    compared = {
        (request.method, re.sub(r"\{(own|deleted|foreign)\}", "{id}", request.path.partition("?")[0]))
        for request in REQUESTS.values()
    }
    assert {(method, path) for path, methods in ROUTES.items() for method in methods} <= compared
