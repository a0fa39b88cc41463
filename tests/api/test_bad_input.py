"""What bad input gets: 400, 413 or 415 with one clear sentence, and nothing stored or changed (G2-G5, G20)."""

import codecs
import gzip
import json as jsons
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Client
from tests.harness import Cast, Harness, Reply, RunningService, fetch

LISTINGS = "/api/v1/listings"
MAX_BODY_BYTES = 2 * 1024 * 1024
DEPTH = 100_000
NEEDED = {"title": "Bicycle", "content": "Two wheels."}
TEXTS = ("title", "content", "category", "location", "region", "district")
NUMBERS = ("price", "latitude", "longitude")


def body_with(name: str, value: bytes) -> bytes:
    """A body that is sound but for one value, which need not be JSON."""
    given = jsons.dumps({key: text for key, text in NEEDED.items() if key != name}).encode()
    return given[:-1] + (b", " if len(given) > 2 else b"") + jsons.dumps(name).encode() + b": " + value + b"}"


MALFORMED = {
    "empty": b"",
    "white_space": b" \r\n\t",
    "byte_order_mark_alone": codecs.BOM_UTF8,
    "two_byte_order_marks": codecs.BOM_UTF8 * 2 + b"{}",
    "one_brace": b"{",
    "no_colon": b'{"title"}',
    "no_value": b'{"title":}',
    "unfinished_text": b'{"title": "a',
    "unfinished_object": b'{"title": "a", "content": "b"',
    "trailing_comma": b'{"title": "a", "content": "b",}',
    "comment": b'{"title": "a", "content": "b" /* c */}',
    "single_quotes": b"{'title': 'a', 'content': 'b'}",
    "bare_key": b'{title: "a", "content": "b"}',
    "number_as_key": b'{1: "a"}',
    "python": b'{"title": None}',
    "form": b"title=a&content=b",
    "xml": b"<title>a</title>",
    "leading_zero": body_with("price", b"01"),
    "plus_sign": body_with("price", b"+1"),
    "no_digit_behind_the_point": body_with("price", b"1."),
    "no_digit_before_the_point": body_with("price", b".5"),
    "hexadecimal": body_with("price", b"0x10"),
    "nan": body_with("price", b"NaN"),
    "infinity": body_with("price", b"Infinity"),
    "minus_infinity": body_with("price", b"-Infinity"),
    "nan_in_lower_case": body_with("latitude", b"nan"),
    "nan_in_an_ignored_key": body_with("colour", b"NaN"),
    "infinity_deep_in_an_ignored_key": body_with("colour", b'[1, {"a": Infinity}]'),
    "too_large_a_number": body_with("price", b"1e999"),
    "too_small_a_number": body_with("longitude", b"-1e999"),
    "too_large_a_number_in_an_ignored_key": body_with("colour", b"1e999"),
    "number_of_5000_digits": body_with("price", b"9" * 5000),
    "negative_number_of_5000_digits": body_with("latitude", b"-" + b"9" * 5000),
    "number_of_5000_digits_in_an_ignored_key": body_with("colour", b"9" * 5000),
    "number_of_a_million_digits": body_with("price", b"9" * 1_000_000),
    "exponent_of_5000_digits": body_with("price", b"1e" + b"9" * 5000),
    "unclosed_brackets": b"[" * DEPTH,
    "unclosed_braces": b'{"a":' * DEPTH,
    "brackets_in_a_field": body_with("images", b"[" * DEPTH + b"]" * DEPTH),
    "brackets_in_an_ignored_key": body_with("colour", b"[" * DEPTH + b"]" * DEPTH),
    "braces_in_an_ignored_key": body_with("colour", b'{"a":' * DEPTH + b"1" + b"}" * DEPTH),
    "high_surrogate": body_with("title", rb'"\ud800"'),
    "low_surrogate": body_with("title", rb'"\udc00"'),
    "high_surrogate_before_text": body_with("content", rb'"\ud83dabc"'),
    "high_surrogate_before_an_escape": body_with("content", rb'"\ud83d\u0041"'),
    "two_high_surrogates": body_with("category", rb'"\ud83d\ud83d"'),
    "surrogates_in_the_wrong_order": body_with("region", rb'"\ude00\ud83d"'),
    "surrogate_in_an_image": body_with("images", rb'["https://a.example/\ud800"]'),
    "surrogate_in_an_ignored_key": b'{"title": "a", "content": "b", "\\ud800": 1}',
    "surrogate_in_an_ignored_value": body_with("colour", rb'["\udfff"]'),
    "raw_surrogate": body_with("title", b'"\xed\xa0\x80"'),
    "raw_pair_of_surrogates": body_with("title", b'"\xed\xa0\xbd\xed\xb8\x80"'),
    "raw_surrogate_in_an_ignored_value": body_with("colour", b'"\xed\xb0\x80"'),
    "raw_zero_byte": body_with("title", b'"a\x00b"'),
    "raw_control_character": body_with("title", b'"a\x1fb"'),
    "raw_line_end": body_with("content", b'"a\nb"'),
    "unknown_escape": body_with("title", rb'"\x41"'),
    "unfinished_escape": body_with("title", rb'"\u12"'),
    "utf_16": jsons.dumps(NEEDED).encode("utf-16"),
    "utf_16_little_endian": jsons.dumps(NEEDED).encode("utf-16-le"),
    "utf_16_big_endian": jsons.dumps(NEEDED).encode("utf-16-be"),
    "utf_32": jsons.dumps(NEEDED).encode("utf-32"),
    "latin_1": b'{"title": "caf\xe9", "content": "b"}',
    "utf_7": b"+AHs- +AH0-",
    "invalid_utf_8": body_with("title", b'"\xff"'),
    "overlong_utf_8": body_with("title", b'"\xc0\xaf"'),
    "unfinished_utf_8": body_with("title", b'"\xe4\xb8"'),
    "utf_8_beyond_unicode": body_with("title", b'"\xf4\x90\x80\x80"'),
    "invalid_utf_8_in_an_ignored_key": b'{"title": "a", "content": "b", "\xff": 1}',
    "invalid_utf_8_in_an_ignored_value": body_with("colour", b'"\xff"'),
    "invalid_utf_8_deep_in_an_ignored_value": body_with("colour", b'[{"a": ["\xff"]}]'),
    "invalid_utf_8_in_a_key_of_an_ignored_value": body_with("colour", b'{"\xff": 1}'),
    "invalid_utf_8_behind_the_object": jsons.dumps(NEEDED).encode() + b"\xff",
    "trailing_text": jsons.dumps(NEEDED).encode() + b" x",
    "trailing_zero_byte": jsons.dumps(NEEDED).encode() + b"\x00",
    "two_objects": jsons.dumps(NEEDED).encode() * 2,
    "two_lines_of_objects": jsons.dumps(NEEDED).encode() + b"\n{}",
    "list": b"[]",
    "list_of_an_object": jsons.dumps([NEEDED]).encode(),
    "text": b'"title"',
    "number": b"5",
    "zero": b"0",
    "true": b"true",
    "null": b"null",
    "infinity_alone": b"Infinity",
}

