"""Rejected bodies: 400, 413 or 415 with one clear sentence, and nothing stored (decisions G2-G5, G20).

tests/domain/test_fields.py covers the rules of the fields; here is one value for each rule.
"""

import codecs
import json
import re
from collections.abc import Iterator

import httpx2
import pytest

from tests.api.helpers import LISTINGS, REQUIRED, assert_error, get_outcome, get_state
from tests.conftest import Client
from tests.harness import Cast, Harness, Reply, RunningService, fetch
from tests.http.raw import Connection, request

MAX_BODY_BYTES = 2 * 1024 * 1024
NESTING_DEPTH = 100_000


def build_body(name: str, value: bytes) -> bytes:
    """Return a valid body but for one field, whose value need not be JSON."""
    others = json.dumps({key: text for key, text in REQUIRED.items() if key != name}).encode()
    return others[:-1] + (b", " if len(others) > 2 else b"") + json.dumps(name).encode() + b": " + value + b"}"


MALFORMED = {
    "empty": b"",
    "white_space": b" \r\n\t",
    "byte_order_mark_only": codecs.BOM_UTF8,
    "two_byte_order_marks": codecs.BOM_UTF8 * 2 + b"{}",
    "one_brace": b"{",
    "no_colon": b'{"title"}',
    "no_value": b'{"title":}',
    "unterminated_string": b'{"title": "a',
    "unterminated_object": b'{"title": "a", "content": "b"',
    "trailing_comma": b'{"title": "a", "content": "b",}',
    "comment": b'{"title": "a", "content": "b" /* c */}',
    "single_quotes": b"{'title': 'a', 'content': 'b'}",
    "unquoted_key": b'{title: "a", "content": "b"}',
    "number_as_key": b'{1: "a"}',
    "python_literal": b'{"title": None}',
    "form": b"title=a&content=b",
    "xml": b"<title>a</title>",
    "leading_zero": build_body("price", b"01"),
    "plus_sign": build_body("price", b"+1"),
    "no_digit_after_the_point": build_body("price", b"1."),
    "no_digit_before_the_point": build_body("price", b".5"),
    "hexadecimal": build_body("price", b"0x10"),
    "nan": build_body("price", b"NaN"),
    "infinity": build_body("price", b"Infinity"),
    "minus_infinity": build_body("price", b"-Infinity"),
    "lower_case_nan": build_body("latitude", b"nan"),
    "nan_in_an_ignored_field": build_body("colour", b"NaN"),
    "nested_infinity_in_an_ignored_field": build_body("colour", b'[1, {"a": Infinity}]'),
    "number_too_large": build_body("price", b"1e999"),
    "number_too_small": build_body("longitude", b"-1e999"),
    "number_too_large_in_an_ignored_field": build_body("colour", b"1e999"),
    "number_of_5000_digits": build_body("price", b"9" * 5000),
    "negative_number_of_5000_digits": build_body("latitude", b"-" + b"9" * 5000),
    "number_of_5000_digits_in_an_ignored_field": build_body("colour", b"9" * 5000),
    "number_of_a_million_digits": build_body("price", b"9" * 1_000_000),
    "exponent_of_5000_digits": build_body("price", b"1e" + b"9" * 5000),
    "unclosed_brackets": b"[" * NESTING_DEPTH,
    "unclosed_braces": b'{"a":' * NESTING_DEPTH,
    "brackets_in_a_field": build_body("images", b"[" * NESTING_DEPTH + b"]" * NESTING_DEPTH),
    "brackets_in_an_ignored_field": build_body("colour", b"[" * NESTING_DEPTH + b"]" * NESTING_DEPTH),
    "braces_in_an_ignored_field": build_body("colour", b'{"a":' * NESTING_DEPTH + b"1" + b"}" * NESTING_DEPTH),
    "high_surrogate": build_body("title", rb'"\ud800"'),
    "low_surrogate": build_body("title", rb'"\udc00"'),
    "high_surrogate_before_a_letter": build_body("content", rb'"\ud83dabc"'),
    "high_surrogate_before_an_escape": build_body("content", rb'"\ud83d\u0041"'),
    "two_high_surrogates": build_body("category", rb'"\ud83d\ud83d"'),
    "surrogates_in_the_wrong_order": build_body("region", rb'"\ude00\ud83d"'),
    "surrogate_in_an_image": build_body("images", rb'["https://a.example/\ud800"]'),
    "surrogate_in_an_ignored_name": b'{"title": "a", "content": "b", "\\ud800": 1}',
    "surrogate_in_an_ignored_value": build_body("colour", rb'["\udfff"]'),
    "raw_surrogate": build_body("title", b'"\xed\xa0\x80"'),
    "raw_surrogate_pair": build_body("title", b'"\xed\xa0\xbd\xed\xb8\x80"'),
    "raw_surrogate_in_an_ignored_value": build_body("colour", b'"\xed\xb0\x80"'),
    "raw_nul": build_body("title", b'"a\x00b"'),
    "raw_control_character": build_body("title", b'"a\x1fb"'),
    "raw_line_break": build_body("content", b'"a\nb"'),
    "unknown_escape": build_body("title", rb'"\x41"'),
    "truncated_escape": build_body("title", rb'"\u12"'),
    "utf_16": json.dumps(REQUIRED).encode("utf-16"),
    "utf_16_little_endian": json.dumps(REQUIRED).encode("utf-16-le"),
    "utf_16_big_endian": json.dumps(REQUIRED).encode("utf-16-be"),
    "utf_32": json.dumps(REQUIRED).encode("utf-32"),
    "latin_1": b'{"title": "caf\xe9", "content": "b"}',
    "utf_7": b"+AHs- +AH0-",
    "invalid_utf_8": build_body("title", b'"\xff"'),
    "overlong_utf_8": build_body("title", b'"\xc0\xaf"'),
    "truncated_utf_8": build_body("title", b'"\xe4\xb8"'),
    "utf_8_beyond_unicode": build_body("title", b'"\xf4\x90\x80\x80"'),
    "invalid_utf_8_in_an_ignored_name": b'{"title": "a", "content": "b", "\xff": 1}',
    "invalid_utf_8_in_an_ignored_value": build_body("colour", b'"\xff"'),
    "nested_invalid_utf_8_in_an_ignored_value": build_body("colour", b'[{"a": ["\xff"]}]'),
    "invalid_utf_8_in_a_name_of_an_ignored_value": build_body("colour", b'{"\xff": 1}'),
    "invalid_utf_8_after_the_object": json.dumps(REQUIRED).encode() + b"\xff",
    "trailing_text": json.dumps(REQUIRED).encode() + b" x",
    "trailing_nul": json.dumps(REQUIRED).encode() + b"\x00",
    "two_objects": json.dumps(REQUIRED).encode() * 2,
    "two_lines_of_objects": json.dumps(REQUIRED).encode() + b"\n{}",
    "array": b"[]",
    "array_of_an_object": json.dumps([REQUIRED]).encode(),
    "string": b'"title"',
    "number": b"5",
    "zero": b"0",
    "true": b"true",
    "null": b"null",
    "bare_infinity": b"Infinity",
}

