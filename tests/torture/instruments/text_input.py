"""JSON and text: invalid JSON is rejected, valid text is stored unchanged, and nothing makes the service fail."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import normalize
from urllib.parse import quote

import msgspec

from listings.domain import fields, listing_json
from listings.domain.model import Listing
from listings.service.transfer import file_formats
from tests.harness import Harness, Person, Reply
from tests.postgres_server import PostgresServer
from tests.torture.input_samples import MAX_LENGTHS, build_json_cases, build_naughty_strings, is_allowed
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.spreadsheet import FORMULAS, check_csv

PATH = "/api/v1/listings"
_MIN_CASES, _MIN_STRINGS = 250, 400
_GOOD = {"title": "Lamp", "content": "Bright."}
_TEMPLATES = (  # with a value in different positions
    b'{"title": "t", "content": "c", "x": %b}',
    b'{"x": %b, "title": "t", "content": "c"}',
    b'{"title": "t", "content": "c", "x": [%b]}',
)


class InputRun:
    """Sends input to an application and collects the failures."""

    def __init__(self, harness: Harness) -> None:
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()
        self._harness = harness
        self._alice: Person = harness.person("alice")

    def try_json(self, cases: Mapping[str, bytes]) -> None:
        """Send each text as a value in a create, and the invalid ones as a body as well."""
        for number, (name, text) in enumerate(cases.items()):
            self.counts["JSON texts"] += 1
            kind, template = name[0], _TEMPLATES[number % len(_TEMPLATES)]
            reply = self._post(template.replace(b"%b", text), name)
            expected = {"y": {201}, "n": {400}, "i": {201, 400}}[kind]
            if kind == "n" and text == b"" and template is _TEMPLATES[2]:
                continue  # the array is [], which is valid
            self._expect(name, reply, expected)
            if kind == "n":
                self._expect(f"{name} alone", self._post(text, name), {400})

    def try_strings(self, texts: Sequence[str]) -> None:
        """Use each string in every text field, as an image URL, as a field name, and as a search term."""
        for number, text in enumerate(texts):
            self.counts["strings"] += 1
            as_ascii = number % 2 == 0 or not _is_encodable(text)
            if all(is_allowed(field, text) for field in MAX_LENGTHS):
                self._check_round_trip(dict.fromkeys(MAX_LENGTHS, text), text, as_ascii=as_ascii)
            else:
                for field in MAX_LENGTHS:
                    self._check_round_trip(_GOOD | {field: text}, text, field, as_ascii=as_ascii)
            self._try_image(text)
            self._try_name(text)
            if _is_encodable(text) and len(text) <= max(MAX_LENGTHS["title"], 1000):
                self._expect(
                    f"search for {text[:40]!r}",
                    self._fetch("GET", f"{PATH}?limit=2&q={quote(text, safe='')}"),
                    {200, 400},
                )

    def check_export(self) -> None:
        """Create listings with formulas, and check the export of all listings."""
        for text in FORMULAS:
            self._check_round_trip(dict.fromkeys(MAX_LENGTHS, text), text, as_ascii=True)
        listings = self._harness.run(self._read_listings())
        self.counts["CSV cells"], failures = check_csv(listings)
        self.failures += failures

    async def _read_listings(self) -> list[Listing]:
        pages = self._harness.services.transfer.read_pages(self._alice.account)
        return [listing async for page in pages for listing in page]

    def _check_round_trip(self, sent: dict[str, str], text: str, field: str = "", *, as_ascii: bool) -> None:
        """Check that the service rejects the text or returns it unchanged."""
        name = f"{text[:40]!r} in {field or 'all fields'}"
        reply = self._post(_encode(sent, as_ascii=as_ascii), name)
        expected = {True: {201}, False: {400}, None: {201, 400}}[is_allowed(field, text) if field else True]
        if self._expect(name, reply, expected) and reply.status == HTTPStatus.CREATED:
            self._check_stored(name, reply, sent)

    def _try_image(self, text: str) -> None:
        sent: dict[str, Any] = _GOOD | {"images": [text]}
        name = f"{text[:40]!r} as an image"
        reply = self._post(_encode(sent, as_ascii=not _is_encodable(text)), name)
        if self._expect(name, reply, {201, 400}) and reply.status == HTTPStatus.CREATED:
            self._check_stored(name, reply, sent)

    def _try_name(self, text: str) -> None:
        if text in fields.FIELDS:
            return
        name = f"{text[:40]!r} as a name"
        reply = self._post(_encode(_GOOD | {text: "x"}, as_ascii=not _is_encodable(text)), name)
        self._expect(name, reply, {201} if _is_encodable(text) else {201, 400})
        ignored = reply.headers.get("x-ignored-fields", "")
        if not (ignored.isascii() and ignored.isprintable()):
            self.failures.append(f"{name}: X-Ignored-Fields is {ignored!r}")

    def _check_stored(self, name: str, reply: Reply, sent: Mapping[str, Any]) -> None:
        address = reply.headers["location"]
        for path in (f"{address}?include=district", f"{PATH}?limit=1&sort=-id&include=district"):
            stored = self._fetch("GET", path)
            if not self._expect(f"{name}, read", stored, {200}):
                continue
            record = json.loads(stored.body)  # a strict check of the bytes
            record = record["listings"][0] if "listings" in record else record
            changed = [field for field, value in sent.items() if record[field] != value]
            if changed:
                self.failures.append(f"{name}: {changed} was returned as {record[changed[0]]!r:.60}")
            self.counts["values read back"] += len(sent)

    def _post(self, body: bytes, name: str) -> Reply:
        return self._fetch("POST", PATH, body, name)

    def _fetch(self, method: str, path: str, body: bytes = b"", name: str = "") -> Reply:
        self.counts["requests"] += 1
        headers = {"Content-Length": "0"} if method == "POST" and not body else {}
        try:
            return self._harness.fetch(method, path, key=self._alice.key, body=body, headers=headers)
        except Exception as error:  # noqa: BLE001 - reported as a failure
            self.failures.append(f"{name or path}: {error!r:.200}")
            return Reply(0, {}, b"{}")

    def _expect(self, name: str, reply: Reply, expected: set[int]) -> bool:
        if reply.status not in expected:
            self.failures.append(f"{name}: returned {reply.status} {reply.body[:80]!r}")
        return reply.status in expected


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _encode(content: object, *, as_ascii: bool) -> bytes:
    return json.dumps(content, ensure_ascii=as_ascii).encode()


def work(folder: Path, fraction: float, database: str | None = None) -> InputRun:
    """Run all input, or a random sample; `database` is a URL."""
    folder.mkdir()
    flags = {"database": database} if database is not None else {}
    with Harness(folder, rate_limit="0", **flags) as harness:
        input_run = InputRun(harness)
        input_run.try_json(dict(_sample(list(build_json_cases().items()), fraction)))
        input_run.try_strings(_sample(build_naughty_strings(), fraction))
        input_run.check_export()
        return input_run


def _sample(items: "list[Any]", fraction: float) -> "list[Any]":
    return items if fraction >= 1 else Random(1).sample(items, round(len(items) * fraction))


def run(scale: Scale) -> Outcome:
    """Run all input on SQLite, and in the short form a sample on PostgreSQL."""
    on_sqlite = work(scale.folder / "sqlite", 1.0)
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(PostgresServer()).database())
        on_postgres = work(scale.folder / "postgres", scale.fraction, url)
    failures = [f"SQLite: {failure}" for failure in on_sqlite.failures] + [
        f"PostgreSQL: {it}" for it in on_postgres.failures
    ]
    both = (("SQLite", on_sqlite), ("PostgreSQL", on_postgres))
    summary = "; ".join(f"{name}: " + ", ".join(f"{n:,} {what}" for what, n in it.counts.items()) for name, it in both)
    counts = on_postgres.counts
    items = counts["JSON texts"] >= _MIN_CASES and counts["strings"] >= _MIN_STRINGS
    return Outcome(summary, failures, items)


def control(scale: Scale) -> Outcome:
    """Use Python's JSON parser, which is more lenient, a normalization of text, and a simple escape of formulas."""
    failures = []
    for broken in (lenient_json, normalized_text, simple_escape):
        with broken():
            stored = work(scale.folder / broken.__name__, 0.25).failures
        if not stored:
            return Outcome(f"{broken.__name__} was not found")
        failures += [f"{broken.__name__}: {failure}" for failure in stored]
    return Outcome("lenient JSON parser, normalized text, simple escape of formulas", failures)