NO_NUMBERS: list[object] = [True, False, "5", "0.1", "", "NaN", [], [5], {}, {"a": 5}]
NO_TEXTS: list[object] = [5, 0, 0.5, True, False, [], ["a"], {}, {"a": "b"}]
NO_WORDS: list[object] = ["", "Product", "FIXED", "car", " product", 1, True, False, ["product"], {}]
NO_FLAGS: list[object] = [0, 1, 0.0, 1.0, "true", "false", "", [], {}]
NO_IMAGES: list[object] = ["https://a.example", 5, True, {}, {"0": "a"}, [5], [None], [True], [[]], [{}], [""]]

WRONG_VALUES: list[tuple[str, object]] = [
    *((name, value) for name in NUMBERS for value in NO_NUMBERS),
    *((name, value) for name in TEXTS for value in NO_TEXTS),
    *((name, value) for name in ("type", "price_type") for value in NO_WORDS),
    *(("is_active", value) for value in NO_FLAGS),
    *(("images", value) for value in NO_IMAGES),
    *(("images", [f"https://a.example/{character}"]) for character in (" ", "\0", "\t", "\x7f", "\\", "\u2028")),
    *(("images", [address]) for address in ("javascript:alert(1)", "https://", "https://user@a.example")),
    ("price", -0.01),
    ("price", -1e-3),
    ("price", 1_000_000_000),
    ("price", 999_999_999.991),
    ("price", 10**300),
    ("price", 1e300),
    ("price", 0.001),
    ("latitude", 90.000001),
    ("latitude", -91),
    ("latitude", 10**300),
    ("longitude", 180.000001),
    ("longitude", -1e300),
    ("title", "x" * 256),
    ("title", "😀" * 256),
    ("title", " "),
    ("title", None),
    ("content", "x" * 100_001),
    ("content", "\u3000\n"),
    ("content", None),
    ("category", "x" * 101),
    ("region", "x" * 101),
    ("district", "x" * 101),
    ("location", "x" * 256),
    ("images", ["1.jpg"] * 51),
    ("images", ["x" * 2049]),
]


