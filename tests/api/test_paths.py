"""Paths and methods, and cross-origin requests of browsers (decisions G19, G33)."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.helpers import LISTINGS, get_outcome
from tests.conftest import Client
from tests.harness import Harness, Reply

ORIGIN = "https://shop.example"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
BICYCLE = {"title": "Bicycle", "content": "Two wheels."}
ALLOWED = {
    LISTINGS: "GET, HEAD, POST",
    f"{LISTINGS}/1025": "GET, HEAD, PUT, PATCH, DELETE",
    f"{LISTINGS}/1025/restore": "POST",
    f"{LISTINGS}/batch": "POST",
    "/api/v1/rate_limit": "GET, HEAD",
}
UNKNOWN_PATHS = [
    "/nothing",
    "/api",
    "/api/",
    "/api/v1",
    "/api/v1/",
    "/api/v1/listing",
    "/api/v1/listingsx",
    "/api/v1/keys",
    "/api/v1/webhooks",
    "/api/v1/listings.json",
    "/api/v1/listings//",
    "/api/v1/listings//1025",
    "/api/v1/listings/1025//",
    "/api/v1/listings/1025/x",
    "/api/v1/listings/1025/x/",
    "/api/v1/Listings",
    "/API/V1/LISTINGS",
    "//api/v1/listings",
    "/v1/listings",
    "/api/v0/listings",
    "/api/v2/listings",
    "/api/v2/listings/1025",
    "/api/v10/listings",
    "/api/v1/%00",
    "/%ff",
    "/é",
    "/x" * 500,
]


@pytest.mark.decision("G21", "G33", "G34")
def test_an_unknown_path_is_404_with_any_method(harness: Harness) -> None:
    for path in UNKNOWN_PATHS:
        for method in ("GET", "POST", "DELETE", "OPTIONS", "BREW"):
            reply = harness.fetch(method, path)
            assert (path, reply.status, reply.json()) == (path, 404, {"error": "Path not found: /docs lists all paths"})
            assert reply.headers["x-error-code"] == "path_not_found"


@pytest.mark.decision("G19")
def test_a_trailing_slash_causes_no_redirect(alice: Client) -> None:
    for path in ("", "/", f"/{alice.create()}", f"/{alice.create()}/"):
        response = alice.get(path)
        assert (response.status_code, response.history) == (200, [])


def test_a_percent_encoded_digit_is_decoded(alice: Client) -> None:
    listing = str(alice.create())
    assert alice.get(f"/%{ord(listing[0]):x}{listing[1:]}").json()["id"] == int(listing)


@pytest.mark.decision("G19")
def test_an_invalid_id_is_404_with_every_method(harness: Harness) -> None:
    key = harness.cast().alice.key
    segments = [
        "9223372036854775808",
        "9" * 19,
        "1" * 20,
        "9" * 5000,
        "0",
        "00",
        "-1",
        "1_000",
        "¹",
        "1.0",
        "0x1",
        "1e3",
        *("%2B1", "1025%20", "1025%0A", "1025%00", "%D9%A1", "1025;a", "1025."),
    ]
    assert harness.fetch("GET", f"{LISTINGS}/0").status == 401
    for segment in segments:
        for method, end in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/restore")):
            reply = harness.fetch(method, f"{LISTINGS}/{segment}{end}", key=key, body=b"{}")
            assert (segment, reply.status, reply.json()) == (segment, 404, {"error": "Listing not found"})


def test_an_external_id_in_the_path_gets_a_hint(alice: Client) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        response = alice.request(method, "/sku-17", **({} if method != "PATCH" else {"json": {}}))
        message = "Listing not found: ids are integers; find a listing by your own id with ?external_id="
        assert (response.status_code, response.json()) == (404, {"error": message})


@pytest.mark.decision("G19")
def test_the_api_is_below_the_path_of_the_base_url(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://example.com/shop") as harness:
        key = harness.person("alice").key
        created = [harness.fetch("POST", f"/shop{LISTINGS}", key=key, json=BICYCLE) for _ in range(2)]
        page = harness.fetch("GET", f"/shop{LISTINGS}?limit=1", key=key)
        document = harness.fetch("GET", "/shop/openapi.json").json()
        reference = harness.fetch("GET", "/shop/docs").body.decode()
    url = f"https://example.com/shop{LISTINGS}"
    assert created[0].headers["location"] == f"{url}/{created[0].json()['id']}"
    assert page.headers["link"].startswith(f"<{url}?limit=1&cursor=")
    assert (document["servers"][0]["url"], document["externalDocs"]["url"]) == (
        "https://example.com/shop",
        "https://example.com/shop/docs",
    )
    assert f'curl "{url}"' in reference
    assert f'data-path="/shop{LISTINGS}"' in reference


@pytest.mark.decision("G19")
@pytest.mark.parametrize("site", ["on", "off"])
def test_only_health_checks_are_found_without_the_prefix(tmp_path: Path, site: str) -> None:
    with Harness(tmp_path, base_url="https://example.com/shop", site=site) as harness:
        for path in ("/healthz", "/healthz/", "/readyz", "/shop/healthz", "/shop/readyz"):
            assert harness.fetch("GET", path).status == 200, path
        missing = (
            "/",
            "*",
            LISTINGS,
            "/docs",
            "/sign-in",
            "/shopping",
            "/shop%2fdocs",
            "/Shop/docs",
            "/shop/api/nothing",
        )
        for path in missing:
            reply = harness.fetch("GET", path, headers={"Accept": "text/html"})
            assert (reply.status, reply.json()) == (404, {"error": "Path not found: /shop/docs lists all paths"}), path
        for path in (f"/shop{LISTINGS}", f"/shop{LISTINGS}/", f"/%73hop{LISTINGS}", f"/shop{LISTINGS}/a%2Fb"):
            assert harness.fetch("GET", path).status == 401, path


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("slash", ["", "/"])
def test_other_methods_are_405_without_a_key(http: httpx2.Client, path: str, slash: str) -> None:
    allowed = ALLOWED[path]
    for method in METHODS:
        response = http.request(method, path + slash)
        if method in allowed.split(", "):
            assert response.status_code == 401, method
            continue
        assert get_outcome(response) == (405, "method_not_allowed"), method
        assert response.headers["Allow"] == allowed
        message = f'{{"error":"{method} is not allowed here; use {allowed}"}}'
        assert response.text == ("" if method == "HEAD" else message)


@pytest.mark.parametrize("method", ["BREW", "get", "M-SEARCH", "x" * 1000])
def test_an_unknown_method_is_405_with_a_short_message(harness: Harness, method: str) -> None:
    reply = harness.fetch(method, LISTINGS)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")
    assert len(reply.json()["error"]) < 100


@pytest.mark.parametrize("override", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_headers_cannot_override_the_method(alice: Client, override: str) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}", headers={override: "DELETE"}).status_code == 200
    assert alice.post(f"/{listing}", headers={override: "DELETE"}).status_code == 405
    assert alice.get(f"/{listing}").status_code == 200


@pytest.mark.decision("G19")
@pytest.mark.parametrize("path", ["", "/1025", "/abc", "/healthz", "/api/v2"])
def test_head_returns_the_headers_of_get_without_the_body(harness: Harness, path: str) -> None:
    key = harness.cast().alice.key
    path = path if path.startswith(("/h", "/api")) else LISTINGS + path
    head, get = harness.fetch("HEAD", path, key=key), harness.fetch("GET", path, key=key)
    varying = {"x-request-id": "", "ratelimit": "", "x-ratelimit-remaining": "", "x-ratelimit-reset": ""}
    assert (head.status, head.body, head.headers | varying) == (get.status, b"", get.headers | varying)


def get_cors_headers(reply: Reply) -> dict[str, str]:
    return {
        name: value
        for name, value in reply.headers.items()
        if name.startswith("access-control-") or (name == "vary" and value != "accept-encoding")
    }


def send_preflight(harness: Harness, origin: str, path: str = LISTINGS, method: str = "POST") -> Reply:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type, x-api-key",
    }
    return harness.fetch("OPTIONS", path, headers=headers)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Harness]:
    """A service that allows two origins."""
    with Harness(tmp_path, cors_origins=f"{ORIGIN}, http://localhost:5173") as harness:
        yield harness


@pytest.mark.decision("G19")
def test_no_origin_is_allowed_by_default(harness: Harness) -> None:
    key = harness.cast().alice.key
    for method in ("GET", "POST", "OPTIONS"):
        assert get_cors_headers(harness.fetch(method, LISTINGS, key=key, headers={"Origin": ORIGIN})) == {}
    reply = send_preflight(harness, ORIGIN)
    assert (reply.status, reply.headers["allow"], get_cors_headers(reply)) == (405, "GET, HEAD, POST", {})


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:5173"])
@pytest.mark.parametrize("path", ALLOWED)
def test_a_preflight_of_an_allowed_origin_succeeds(shop: Harness, origin: str, path: str) -> None:
    reply = send_preflight(shop, origin, path)
    assert reply.status in {200, 204}
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["access-control-allow-methods"] == ALLOWED[path]
    assert "origin" in reply.headers["vary"].lower()
    needed = {"x-api-key", "authorization", "content-type", "prefer", "if-match", "if-none-match", "idempotency-key"}
    assert needed <= set(reply.headers["access-control-allow-headers"].split(", "))
    assert "access-control-allow-credentials" not in reply.headers


def test_an_allowed_origin_may_read_every_response(shop: Harness) -> None:
    cast = shop.cast()
    headers = {"Origin": ORIGIN}
    replies = [
        shop.fetch("GET", LISTINGS, key=cast.alice.key, headers=headers),
        shop.fetch("POST", LISTINGS, key=cast.alice.key, json={"title": "a", "content": "b"}, headers=headers),
        shop.fetch("POST", LISTINGS, key=cast.alice.key, json={}, headers=headers),
        shop.fetch("GET", LISTINGS, headers=headers),
        shop.fetch("GET", LISTINGS, key=cast.charlie.key, headers=headers),
        shop.fetch("GET", "/api/v2", headers=headers),
        shop.fetch("DELETE", LISTINGS, headers=headers),
    ]
    assert [reply.status for reply in replies] == [200, 201, 400, 401, 403, 404, 405]
    assert {reply.headers["access-control-allow-origin"] for reply in replies} == {ORIGIN}


def test_other_origins_are_not_allowed(shop: Harness) -> None:
    key = shop.cast().alice.key
    for origin in (
        "https://other.example",
        "http://shop.example",
        "https://shop.example:8443",
        "https://shop.example.evil.example",
        "https://evil.example/https://shop.example",
        "https://SHOP.example.",
        "null",
        "*",
        "",
    ):
        reply = send_preflight(shop, origin)
        assert (reply.status, get_cors_headers(reply)) == (405, {"vary": "origin"})
        reply = shop.fetch("GET", LISTINGS, key=key, headers={"Origin": origin})
        assert (reply.status, get_cors_headers(reply)) == (200, {"vary": "accept-encoding, origin"})


def test_responses_vary_by_origin_even_without_one(shop: Harness) -> None:
    reply = shop.fetch("GET", LISTINGS, key=shop.cast().alice.key)
    assert get_cors_headers(reply) == {"vary": "accept-encoding, origin"}


def test_options_without_a_preflight_header_is_405(shop: Harness) -> None:
    reply = shop.fetch("OPTIONS", LISTINGS, headers={"Origin": ORIGIN})
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")


def test_a_preflight_for_an_unknown_path_is_404(shop: Harness) -> None:
    assert send_preflight(shop, ORIGIN, "/api/v2").status == 404


def test_a_preflight_needs_no_key_and_authorizes_nothing(shop: Harness) -> None:
    reply = send_preflight(shop, ORIGIN)
    assert "ratelimit" not in reply.headers
    assert shop.fetch("GET", LISTINGS, headers={"Origin": ORIGIN}).status == 401


@pytest.mark.parametrize("origin", [ORIGIN, "http://anything.example:81"])
def test_a_star_allows_every_origin(tmp_path: Path, origin: str) -> None:
    with Harness(tmp_path, cors_origins="*") as harness:
        for reply in (send_preflight(harness, origin), harness.fetch("GET", LISTINGS, headers={"Origin": origin})):
            assert reply.headers["access-control-allow-origin"] in {"*", origin}
            assert "access-control-allow-credentials" not in reply.headers
