"""A run's conversation with the server: who asks, what came, which listings were made and are to be deleted again."""

import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from listings.conform.client import Client, NoAnswer
from listings.conform.verdicts import Broken, Prevented

LISTINGS = "/api/v1/listings"
TITLE = "Conformance check"

Body: TypeAlias = Mapping[str, object] | bytes

_TOO_MANY_REQUESTS = 429
_FIRST_ERROR = 400
_GIVE_UP_AFTER = 3  # requests in a row without an answer
_LONGEST_TOLD = 300  # characters
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADERS = {"Accept": "application/json", "User-Agent": "listings-conform"}


class Keys(NamedTuple):
    """What the operator gave: a key; one of another account; one of an account whose Business plan has expired."""

    own: str
    other: str | None = None
    expired: str | None = None


class Credential(NamedTuple):
    """How a request says who it is from; `name` is for people."""

    name: str
    key: str | None
    header: str = "X-API-Key"

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries the key, if there is one."""
        if self.key is None:
            return {}
        return {self.header: f"Bearer {self.key}" if self.header == "Authorization" else self.key}


class Exchange(NamedTuple):
    """A request and its answer; `told` is both for people, without any key."""

    told: str
    status: int
    body: bytes
    repeated: bool

    @property
    def succeeded(self) -> bool:
        """Whether the status is of the 200 class."""
        return self.status // 100 == 2  # noqa: PLR2004 - the class

    @property
    def json(self) -> object:
        """The body. Raises ValueError for what is no JSON."""
        try:
            return json.loads(self.body.decode("utf-8"), parse_constant=_refuse)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    @property
    def members(self) -> dict[str, object]:
        """The body's members, none when it is no JSON object."""
        try:
            value = self.json
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


class CleanUp(NamedTuple):
    """How many listings the run has made, and the ids of those that could not be deleted."""

    made: int
    left: tuple[str, ...]