class Sender:
    """Sends one body as a create and as both updates of a listing of its own, and looks at what became of it."""

    def __init__(self, harness: Harness) -> None:
        self._house = harness
        self._key = harness.person("alice").key
        self._path = harness.fetch("POST", LISTINGS, key=self._key, json=NEEDED).headers["location"]
        self._before = self._look()

    def send(self, body: bytes, headers: dict[str, str] | None = None) -> list[Reply]:
        """The answers to POST, PUT and PATCH."""
        targets = (("POST", LISTINGS), ("PUT", self._path), ("PATCH", self._path))
        return [self._house.fetch(method, path, key=self._key, body=body, headers=headers) for method, path in targets]

    def read(self) -> dict[str, object]:
        """The record as it is now."""
        record: dict[str, object] = self._house.fetch("GET", self._path, key=self._key).json()
        return record

    def changed_nothing(self) -> bool:
        return self._look() == self._before

    def _look(self) -> list[object]:
        return [self._house.fetch("GET", LISTINGS, key=self._key).json(), self.read()]


@pytest.fixture(scope="module")
def premises(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """One house for all senders, since there are hundreds."""
    with Harness(tmp_path_factory.mktemp("premises")) as harness:
        yield harness


@pytest.fixture
def sender(premises: Harness) -> Sender:
    return Sender(premises)


def sentence_of(reply: Reply, code: str) -> str:
    """The one clear sentence of a refusal: plain words of ours, of a bearable length."""
    assert (reply.status, reply.headers["x-error-code"]) == (400, code), reply.body
    content = reply.json()
    assert list(content) == ["error"]
    sentence: str = content["error"]
    assert re.fullmatch(r"[A-Za-z][^\n`$]{10,300}", sentence), sentence
    return sentence


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_no_json_object_is_refused_and_nothing_is_stored_or_changed(sender: Sender, body: bytes) -> None:
    sentences = {sentence_of(reply, "malformed_json") for reply in sender.send(body)}
    assert len(sentences) == 1
    assert sentences.pop().startswith("The body ")
    assert sender.changed_nothing()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "is empty"),
        ("nan", "is not valid JSON"),
        ("trailing_text", "is not valid JSON"),
        ("utf_16", "is not valid"),
        ("invalid_utf_8", "is not valid UTF-8"),
        ("invalid_utf_8_deep_in_an_ignored_value", "is not valid UTF-8"),
        ("raw_surrogate", "is not valid UTF-8"),
        ("high_surrogate", "surrogate"),
        ("low_surrogate", "surrogate"),
        ("unclosed_braces", "is nested too deeply"),
        ("brackets_in_an_ignored_key", "is nested too deeply"),
        ("too_large_a_number", "number that is out of range"),
        ("number_of_5000_digits", "number that is out of range"),
        ("list", "must be a JSON object"),
        ("text", "must be a JSON object"),
        ("null", "must be a JSON object, got null"),
    ],
)
def test_the_sentence_tells_what_is_wrong_with_the_body(sender: Sender, kind: str, words: str) -> None:
    for reply in sender.send(MALFORMED[kind]):
        assert words in sentence_of(reply, "malformed_json")


@pytest.mark.parametrize(("name", "value"), WRONG_VALUES)
def test_a_wrong_value_is_refused_by_the_fields_name_and_nothing_is_stored_or_changed(
    sender: Sender, name: str, value: object
) -> None:
    for reply in sender.send(jsons.dumps({**NEEDED, name: value}).encode()):
        assert sentence_of(reply, "invalid_request").startswith(name)
    assert sender.changed_nothing()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("text", [r"\u0000", r"a\u0000", r"\u0000a", r"a\u0000b"])
