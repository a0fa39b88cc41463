"""JSON and text: what is no JSON is refused, what is text is kept to the byte, and nothing makes the service fail."""

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
from tests.harness import Harness, Person, Reply
from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.texts import LONGEST, json_cases, may_be, naughty_strings

PATH = "/api/v1/listings"
_LEAST_CASES, _LEAST_STRINGS = 250, 400
_GOOD = {"title": "Lamp", "content": "Bright."}
_FRAMES = (  # where a value stands
    b'{"title": "t", "content": "c", "x": %b}',
    b'{"x": %b, "title": "t", "content": "c"}',
    b'{"title": "t", "content": "c", "x": [%b]}',
)


class Trial:
    """A house, and what was wrong with it."""

    def __init__(self, harness: Harness) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._house = harness
        self._alice: Person = harness.person("alice")

    def try_json(self, cases: Mapping[str, bytes]) -> None:
        """Each as a value in a create, and those that are no JSON as a whole body, too."""
        for number, (name, text) in enumerate(cases.items()):
            self.counts["JSON texts"] += 1
            kind, frame = name[0], _FRAMES[number % len(_FRAMES)]
            reply = self._post(frame.replace(b"%b", text), name)
            wanted = {"y": {201}, "n": {400}, "i": {201, 400}}[kind]
            if kind == "n" and text == b"" and frame is _FRAMES[2]:
                continue  # [] is sound
            self._expect(name, reply, wanted)
            if kind == "n":
                self._expect(f"{name} alone", self._post(text, name), {400})

    def try_strings(self, texts: Sequence[str]) -> None:
        """Each in every field of text, as an address of an image, as a name of a field, and as words to search for."""
        for number, text in enumerate(texts):
            self.counts["strings"] += 1
            as_ascii = number % 2 == 0 or not _is_encodable(text)
            if all(may_be(field, text) for field in LONGEST):
                self._keep(dict.fromkeys(LONGEST, text), text, as_ascii=as_ascii)
            else:
                for field in LONGEST:
                    self._keep(_GOOD | {field: text}, text, field, as_ascii=as_ascii)
            self._try_image(text)
            self._try_name(text)
            if _is_encodable(text) and len(text) <= max(LONGEST["title"], 1000):
                self._expect(
                    f"search for {text[:40]!r}",
                    self._ask("GET", f"{PATH}?limit=2&q={quote(text, safe='')}"),
                    {200, 400},
                )

    def _keep(self, sent: dict[str, str], text: str, field: str = "", *, as_ascii: bool) -> None:
        """It must be refused, or come back as it was sent."""
        name = f"{text[:40]!r} in {field or 'all fields'}"
        reply = self._post(_encoded(sent, as_ascii=as_ascii), name)
        wanted = {True: {201}, False: {400}, None: {201, 400}}[may_be(field, text) if field else True]
        if self._expect(name, reply, wanted) and reply.status == HTTPStatus.CREATED:
            self._read_back(name, reply, sent)

    def _try_image(self, text: str) -> None:
        sent: dict[str, Any] = _GOOD | {"images": [text]}
        name = f"{text[:40]!r} as an image"
        reply = self._post(_encoded(sent, as_ascii=not _is_encodable(text)), name)
        if self._expect(name, reply, {201, 400}) and reply.status == HTTPStatus.CREATED:
            self._read_back(name, reply, sent)

    def _try_name(self, text: str) -> None:
        if text in fields.FIELDS:
            return
        name = f"{text[:40]!r} as a name"
        reply = self._post(_encoded(_GOOD | {text: "x"}, as_ascii=not _is_encodable(text)), name)
        self._expect(name, reply, {201} if _is_encodable(text) else {201, 400})
        told = reply.headers.get("x-ignored-fields", "")
        if not (told.isascii() and told.isprintable()):
            self.faults.append(f"{name}: a header is {told!r}")

    def _read_back(self, name: str, reply: Reply, sent: Mapping[str, Any]) -> None:
        address = reply.headers["location"]
        for path in (f"{address}?include=district", f"{PATH}?limit=1&sort=-id&include=district"):
            found = self._ask("GET", path)
            if not self._expect(f"{name}, read", found, {200}):
                continue
            record = json.loads(found.body)  # from the bytes, strictly
            record = record["listings"][0] if "listings" in record else record
            changed = [field for field, value in sent.items() if record[field] != value]
            if changed:
                self.faults.append(f"{name}: {changed} came back as {record[changed[0]]!r:.60}")
            self.counts["values read back"] += len(sent)

    def _post(self, body: bytes, name: str) -> Reply:
        return self._ask("POST", PATH, body, name)

    def _ask(self, method: str, path: str, body: bytes = b"", name: str = "") -> Reply:
        self.counts["requests"] += 1
        headers = {"Content-Length": "0"} if method == "POST" and not body else {}
        try:
            return self._house.fetch(method, path, key=self._alice.key, body=body, headers=headers)
        except Exception as error:  # noqa: BLE001 - that, too, is to be told
            self.faults.append(f"{name or path}: {error!r:.200}")
            return Reply(0, {}, b"{}")

    def _expect(self, name: str, reply: Reply, wanted: set[int]) -> bool:
        if reply.status not in wanted:
            self.faults.append(f"{name}: answered {reply.status} {reply.body[:80]!r}")
        return reply.status in wanted


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _encoded(content: object, *, as_ascii: bool) -> bytes:
    return json.dumps(content, ensure_ascii=as_ascii).encode()


