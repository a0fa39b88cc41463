"""Bodies that are compressed with gzip for the clients that accept it (decision G41)."""

import asyncio
import gzip
import json
import random
from pathlib import Path
from time import thread_time

import pytest

from listings.api import compression
from listings.api.codec import Response
from listings.http.accept_encoding import parse_accept_encoding
from tests.api.helpers import LISTINGS
from tests.api.test_large_lists import count_files, create_lamps
from tests.harness import Harness, Person, Reply, fetch
from tests.waiting import until_async

pytestmark = pytest.mark.decision("G41")

GZIP = {"Accept-Encoding": "gzip"}
LONG = {"title": "Lamp", "content": "Brass, with a green shade. " * 60}
DOCS = ("/docs", "/openapi.json", "/docs/reference.css", "/docs/reference.js")


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


@pytest.fixture
def path(harness: Harness, alice: Person) -> str:
    created = harness.fetch("POST", LISTINGS, key=alice.key, json=LONG)
    return f"{LISTINGS}/{created.json()['id']}"


def unpack(reply: Reply) -> bytes:
    assert (reply.status, reply.headers["content-encoding"]) == (200, "gzip")
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert reply.body[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # no time: the same body has the same bytes
    return gzip.decompress(reply.body)


def assert_plain(reply: Reply) -> None:
    assert "content-encoding" not in reply.headers
    assert not reply.body.startswith(b"\x1f\x8b")
    assert not reply.headers.get("etag", "").endswith('-gzip"')


def test_a_body_is_the_plain_one_compressed(harness: Harness, alice: Person, path: str) -> None:
    for target in (LISTINGS, f"{LISTINGS}?limit=5", path, f"{path}?include=all"):
        plain = harness.fetch("GET", target, key=alice.key)
        packed = [harness.fetch("GET", target, key=alice.key, headers=GZIP) for _ in range(2)]
        assert [unpack(reply) for reply in packed] == [plain.body] * 2
        assert len(packed[0].body) * 4 < len(plain.body)
        assert packed[0].headers["etag"] == f'{plain.headers["etag"][:-1]}-gzip"'
        assert packed[0].headers["vary"] == plain.headers["vary"] == "accept-encoding"
        head = harness.fetch("HEAD", target, key=alice.key, headers=GZIP)
        varying = dict.fromkeys(["x-request-id", "ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset"], "")
        assert (head.body, head.headers | varying) == (b"", packed[1].headers | varying)
        assert_plain(plain)


def test_the_docs_are_compressed(harness: Harness) -> None:
    for target in DOCS:
        plain, packed = harness.fetch("GET", target), harness.fetch("GET", target, headers=GZIP)
        assert unpack(packed) == plain.body
        assert packed.headers["content-type"] == plain.headers["content-type"]


def test_bodies_from_one_kibibyte_on_are_compressed(harness: Harness, alice: Person, path: str) -> None:
    size = len(harness.fetch("GET", path, key=alice.key).body)
    for target in (1023, 1024):
        change = {"content": LONG["content"][: len(LONG["content"]) - size + target]}
        harness.fetch("PATCH", path, key=alice.key, json=change)
        assert len(harness.fetch("GET", path, key=alice.key).body) == target
        packed = harness.fetch("GET", path, key=alice.key, headers=GZIP)
        assert ("content-encoding" in packed.headers) is (target == 1024)
        assert packed.headers["vary"] == "accept-encoding"


def test_the_result_of_a_batch_is_compressed(harness: Harness, alice: Person) -> None:
    body = {"operations": [{"op": "delete", "id": number} for number in range(1, 50)]}
    plain, packed = (
        harness.fetch("POST", f"{LISTINGS}/batch", key=alice.key, json=body, headers=headers) for headers in ({}, GZIP)
    )
    assert unpack(packed) == plain.body
    assert "etag" not in packed.headers


def test_errors_and_pages_are_never_compressed(harness: Harness, alice: Person) -> None:
    both = {"Accept-Encoding": "gzip, identity;q=0"}
    error = harness.fetch("POST", LISTINGS, key=alice.key, json={}, headers=both)
    assert (error.status, "vary" in error.headers) == (400, False)
    page = harness.fetch("GET", "/sign-in", headers=both | {"Accept": "text/html"})
    assert (page.status, len(page.body) > 1024) == (200, True)
    for reply in (error, page, harness.fetch("GET", LISTINGS, headers=both)):
        assert_plain(reply)


def test_accept_encoding_chooses_the_encoding() -> None:
    chosen = {
        "large bodies": [
            "gzip",
            "br, GZip;Q=0.001",
            "x-gzip",
            "*",
            "gzip;q=1.000, identity;q=1",
            "gzip ; q=0.5,, *;q=0.5",
        ],
        "all bodies": ["identity;q=0, gzip", "*;q=0, gzip;q=0.1", "identity;q=0, *"],
        "no bodies": ["gzip;q=0.5, identity;q=0.6", "gzip;q=0.5, *", "", "identity", "br, deflate", "gzip;q=0, *"],
        "nothing permitted": ["gzip;q=0.000", "*;q=0", "identity;q=0"],
        "invalid": ["gzip;q=2", "gzip;q=0.5555", "gzip;level=9", "gzip deflate", "gzip, \xff", "gzip;q="],
    }
    least = {"large bodies": 1024, "all bodies": 0}
    found = {value: parse_accept_encoding(value).min_bytes for values in chosen.values() for value in values}
    assert found == {value: least.get(kind) for kind, values in chosen.items() for value in values}


def test_a_refused_identity_compresses_small_bodies_but_no_304(harness: Harness, alice: Person) -> None:
    sent = [(b"x-api-key", alice.key.encode()), (b"accept-encoding", b"identity;q=0"), (b"accept-encoding", b"gzip")]
    reply = harness.run(fetch(harness.application, "GET", LISTINGS, sent, [b""]))
    assert unpack(reply) == b'{"listings":[]}'
    sent.append((b"if-none-match", reply.headers["etag"].encode()))
    same = harness.run(fetch(harness.application, "GET", LISTINGS, sent, [b""]))
    assert (same.status, same.body, "content-encoding" in same.headers) == (304, b"", False)


def test_a_304_names_a_tag_of_an_encoding_that_the_client_accepts(harness: Harness, alice: Person, path: str) -> None:
    statuses = {
        "gzip": (304, 304),  # the client accepts no encoding too
        "gzip, identity;q=0": (200, 304),
        "gzip;q=0.5, identity": (304, 304),
        "identity": (304, 200),
    }
    for target in (path, LISTINGS, "/openapi.json"):
        plain = harness.fetch("GET", target, key=alice.key).headers["etag"]
        tags = plain, f'{plain[:-1]}-gzip"'
        for accepted, expected in statuses.items():
            for tag, status in zip(tags, expected, strict=True):
                headers = {"Accept-Encoding": accepted, "If-None-Match": f"W/{tag}"}
                reply = harness.fetch("GET", target, key=alice.key, headers=headers)
                assert (reply.status, reply.headers["etag"] == tag) == (status, status == 304)
                assert reply.headers["vary"] == "accept-encoding"


def test_if_match_ignores_the_encoding(harness: Harness, alice: Person, path: str) -> None:
    def get_tag() -> str:
        return harness.fetch("GET", path, key=alice.key, headers=GZIP).headers["etag"]

    stale = get_tag()
    writes = [harness.fetch("PATCH", path, key=alice.key, json={"price": 5}, headers={"If-Match": stale}).status]
    writes += [harness.fetch("PATCH", path, key=alice.key, json={"price": 6}, headers={"If-Match": stale}).status]
    step = {"op": "update", "id": int(path.rpartition("/")[2]), "changes": {"price": 7}, "if_match": get_tag()}
    for _ in range(2):
        (result,) = harness.fetch("POST", f"{LISTINGS}/batch", key=alice.key, json={"operations": [step]}).json()[
            "results"
        ]
        writes.append(result["status"])
    assert writes == [200, 412, 200, 412]


def test_a_compressed_representation_has_the_tag_of_its_encoding(harness: Harness, alice: Person, path: str) -> None:
    headers = GZIP | {"Prefer": "return=representation"}
    reply = harness.fetch("PATCH", path, key=alice.key, json={"price": 5}, headers=headers)
    assert json.loads(unpack(reply))["price"] == 5
    assert reply.headers["etag"] == harness.fetch("GET", path, key=alice.key, headers=GZIP).headers["etag"]


def test_a_cached_response_is_compressed_once_and_both_forms_count(
    harness: Harness, alice: Person, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = harness.application._response_cache  # noqa: SLF001 - no response shows it
    plain = harness.fetch("GET", path, key=alice.key)
    before = cache.bytes
    packed = harness.fetch("GET", path, key=alice.key, headers=GZIP)
    assert cache.bytes == before + 1024 + len(packed.body)
    page = harness.fetch("GET", "/docs", headers=GZIP)
    monkeypatch.setattr(compression, "build_compressor", None)  # fails if it is called
    assert harness.fetch("GET", path, key=alice.key, headers=GZIP).body == packed.body
    assert harness.fetch("GET", "/docs", headers=GZIP).body == page.body
    assert harness.fetch("GET", path, key=alice.key).body == plain.body
    monkeypatch.undo()
    harness.fetch("PATCH", path, key=alice.key, json={"title": "Stand"})
    assert b"Stand" in unpack(harness.fetch("GET", path, key=alice.key, headers=GZIP))


def test_no_path_leads_to_the_compressed_form_in_the_cache(harness: Harness, alice: Person, path: str) -> None:
    unpack(harness.fetch("GET", path, key=alice.key, headers=GZIP))
    for suffix in ("-gzip", "/gzip", "%2Fgzip", "%2fgzip"):
        assert harness.fetch("GET", path + suffix, key=alice.key).status == 404
    assert harness.fetch("GET", f"{LISTINGS}/%2Fgzip", key=alice.key).status == 404


def build_text(size: int) -> str:
    return random.Random(1).randbytes(size // 2).hex()


@pytest.mark.timing
def test_a_body_in_memory_is_compressed_without_blocking_the_event_loop(harness: Harness) -> None:
    response = Response(200, build_text(256 * 1024).encode(), tag='"v1.0"')
    cache, encodings = harness.application._response_cache, parse_accept_encoding("gzip")  # noqa: SLF001 - see above
    compressor = compression.Compressor()

    async def measure() -> float:
        started = thread_time()
        await compressor.compress(response, encodings, cache)
        return thread_time() - started

    assert min(harness.run(measure()) for _ in range(5)) < 0.005


def test_larger_bodies_in_memory_are_compressed_in_few_threads(
    harness: Harness, alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_MAX_PENDING", 2)
    content = "".join(random.Random(1).choices("\x01\x02\x03\x04", k=100_000))  # 600 kB of JSON
    created = harness.fetch("POST", LISTINGS, key=alice.key, json=LONG | {"content": content})
    target = f"{LISTINGS}/{created.json()['id']}?include=all"
    plain = harness.fetch("GET", target, key=alice.key)
    headers = [(b"x-api-key", alice.key.encode()), (b"accept-encoding", b"gzip")]

    async def read() -> list[Reply]:
        return await asyncio.gather(*[fetch(harness.application, "GET", target, headers, [b""]) for _ in range(5)])

    replies = harness.run(read())
    packed = [reply for reply in replies if "content-encoding" in reply.headers]
    assert {unpack(reply) for reply in packed} == {plain.body}
    assert 2 <= len(packed) < 5
    assert {reply.body for reply in replies if reply not in packed} == {plain.body}


@pytest.mark.every_engine
def test_a_large_list_is_compressed_into_a_file_of_its_own(harness: Harness, tmp_path: Path, alice: Person) -> None:
    create_lamps(harness, alice)

    async def read() -> list[Reply]:
        accepted = (b"identity", b"gzip", b"gzip", b"gzip")
        sent = [[(b"x-api-key", alice.key.encode()), (b"accept-encoding", value)] for value in accepted]
        return await asyncio.gather(*[fetch(harness.application, "GET", LISTINGS, one, [b""]) for one in sent])

    plain, *packed = harness.run(read())
    assert {unpack(reply) for reply in packed} == {plain.body}
    assert packed[0].headers["etag"] == f'{plain.headers["etag"][:-1]}-gzip"'
    assert plain.headers["vary"] == packed[0].headers["vary"] == "accept-encoding"
    assert count_files(tmp_path) == 2
    folder = harness.application._lists._folder  # noqa: SLF001 - no response shows it
    assert folder.total == (len(plain.body) + len(packed[0].body), 2)
    head = harness.fetch("HEAD", LISTINGS, key=alice.key, headers=GZIP)
    assert (head.body, head.headers["content-length"]) == (b"", str(len(packed[0].body)))
    harness.application._lists.clear()  # noqa: SLF001 - instead of waiting
    harness.run(until_async(lambda: count_files(tmp_path) == 0))
    assert folder.total == (0, 0)