def test_the_character_u0000_is_refused_in_every_text(sender: Sender, name: str, text: str) -> None:
    for reply in sender.send(body_with(name, f'"{text}"'.encode())):
        assert sentence_of(reply, "invalid_request") == f"{name} must not contain the character U+0000"
    assert sender.changed_nothing()


@pytest.mark.parametrize("digits", [20, 39, 300, 309, 400])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("sign", [b"", b"-"])
def test_a_long_whole_number_is_refused(sender: Sender, name: str, sign: bytes, digits: int) -> None:
    for reply in sender.send(body_with(name, sign + b"9" * digits)):
        assert (reply.status, list(reply.json())) == (400, ["error"])
        assert len(reply.json()["error"]) < 200
    assert sender.changed_nothing()


# What is not as bad as it looks


@pytest.mark.decision("G20")
def test_a_byte_order_mark_is_skipped(sender: Sender) -> None:
    body = codecs.BOM_UTF8 + '{"title": "Straße", "content": "b"}'.encode()
    assert [reply.status for reply in sender.send(body)] == [201, 200, 200]
    assert sender.read()["title"] == "Straße"


@pytest.mark.parametrize("around", [b" ", b"\n", b"\r\n\t "])
def test_white_space_around_the_object_is_skipped(sender: Sender, around: bytes) -> None:
    body = around + jsons.dumps(NEEDED).encode() + around
    assert [reply.status for reply in sender.send(body)] == [201, 200, 200]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\uD83D\uDE00"', "😀"),
        (rb'"\u00e9"', "é"),
        (rb'"\/"', "/"),
        (rb'"\\ud800"', "\\ud800"),
        (rb'"\ufeff\uffff"', "\ufeff\uffff"),
        (b'"\xf4\x8f\xbf\xbf"', "\U0010ffff"),
    ],
)
def test_sound_escapes_and_characters_are_taken(sender: Sender, sent: bytes, kept: str) -> None:
    assert [reply.status for reply in sender.send(body_with("title", sent))] == [201, 200, 200]
    assert sender.read()["title"] == kept


@pytest.mark.parametrize("value", [b"-0", b"0e5", b"1e-400", b"0." + b"0" * 5000, b"5." + b"0" * 5000, b"5000E-3"])
def test_sound_numbers_of_any_form_are_taken(sender: Sender, value: bytes) -> None:
    assert [reply.status for reply in sender.send(body_with("price", value))] == [201, 200, 200]


@pytest.mark.parametrize("value", [b"[" * 100 + b"]" * 100, b"9" * 300, b'"\\u0000"', b"null", b'{"a": {"a": [1.5]}}'])
def test_what_an_ignored_key_holds_may_be_any_json(sender: Sender, value: bytes) -> None:
    replies = sender.send(body_with("colour", value))
    assert [reply.status for reply in replies] == [201, 200, 200]
    assert {reply.headers["x-ignored-fields"] for reply in replies} == {"colour"}


# Bodies that are large, compressed or end early


def padded(size: int) -> bytes:
    """A sound body of exactly this many bytes."""
    body = body_with("colour", b'""')
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


def in_chunks(body: bytes) -> Iterator[bytes]:
    yield from (body[start : start + 65_536] for start in range(0, len(body), 65_536))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_a_body_of_exactly_two_mebibytes_is_read(alice: Client, method: str, *, chunked: bool) -> None:
    path = "" if method == "POST" else f"/{alice.create()}"
    body = padded(MAX_BODY_BYTES)
    response = alice.request(method, path, content=in_chunks(body) if chunked else body)
    assert (len(body), response.status_code) == (MAX_BODY_BYTES, 201 if method == "POST" else 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 3 * MAX_BODY_BYTES])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_a_larger_body_is_refused_with_413(alice: Client, method: str, size: int, *, chunked: bool) -> None:
    listing = alice.create()
    before = alice.get().json()
    body = padded(size)
    path = "" if method == "POST" else f"/{listing}"
    response = alice.request(method, path, content=in_chunks(body) if chunked else body)
    assert (response.status_code, response.headers["X-Error-Code"]) == (413, "body_too_large")
    assert list(response.json()) == ["error"]
    assert alice.get().json() == before