class Session:
    """Asks, and remembers what every answer of the run has to have, and what it has to delete."""

    def __init__(self, client: Client, keys: Keys) -> None:
        """The own key goes by X-API-Key until `own` is set to another credential."""
        self.by_header = Credential("--key as X-API-Key", keys.own)
        self.by_bearer = Credential("--key as a bearer token", keys.own, "Authorization")
        self.nobody = Credential("no key", None)
        self.invalid = Credential("a key that was never given out", f"conformance-check-{secrets.token_hex(16)}")
        self.own = self.by_header
        self.keys = keys
        self.marker = f"{TITLE} {secrets.token_hex(4)}"  # begins the title of every listing of the run
        self.requests: Counter[str | None] = Counter()  # by key, what was refused included
        self.served: Counter[str | None] = Counter()
        self.errors: list[Exchange] = []
        self.no_json: list[Exchange] = []
        self.obeys_limits = True
        self.begun = time.monotonic()
        self._client = client
        self._made: dict[str, Credential] = {}
        self._ever_made: set[str] = set()
        self._unsure: set[Credential] = set()  # whose creates had no answer that tells the id
        self._unanswered = 0

    def ask(self, method: str, path: str = "", body: Body | None = None, by: Credential | None = None) -> Exchange:
        """Send a request, by the own key if by nobody else; `path` goes on behind /api/v1/listings.

        Raises Broken when no answer comes, Prevented when the server has stopped answering or limits requests.
        """
        if self._unanswered >= _GIVE_UP_AFTER:
            raise Prevented("the server has stopped answering")
        by = by or self.own
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = f"{method} {LISTINGS}{path} {self._readable(content or b'')}".strip() + f" ({by.name})"
        exchange = self._send(request, method, LISTINGS + path, content, by)
        self._note(exchange, method, path, by)
        if exchange.status == _TOO_MANY_REQUESTS and self.obeys_limits:
            raise Prevented(f"the server limits requests: {exchange.told}")
        return exchange

    @property
    def has_listings(self) -> bool:
        """Whether there may be listings to delete."""
        return bool(self._made or self._unsure)

    def has(self, listing_id: str) -> bool:
        """Whether a listing of the run is still there."""
        return listing_id in self._made

    def clean_up(self) -> CleanUp:
        """Delete every listing that the run made, those included whose creation was never confirmed."""
        self._unanswered = 0
        for by in self._unsure:
            self._find_marked(by)
        self._unsure.clear()
        for listing_id, by in list(self._made.items()):
            if self._is_gone(listing_id, by):
                self._made.pop(listing_id, None)
        return CleanUp(len(self._ever_made), tuple(self._made))

    def _send(self, request: str, method: str, path: str, content: bytes | None, by: Credential) -> Exchange:
        headers = _HEADERS | by.headers | ({} if content is None else {"Content-Type": "application/json"})
        if method == "POST":
            self._unsure.add(by)  # until the answer is there: the run may be interrupted meanwhile
        self.requests[by.key] += 1
        try:
            answer = self._client.send(method, path, headers, content)
        except NoAnswer as reason:
            self._unanswered += 1
            raise Broken(f"{request}: the server {reason}") from None
        self._unanswered = 0
        told = f"{request} was answered {answer.status} {self._readable(answer.body)}".rstrip()
        return Exchange(told, answer.status, answer.body, answer.repeated)

    def _note(self, exchange: Exchange, method: str, path: str, by: Credential) -> None:
        self.served[by.key] += exchange.succeeded
        if exchange.status != _TOO_MANY_REQUESTS:
            self._note_shape(exchange)
        if method == "DELETE" and exchange.succeeded:
            self._made.pop(path.removeprefix("/"), None)
        if method != "POST":
            return
        listing_id = id_of(exchange.members.get("id"))
        if exchange.succeeded and listing_id is not None:
            self._remember(listing_id, by)
        if not exchange.repeated and (not exchange.succeeded or listing_id is not None):
            self._unsure.discard(by)

    def _note_shape(self, exchange: Exchange) -> None:
        if exchange.status >= _FIRST_ERROR:
            self.errors.append(exchange)
        try:
            _ = exchange.json
        except ValueError:
            self.no_json.append(exchange)

    def _find_marked(self, by: Credential) -> None:
        try:
            shown = self.ask("GET", by=by).members.get("listings")
        except (Broken, Prevented):
            return
        for record in shown if isinstance(shown, list) else []:
            listing_id = id_of(record.get("id")) if isinstance(record, dict) else None
            if listing_id is not None and str(record.get("title")).startswith(self.marker):
                self._remember(listing_id, by)

    def _remember(self, listing_id: str, by: Credential) -> None:
        self._made[listing_id] = by
        self._ever_made.add(listing_id)

    def _is_gone(self, listing_id: str, by: Credential) -> bool:
        try:
            deleted = self.ask("DELETE", f"/{listing_id}", by=by)
        except (Broken, Prevented):
            return False
        return deleted.succeeded or deleted.status == 404  # noqa: PLR2004 - not found

    def _readable(self, content: bytes) -> str:
        """The beginning of a body in one line for people, without the keys, which servers may repeat."""
        text = content[: 100 * _LONGEST_TOLD].decode("utf-8", "replace")
        for key in sorted(filter(None, self.keys), key=len, reverse=True):
            for form in (key, json.dumps(key)[1:-1]):
                text = text.replace(form, "[a key]")
        line = " ".join(text[: 10 * _LONGEST_TOLD].split())  # so that no key is told that was cut before its end
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
        return line if len(line) <= _LONGEST_TOLD else f"{line[:_LONGEST_TOLD]}…"


def id_of(value: object) -> str | None:
    """An id as it goes into a path, even where the server gave it in another type than it should."""
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        return None
    text = f"{value:.0f}" if isinstance(value, float) else str(value)
    return text if _ID.fullmatch(text) else None