@contextmanager
def lenient_json() -> Iterator[None]:
    """Replace invalid UTF-8, and accept NaN and control characters in strings."""
    with _replaced(listing_json, "_decode", _decode_leniently):
        yield


def _decode_leniently(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    return content if isinstance(content, dict) else {}


@contextmanager
def normalized_text() -> Iterator[None]:
    """Strip text, and convert it to Unicode's composed form."""
    original = listing_json._decode  # noqa: SLF001 - never compiled, so that it can be replaced

    def decode(body: bytes) -> dict[str, Any]:
        return {name: _normalize(value) for name, value in original(body).items()}

    with _replaced(listing_json, "_decode", decode):
        yield


def _normalize(value: object) -> object:
    return normalize("NFC", value).strip() if isinstance(value, str) else value


@contextmanager
def simple_escape() -> Iterator[None]:
    """Escape only cells that begin with an ASCII sign."""

    def escape(text: str) -> str:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text

    with _replaced(file_formats, "escape_formula", escape):
        yield


@contextmanager
def _replaced(owner: Any, name: str, other: Callable[..., object]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, original)


INSTRUMENT = Instrument(
    8,
    "JSON and text in every field, and in CSV",
    "250 JSON texts and 400 strings on each engine: 0 wrongly accepted, no 5xx, the same bytes returned,"
    " no formula in an export, every value read again",
    0.5,
    run,
    control,
    short_fraction=0.1,
)