@pytest.mark.parametrize("key", ["none", "wrong", "right"])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_a_refusal_can_be_read_although_the_body_is_still_arriving(
    http: httpx.Client, cast: Cast, key: str, *, chunked: bool
) -> None:
    body = padded(16 * MAX_BODY_BYTES)
    headers = {"Connection": "close"} | {
        "none": {},
        "wrong": {"X-API-Key": "x"},
        "right": {"X-API-Key": cast.alice.key},
    }[key]
    response = http.post(LISTINGS, content=in_chunks(body) if chunked else body, headers=headers)
    assert response.status_code == (413 if key == "right" else 401)


@pytest.mark.decision("G20")
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, identity", "x"])
def test_an_encoded_body_is_refused_with_415(sender: Sender, encoding: str) -> None:
    for reply in sender.send(jsons.dumps(NEEDED).encode(), {"Content-Encoding": encoding}):
        assert (reply.status, reply.headers["x-error-code"]) == (415, "unsupported_encoding")
        assert list(reply.json()) == ["error"]
    assert sender.changed_nothing()


def test_a_body_that_really_is_compressed_is_refused_over_http(alice: Client) -> None:
    body = gzip.compress(jsons.dumps(NEEDED).encode())
    response = alice.post(content=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
    assert (response.status_code, response.headers["X-Error-Code"]) == (415, "unsupported_encoding")
    assert alice.get().json() == {"listings": []}


@pytest.mark.parametrize("kind", ["nan", "unclosed_brackets", "number_of_a_million_digits", "raw_surrogate", "utf_16"])
def test_a_malformed_body_is_refused_over_http(alice: Client, kind: str) -> None:
    response = alice.post(content=MALFORMED[kind], headers={"Content-Type": "application/json"})
    assert (response.status_code, response.headers["X-Error-Code"]) == (400, "malformed_json")
    assert alice.get().json() == {"listings": []}


def test_an_encoding_that_stands_before_identity_in_a_header_of_its_own_is_refused_too(
    http: httpx.Client, cast: Cast
) -> None:
    headers = [("X-API-Key", cast.alice.key), ("Content-Encoding", "gzip"), ("Content-Encoding", "identity")]
    assert http.post(LISTINGS, content=jsons.dumps(NEEDED).encode(), headers=headers).status_code == 415


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_an_encoding_of_identity_is_none(sender: Sender, encoding: str) -> None:
    replies = sender.send(jsons.dumps(NEEDED).encode(), {"Content-Encoding": encoding})
    assert [reply.status for reply in replies] == [201, 200, 200]


@pytest.mark.parametrize(
    "chunks", [[b""], [b'{"title": "a",'], [jsons.dumps(NEEDED).encode()], [b"{", b'"title": "a"}']]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_body_that_ends_early_is_not_answered_and_writes_nothing(
    harness: Harness, method: str, chunks: list[bytes]
) -> None:
    alice = harness.cast().alice
    made = harness.fetch("POST", LISTINGS, key=alice.key, json=NEEDED).headers["location"]
    before = [harness.fetch("GET", path, key=alice.key).body for path in (LISTINGS, made)]
    path = LISTINGS if method == "POST" else made
    headers = [(b"x-api-key", alice.key.encode()), (b"content-length", b"1000")]
    reply = harness.run(fetch(harness.application, method, path, headers, chunks, complete=False))
    assert reply.status == 0
    assert [harness.fetch("GET", path, key=alice.key).body for path in (LISTINGS, made)] == before


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 1000\r\n\r\n%b", b"Transfer-Encoding: chunked\r\n\r\n26\r\n%b\r\n"]
)
def test_a_client_that_leaves_before_its_body_is_complete_has_written_nothing(
    alice: Client, running: RunningService, framing: bytes
) -> None:
    body = b'{"title": "Bicycle", "content": "Two"}'
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %b\r\n" % (LISTINGS.encode(), alice.person.key.encode())
    host, port = running.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(head + framing % body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    assert alice.get().json() == {"listings": []}


@pytest.mark.parametrize("length", [b"0" * 5000 + b"2", b"0" * 30 + b"2"])
def test_a_content_length_with_many_zeros_in_front_is_no_fault_of_ours(harness: Harness, length: bytes) -> None:
    headers = [(b"x-api-key", harness.cast().alice.key.encode()), (b"content-length", length)]
    reply = harness.run(fetch(harness.application, "POST", LISTINGS, headers, [b"{}"]))
    assert reply.status == 400
