"""Which paths and methods there are, and what browsers of other origins may do (decisions G19, G33)."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Client
from tests.harness import Harness, Reply

LISTINGS = "/api/v1/listings"
ORIGIN = "https://shop.example"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
ALLOWED = {
    LISTINGS: "GET, HEAD, POST",
    f"{LISTINGS}/1025": "GET, HEAD, PUT, PATCH, DELETE",
    f"{LISTINGS}/1025/restore": "POST",
    f"{LISTINGS}/batch": "POST",
    "/api/v1/rate_limit": "GET, HEAD",
}


# Paths


@pytest.mark.decision("G21", "G33")
@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api",
        "/api/",
        "/api/v1",
        "/api/v1/",
        "/api/v1/listing",
        "/api/v1/listingsx",
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
    ],
)
def test_an_unknown_path_is_404_without_a_key_by_any_method(harness: Harness, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS", "BREW"):
        reply = harness.fetch(method, path)
        assert (reply.status, reply.json()) == (404, {"error": "Path not found: /docs lists all paths"})
        assert reply.headers["x-error-code"] == "path_not_found"


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/v2/listings", "/api/v1/listings//", "/API/v1/listings", "/icon.ico"]
)
def test_an_unknown_path_is_404_over_http_too(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.headers["X-Error-Code"]) == (404, "path_not_found")


@pytest.mark.parametrize("path", ["/api/v2/listings", LISTINGS + "/1/x"])
def test_a_key_makes_an_unknown_path_no_better_known(harness: Harness, path: str) -> None:
    cast = harness.cast()
    replies = [harness.fetch("GET", path, key=key) for key in (None, "wrong", cast.alice.key, cast.charlie.key)]
    assert {(reply.status, reply.headers["x-error-code"]) for reply in replies} == {(404, "path_not_found")}


@pytest.mark.decision("G19")
def test_a_path_without_its_trailing_slash_is_answered_without_a_redirect(alice: Client) -> None:
    for path in ("", "/", f"/{alice.create()}", f"/{alice.create()}/"):
        response = alice.get(path)
        assert (response.status_code, response.history) == (200, [])


@pytest.mark.parametrize("segment", ["%2B1", "1025%20", "1025%0A", "1025%00", "%D9%A1", "1025;a", "1025."])
def test_what_is_no_id_is_a_listing_that_does_not_exist(http: httpx.Client, alice: Client, segment: str) -> None:
    path = f"{LISTINGS}/{segment}"
    assert http.get(path).status_code == 401
    response = alice.get(f"/{segment}")
    assert (response.status_code, response.headers["X-Error-Code"]) == (404, "listing_not_found")


def test_a_percent_encoded_digit_is_that_digit(alice: Client) -> None:
    listing = str(alice.create())
    assert alice.get(f"/%{ord(listing[0]):x}{listing[1:]}").json()["id"] == int(listing)


@pytest.mark.decision("G19")
def test_what_is_no_id_never_reaches_the_store(harness: Harness) -> None:
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
    ]
    for segment in segments:
        for method in ("GET", "PUT", "DELETE"):
            reply = harness.fetch(method, f"{LISTINGS}/{segment}", key=key, body=b"{}")
            assert (segment, reply.status, reply.json()) == (segment, 404, {"error": "Listing not found"})


def test_the_process_says_without_a_key_that_it_is_there(http: httpx.Client) -> None:
    assert http.get("/healthz").status_code == 200
    assert http.post("/healthz").status_code == 405


# Methods


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_method_that_a_path_does_not_have_is_405_without_a_key(
    http: httpx.Client, path: str, method: str, slash: str
) -> None:
    allowed = ALLOWED[path]
    response = http.request(method, path + slash)
    if method in allowed.split(", "):
        assert response.status_code == 401
    else:
        assert (response.status_code, response.headers["Allow"]) == (405, allowed)
        assert response.headers["X-Error-Code"] == "method_not_allowed"
        sentence = f'{{"error":"{method} is not allowed here; use {allowed}"}}'
        assert response.text == ("" if method == "HEAD" else sentence)


@pytest.mark.parametrize("method", ["BREW", "get", "M-SEARCH", "x" * 1000])
def test_an_unknown_method_is_405_with_a_sentence_of_bearable_length(harness: Harness, method: str) -> None:
    reply = harness.fetch(method, LISTINGS)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")
    assert len(reply.json()["error"]) < 100


@pytest.mark.parametrize("override", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_a_method_is_never_taken_from_a_header(alice: Client, override: str) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}", headers={override: "DELETE"}).status_code == 200
    assert alice.post(f"/{listing}", headers={override: "DELETE"}).status_code == 405
    assert alice.get(f"/{listing}").status_code == 200


@pytest.mark.decision("G19")
@pytest.mark.parametrize("path", ["", "/1025", "/abc", "/healthz", "/api/v2"])
def test_head_answers_as_get_without_the_body(harness: Harness, path: str) -> None:
    key = harness.cast().alice.key
    path = path if path.startswith(("/h", "/api")) else LISTINGS + path
    head, get = harness.fetch("HEAD", path, key=key), harness.fetch("GET", path, key=key)
    changing = {"x-request-id": "", "ratelimit": "", "x-ratelimit-remaining": "", "x-ratelimit-reset": ""}
    assert (head.status, head.body, head.headers | changing) == (get.status, b"", get.headers | changing)


# Browsers of other origins


def cors_of(reply: Reply) -> dict[str, str]:
    return {name: reply.headers[name] for name in reply.headers if name.startswith("access-control-") or name == "vary"}


def preflight(harness: Harness, origin: str, path: str = LISTINGS, method: str = "POST") -> Reply:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type, x-api-key",
    }
    return harness.fetch("OPTIONS", path, headers=headers)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Harness]:
    """A house whose operator named two origins."""
    with Harness(tmp_path, cors_origins=f"{ORIGIN}, http://localhost:5173") as harness:
        yield harness


@pytest.mark.decision("G19")
def test_no_origin_may_do_anything_unless_the_operator_names_it(harness: Harness) -> None:
    key = harness.cast().alice.key
    for method in ("GET", "POST", "OPTIONS"):
        assert cors_of(harness.fetch(method, LISTINGS, key=key, headers={"Origin": ORIGIN})) == {}
    reply = preflight(harness, ORIGIN)
    assert (reply.status, reply.headers["allow"], cors_of(reply)) == (405, "GET, HEAD, POST", {})


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:5173"])
@pytest.mark.parametrize("path", ALLOWED)
def test_a_named_origin_may_ask_before_it_sends(shop: Harness, origin: str, path: str) -> None:
    reply = preflight(shop, origin, path)
    assert reply.status in {200, 204}
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["access-control-allow-methods"] == ALLOWED[path]
    assert "origin" in reply.headers["vary"].lower()
    wanted = {"x-api-key", "authorization", "content-type", "prefer", "if-match", "if-none-match", "idempotency-key"}
    assert wanted <= set(reply.headers["access-control-allow-headers"].split(", "))
    assert "access-control-allow-credentials" not in reply.headers


def test_a_named_origin_may_read_every_answer(shop: Harness) -> None:
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


def test_a_named_origin_may_read_the_headers_that_the_api_tells_things_by(shop: Harness) -> None:
    reply = shop.fetch("GET", LISTINGS, key=shop.cast().alice.key, headers={"Origin": ORIGIN})
    exposed = set(reply.headers["access-control-expose-headers"].split(", "))
    told = {name for name in reply.headers if name.startswith(("x-", "ratelimit"))} - {"x-content-type-options"}
    told |= {"location", "retry-after", "x-error-code", "x-ignored-fields", "preference-applied"}
    assert told | {"etag", "link", "idempotent-replayed"} <= exposed


@pytest.mark.parametrize(
    "origin",
    [
        "https://other.example",
        "http://shop.example",
        "https://shop.example:8443",
        "https://shop.example.evil.example",
        "https://evil.example/https://shop.example",
        "https://SHOP.example.",
        "null",
        "*",
        "",
    ],
)
def test_any_other_origin_may_do_nothing(shop: Harness, origin: str) -> None:
    reply = preflight(shop, origin)
    assert (reply.status, cors_of(reply)) == (405, {"vary": "origin"})
    reply = shop.fetch("GET", LISTINGS, key=shop.cast().alice.key, headers={"Origin": origin})
    assert (reply.status, cors_of(reply)) == (200, {"vary": "origin"})


def test_answers_vary_by_origin_even_without_one(shop: Harness) -> None:
    assert cors_of(shop.fetch("GET", LISTINGS, key=shop.cast().alice.key)) == {"vary": "origin"}


def test_options_without_a_question_is_405_for_a_named_origin_too(shop: Harness) -> None:
    reply = shop.fetch("OPTIONS", LISTINGS, headers={"Origin": ORIGIN})
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")


def test_a_preflight_for_an_unknown_path_is_404(shop: Harness) -> None:
    assert preflight(shop, ORIGIN, "/api/v2").status == 404


def test_a_preflight_needs_no_key_and_opens_nothing(shop: Harness) -> None:
    reply = preflight(shop, ORIGIN)
    assert "ratelimit" not in reply.headers
    assert shop.fetch("GET", LISTINGS, headers={"Origin": ORIGIN}).status == 401


@pytest.mark.parametrize("origin", [ORIGIN, "http://anything.example:81"])
def test_a_star_names_every_origin(tmp_path: Path, origin: str) -> None:
    with Harness(tmp_path, cors_origins="*") as harness:
        for reply in (preflight(harness, origin), harness.fetch("GET", LISTINGS, headers={"Origin": origin})):
            assert reply.headers["access-control-allow-origin"] in {"*", origin}
            assert "access-control-allow-credentials" not in reply.headers