INVALID_FIELDS: list[tuple[str, object]] = [  # each rule is tested in tests/domain
    ("price", 999_999_999.991),
    ("title", " "),
    ("content", "a\0b"),
    ("images", ["javascript:alert(1)"]),
]


class Sender:
    """Sends one body as a create and as both updates of a listing, and tells whether anything has changed."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._key = harness.person("alice").key
        self._path = harness.fetch("POST", LISTINGS, key=self._key, json=REQUIRED).headers["location"]
        self._before = self._get_state()

    def send(self, body: bytes, headers: dict[str, str] | None = None) -> list[Reply]:
        """Return the responses to POST, PUT and PATCH."""
        targets = (("POST", LISTINGS), ("PUT", self._path), ("PATCH", self._path))
        return [
            self._harness.fetch(method, path, key=self._key, body=body, headers=headers) for method, path in targets
        ]

    def read(self) -> dict[str, object]:
        record: dict[str, object] = self._harness.fetch("GET", self._path, key=self._key).json()
        return record

    def has_changed_nothing(self) -> bool:
        return self._get_state() == self._before

    def _get_state(self) -> list[object]:
        return [self._harness.fetch("GET", LISTINGS, key=self._key).json(), self.read()]


@pytest.fixture(scope="module")
def shared_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """One service for all senders: there are hundreds of them."""
    with Harness(tmp_path_factory.mktemp("shared")) as harness:
        yield harness


@pytest.fixture
def sender(shared_harness: Harness) -> Sender:
    return Sender(shared_harness)


def get_message(reply: Reply, code: str) -> str:
    """Return the error message, which must be one plain sentence of moderate length."""
    assert (reply.status, reply.headers["x-error-code"]) == (400, code), reply.body
    content = reply.json()
    assert list(content) == ["error"]
    message: str = content["error"]
    assert re.fullmatch(r"[A-Za-z][^\n`$]{10,300}", message), message
    return message


def test_a_malformed_body_is_rejected_and_nothing_is_stored(sender: Sender) -> None:
    for name, body in MALFORMED.items():
        messages = {get_message(reply, "malformed_json") for reply in sender.send(body)}
        assert (len(messages), messages.pop().startswith("The body ")) == (1, True), name
        assert sender.has_changed_nothing(), name


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("empty", "is empty"),
        ("nan", "is not valid JSON"),
        ("trailing_text", "is not valid JSON"),
        ("utf_16", "is not valid"),
        ("invalid_utf_8", "is not valid UTF-8"),
        ("nested_invalid_utf_8_in_an_ignored_value", "is not valid UTF-8"),
        ("raw_surrogate", "is not valid UTF-8"),
        ("high_surrogate", "surrogate"),
        ("low_surrogate", "surrogate"),
        ("unclosed_braces", "is nested too deeply"),
        ("brackets_in_an_ignored_field", "is nested too deeply"),
        ("number_too_large", "number that is out of range"),
        ("number_of_5000_digits", "number that is out of range"),
        ("array", "must be a JSON object"),
        ("string", "must be a JSON object"),
        ("null", "must be a JSON object, got null"),
    ],
)
def test_the_message_says_how_the_body_is_malformed(sender: Sender, kind: str, part: str) -> None:
    for reply in sender.send(MALFORMED[kind]):
        assert part in get_message(reply, "malformed_json")


@pytest.mark.decision("G18")
@pytest.mark.parametrize(("name", "value"), INVALID_FIELDS)
def test_an_invalid_field_is_rejected_by_name_and_nothing_is_stored(sender: Sender, name: str, value: object) -> None:
    for reply in sender.send(json.dumps({**REQUIRED, name: value}).encode()):
        assert get_message(reply, "invalid_request").startswith(name)
    assert sender.has_changed_nothing()


@pytest.mark.parametrize(("name", "sign"), [("price", b""), ("longitude", b"-")])
def test_a_long_integer_is_rejected(sender: Sender, name: str, sign: bytes) -> None:
    for digits in (20, 39, 300, 309, 400):
        for reply in sender.send(build_body(name, sign + b"9" * digits)):
            assert (reply.status, list(reply.json())) == (400, ["error"]), digits
            assert len(reply.json()["error"]) < 200
    assert sender.has_changed_nothing()


@pytest.mark.decision("G20")
def test_a_byte_order_mark_is_skipped(sender: Sender) -> None:
    body = codecs.BOM_UTF8 + '{"title": "Straße", "content": "b"}'.encode()
    assert [reply.status for reply in sender.send(body)] == [201, 200, 200]
    assert sender.read()["title"] == "Straße"


@pytest.mark.parametrize("space", [b" ", b"\n", b"\r\n\t "])
def test_white_space_around_the_object_is_skipped(sender: Sender, space: bytes) -> None:
    body = space + json.dumps(REQUIRED).encode() + space
    assert [reply.status for reply in sender.send(body)] == [201, 200, 200]


@pytest.mark.parametrize(
    ("sent", "stored"),
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
def test_valid_escapes_and_characters_are_accepted(sender: Sender, sent: bytes, stored: str) -> None:
    assert [reply.status for reply in sender.send(build_body("title", sent))] == [201, 200, 200]
    assert sender.read()["title"] == stored


@pytest.mark.parametrize("value", [b"-0", b"0e5", b"1e-400", b"0." + b"0" * 5000, b"5." + b"0" * 5000, b"5000E-3"])
def test_valid_numbers_of_any_form_are_accepted(sender: Sender, value: bytes) -> None:
    assert [reply.status for reply in sender.send(build_body("price", value))] == [201, 200, 200]


@pytest.mark.parametrize("value", [b"[" * 100 + b"]" * 100, b"9" * 300, b'"\\u0000"', b"null", b'{"a": {"a": [1.5]}}'])
def test_an_ignored_field_may_have_any_value(sender: Sender, value: bytes) -> None:
    replies = sender.send(build_body("colour", value))
    assert [reply.status for reply in replies] == [201, 200, 200]
    assert {reply.headers["x-ignored-fields"] for reply in replies} == {"colour"}


def build_body_of_size(size: int) -> bytes:
    """Return a valid body of `size` bytes."""
    body = build_body("colour", b'""')
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


def split_into_chunks(body: bytes) -> Iterator[bytes]:
    yield from (body[start : start + 65_536] for start in range(0, len(body), 65_536))


with_content_length_and_chunked = pytest.mark.parametrize("chunked", [False, True], ids=["content-length", "chunked"])


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@with_content_length_and_chunked
def test_a_body_of_exactly_two_mebibytes_is_accepted(alice: Client, method: str, *, chunked: bool) -> None:
    path = "" if method == "POST" else f"/{alice.create()}"
    body = build_body_of_size(MAX_BODY_BYTES)
    response = alice.request(method, path, content=split_into_chunks(body) if chunked else body)
    assert (len(body), response.status_code) == (MAX_BODY_BYTES, 201 if method == "POST" else 200)


@pytest.mark.parametrize(("method", "size"), [("POST", MAX_BODY_BYTES + 1), ("PATCH", 3 * MAX_BODY_BYTES)])
@with_content_length_and_chunked
def test_a_larger_body_is_rejected(alice: Client, method: str, size: int, *, chunked: bool) -> None:
    listing = alice.create()
    before = alice.get().json()
    body = build_body_of_size(size)
    path = "" if method == "POST" else f"/{listing}"
    response = alice.request(method, path, content=split_into_chunks(body) if chunked else body)
    assert get_outcome(response) == (413, "body_too_large")
    assert list(response.json()) == ["error"]
    assert alice.get().json() == before


@pytest.mark.decision("G20")
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, identity", "x"])
def test_an_encoded_body_is_rejected(sender: Sender, encoding: str) -> None:
    for reply in sender.send(json.dumps(REQUIRED).encode(), {"Content-Encoding": encoding}):
        assert (reply.status, reply.headers["x-error-code"]) == (415, "unsupported_encoding")
        assert list(reply.json()) == ["error"]
    assert sender.has_changed_nothing()


def test_an_encoding_in_the_first_of_two_headers_is_rejected(http: httpx2.Client, cast: Cast) -> None:
    headers = [("X-API-Key", cast.alice.key), ("Content-Encoding", "gzip"), ("Content-Encoding", "identity")]
    assert http.post(LISTINGS, content=json.dumps(REQUIRED).encode(), headers=headers).status_code == 415


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_the_encoding_identity_is_accepted(sender: Sender, encoding: str) -> None:
    replies = sender.send(json.dumps(REQUIRED).encode(), {"Content-Encoding": encoding})
    assert [reply.status for reply in replies] == [201, 200, 200]


@pytest.mark.parametrize(
    "chunks", [[b""], [b'{"title": "a",'], [json.dumps(REQUIRED).encode()], [b"{", b'"title": "a"}']]
)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_an_incomplete_body_gets_no_response_and_stores_nothing(
    harness: Harness, method: str, chunks: list[bytes]
) -> None:
    alice = harness.cast().alice
    own = harness.fetch("POST", LISTINGS, key=alice.key, json=REQUIRED).headers["location"]
    before = [harness.fetch("GET", path, key=alice.key).body for path in (LISTINGS, own)]
    path = LISTINGS if method == "POST" else own
    headers = [(b"x-api-key", alice.key.encode()), (b"content-length", b"1000")]
    reply = harness.run(fetch(harness.application, method, path, headers, chunks, complete=False))
    assert reply.status == 0
    assert [harness.fetch("GET", path, key=alice.key).body for path in (LISTINGS, own)] == before


def get_bodyless_write(alice: Client, write: str) -> str:
    path = f"/{alice.create()}"
    if write == "DELETE":
        return path
    alice.delete(path)
    return f"{path}/restore"


@pytest.mark.decision("G20")
@pytest.mark.parametrize("write", ["DELETE", "POST"])
@with_content_length_and_chunked
def test_a_write_without_a_body_rejects_a_larger_one(alice: Client, write: str, *, chunked: bool) -> None:
    path = get_bodyless_write(alice, write)
    before = get_state(alice)
    body = bytes(MAX_BODY_BYTES + 1)
    rejected = alice.request(write, path, content=split_into_chunks(body) if chunked else body)
    assert_error(rejected, 413, "body_too_large", f"The body must be at most {MAX_BODY_BYTES} bytes")
    assert get_state(alice) == before
    body = bytes(MAX_BODY_BYTES)
    assert alice.request(write, path, content=split_into_chunks(body) if chunked else body).status_code == 200


@pytest.mark.parametrize("write", ["DELETE", "POST"])
@pytest.mark.parametrize("framing", [b"Content-Length: 3000000", b"Transfer-Encoding: chunked"])
def test_a_write_whose_ignored_body_does_not_end_has_no_effect(
    alice: Client, running: RunningService, write: str, framing: bytes
) -> None:
    path = get_bodyless_write(alice, write)
    before = get_state(alice)
    head = request(write, LISTINGS + path, alice.person.key, framing)
    size = b"" if b"Length" in framing else b"2dc6c0\r\n"
    with Connection(running).send(head, size, bytes(2_200_000)) as connection:
        assert connection.read_response().status == 413
    assert get_state(alice) == before


@pytest.mark.parametrize("length", [b"0" * 5000 + b"2", b"0" * 30 + b"2"])
def test_a_content_length_with_leading_zeros_is_not_a_server_error(harness: Harness, length: bytes) -> None:
    headers = [(b"x-api-key", harness.cast().alice.key.encode()), (b"content-length", length)]
    reply = harness.run(fetch(harness.application, "POST", LISTINGS, headers, [b"{}"]))
    assert reply.status == 400