def work(folder: Path, part: float, database: str | None = None) -> Trial:
    """All, or a part of each by chance; `database` is an address."""
    folder.mkdir()
    flags = {"database": database} if database is not None else {}
    with Harness(folder, rate_limit="0", **flags) as harness:
        trial = Trial(harness)
        trial.try_json(dict(_some(list(json_cases().items()), part)))
        trial.try_strings(_some(naughty_strings(), part))
        return trial


def _some(whole: "list[Any]", part: float) -> "list[Any]":
    return whole if part >= 1 else Random(1).sample(whole, round(len(whole) * part))


def run(scale: Scale) -> Outcome:
    """On both engines; in a short run all of it on SQLite, and a part on PostgreSQL."""
    on_sqlite = work(scale.folder / "sqlite", 1.0)
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(PostgresServer()).bare_database())
        on_postgres = work(scale.folder / "postgres", scale.part, url)
    faults = [f"SQLite: {fault}" for fault in on_sqlite.faults] + [f"PostgreSQL: {it}" for it in on_postgres.faults]
    both = (("SQLite", on_sqlite), ("PostgreSQL", on_postgres))
    told = "; ".join(f"{name}: " + ", ".join(f"{n:,} {what}" for what, n in it.counts.items()) for name, it in both)
    counts = on_postgres.counts
    whole = counts["JSON texts"] >= _LEAST_CASES and counts["strings"] >= _LEAST_STRINGS
    return Outcome(told, faults, whole)


def control(scale: Scale) -> Outcome:
    """Python's own reading of JSON, which is kinder, and text that is tidied up before it is kept."""
    faults = []
    for broken in (kind_json, tidy_text):
        with broken():
            found = work(scale.folder / broken.__name__, 0.25).faults
        if not found:
            return Outcome(f"{broken.__name__} was not found")
        faults += [f"{broken.__name__}: {fault}" for fault in found]
    return Outcome("JSON read by another reader, text that is tidied up", faults)


@contextmanager
def kind_json() -> Iterator[None]:
    """Bytes that are no UTF-8 are replaced, NaN is a number, a control character is one of a string."""
    with _replaced(listing_json, "_decode", _kindly):
        yield


def _kindly(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    return content if isinstance(content, dict) else {}


@contextmanager
def tidy_text() -> Iterator[None]:
    """Text is kept without the space around it, and in Unicode's composed form."""
    as_sent = listing_json._decode  # noqa: SLF001 - where both are broken, since it is never compiled

    def tidied(body: bytes) -> dict[str, Any]:
        return {name: _tidy(value) for name, value in as_sent(body).items()}

    with _replaced(listing_json, "_decode", tidied):
        yield


def _tidy(value: object) -> object:
    return normalize("NFC", value).strip() if isinstance(value, str) else value


@contextmanager
def _replaced(owner: Any, name: str, other: Callable[..., object]) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, kept)


INSTRUMENT = Instrument(
    8,
    "JSON and text in every field",
    "250 JSON texts and 400 strings on each engine: 0 wrongly accepted, no 5xx, the same bytes returned",
    1,
    run,
    control,
    short=0.1,
)
