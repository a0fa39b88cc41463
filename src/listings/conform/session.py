"""The requests of a run. The session records the responses, and the listings that must be deleted at the end."""

import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from listings.conform.client import Client, NoResponse
from listings.conform.verdicts import Blocked, Failed

LISTINGS = "/api/v1/listings"
TITLE = "Conformance check"

Body: TypeAlias = Mapping[str, object] | bytes

_TOO_MANY_REQUESTS = 429
_FIRST_ERROR = 400
_MAX_TIMEOUTS = 3  # requests in a row without a response, after which the run sends no more
_MAX_SUMMARY_LENGTH = 300
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADERS = {"Accept": "application/json", "User-Agent": "listings-conform"}


class Keys(NamedTuple):
    """The user's keys: the main one, one of another account, and one of an account whose plan has expired."""

    own: str
    other: str | None = None
    expired: str | None = None


class Credential(NamedTuple):
    """A key and the header that carries it; `name` describes both in reports."""

    name: str
    key: str | None
    header: str = "X-API-Key"

    @property
    def headers(self) -> dict[str, str]:
        if self.key is None:
            return {}
        return {self.header: f"Bearer {self.key}" if self.header == "Authorization" else self.key}


class Exchange(NamedTuple):
    """A request and its response. `summary` describes both for people, without keys."""

    summary: str
    status: int
    body: bytes
    repeated: bool

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def json(self) -> object:
        """The parsed body. Raises ValueError if it is not JSON."""
        try:
            return json.loads(self.body.decode("utf-8"), parse_constant=_reject_constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    @property
    def members(self) -> dict[str, object]:
        """The members of the body, or an empty dict if the body is not a JSON object."""
        try:
            value = self.json
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def id(self) -> str | None:
        """The id in the body, if there is one."""
        return parse_id(self.members.get("id"))

    @property
    def created_id(self) -> str | None:
        """The id of the listing that a successful create returned, or None."""
        return self.id if self.succeeded else None


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class Session:
    """Sends requests and records their responses and the listings that they create."""

    def __init__(self, client: Client, keys: Keys) -> None:
        """Send the main key as X-API-Key until `own` is set to another credential."""
        self.by_header = Credential("--key as X-API-Key", keys.own)
        self.by_bearer = Credential("--key as a bearer token", keys.own, "Authorization")
        self.nobody = Credential("no key", None)
        self.invalid = Credential("a key that was never issued", f"conformance-check-{secrets.token_hex(16)}")
        self.own = self.by_header
        self.keys = keys
        self.title_prefix = f"{TITLE} {secrets.token_hex(4)}"  # of every listing of the run
        self.requests: Counter[str | None] = Counter()  # by key, including rejected requests
        self.successes: Counter[str | None] = Counter()
        self.errors: list[Exchange] = []
        self.non_json: list[Exchange] = []
        self.stops_at_rate_limit = True
        self.started_at = time.monotonic()
        self._client = client
        self._created: dict[str, Credential] = {}
        self._all_created: set[str] = set()
        self._unconfirmed: Counter[Credential] = Counter()  # creates whose response has no id
        self._unanswered = 0

    def send(self, method: str, path: str = "", body: Body | None = None, by: Credential | None = None) -> Exchange:
        """Send a request to /api/v1/listings followed by `path`, with the main key unless `by` is given.

        Raises Failed if there is no response, and Blocked if the server no longer responds or the rate limit is hit.
        """
        if self._unanswered >= _MAX_TIMEOUTS:
            raise Blocked("the server no longer responds")
        by = by or self.own
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = f"{method} {LISTINGS}{path} {self._preview(content or b'')}".strip() + f" ({by.name})"
        exchange = self._exchange(request, method, LISTINGS + path, content, by)
        self._record(exchange, method, path, by)
        if exchange.status == _TOO_MANY_REQUESTS and self.stops_at_rate_limit:
            raise Blocked(f"the server limits requests: {exchange.summary}")
        return exchange

    @property
    def has_listings(self) -> bool:
        """Whether there may be listings to delete."""
        return bool(self._created or +self._unconfirmed)

    def has(self, listing_id: str) -> bool:
        """Return whether the run created the listing and has not deleted it."""
        return listing_id in self._created

    def clean_up(self) -> str:
        """Delete every listing that the run created, including those whose creation was never confirmed.

        Returns a sentence about them.
        """
        self._unanswered = 0
        for by in +self._unconfirmed:
            self._find_created(by)
        self._unconfirmed.clear()
        for listing_id, by in list(self._created.items()):
            if self._is_deleted(listing_id, by):
                self._created.pop(listing_id, None)
        if not self._all_created:
            return "The run created no listings."
        count = len(self._all_created)
        created, them = ("1 listing", "it") if count == 1 else (f"{count} listings", "them")
        if not self._created:
            return f"The run created {created} and deleted {them} again."
        return f"The run created {created}. Listings that could not be deleted: {', '.join(self._created)}."

    def _exchange(self, request: str, method: str, path: str, content: bytes | None, by: Credential) -> Exchange:
        headers = _HEADERS | by.headers | ({} if content is None else {"Content-Type": "application/json"})
        if method == "POST":
            self._unconfirmed[by] += 1  # before the response: the run may be interrupted meanwhile
        self.requests[by.key] += 1
        try:
            response = self._client.send(method, path, headers, content)
        except NoResponse as error:
            self._unanswered += 1
            raise Failed(f"{request}: the server {error}") from None
        self._unanswered = 0
        summary = f"{request} returned {response.status} {self._preview(response.body)}".rstrip()
        return Exchange(summary, response.status, response.body, response.repeated)

    def _record(self, exchange: Exchange, method: str, path: str, by: Credential) -> None:
        self.successes[by.key] += exchange.succeeded
        if exchange.status != _TOO_MANY_REQUESTS:
            self._record_shape(exchange)
        if method == "DELETE" and exchange.succeeded:
            self._created.pop(path.removeprefix("/"), None)
        if method != "POST":
            return
        created_id = exchange.created_id
        if created_id is not None:
            self._record_created(created_id, by)
        if not exchange.repeated and (not exchange.succeeded or created_id is not None):
            self._unconfirmed[by] -= 1

    def _record_shape(self, exchange: Exchange) -> None:
        if exchange.status >= _FIRST_ERROR:
            self.errors.append(exchange)
        try:
            _ = exchange.json
        except ValueError:
            self.non_json.append(exchange)

    def _find_created(self, by: Credential) -> None:
        try:
            records = self.send("GET", by=by).members.get("listings")
        except (Failed, Blocked):
            return
        for record in records if isinstance(records, list) else []:
            listing_id = parse_id(record.get("id")) if isinstance(record, dict) else None
            if listing_id is not None and str(record.get("title")).startswith(self.title_prefix):
                self._record_created(listing_id, by)

    def _record_created(self, listing_id: str, by: Credential) -> None:
        self._created[listing_id] = by
        self._all_created.add(listing_id)

    def _is_deleted(self, listing_id: str, by: Credential) -> bool:
        try:
            deleted = self.send("DELETE", f"/{listing_id}", by=by)
        except (Failed, Blocked):
            return False
        return deleted.succeeded or deleted.status == HTTPStatus.NOT_FOUND

    def _preview(self, content: bytes) -> str:
        """Return the beginning of a body as one printable line, without keys, which servers may repeat."""
        text = content[: 100 * _MAX_SUMMARY_LENGTH].decode("utf-8", "replace")
        for key in sorted(filter(None, self.keys), key=len, reverse=True):
            for form in (key, json.dumps(key)[1:-1]):
                text = text.replace(form, "[a key]")
        line = " ".join(text[: 10 * _MAX_SUMMARY_LENGTH].split())  # this also drops a key that the first cut truncated
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
        return line if len(line) <= _MAX_SUMMARY_LENGTH else f"{line[:_MAX_SUMMARY_LENGTH]}…"


def parse_id(value: object) -> str | None:
    """Return an id as it is written in a path, or None. Accepts strings and floats from servers that send them."""
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        return None
    text = f"{value:.0f}" if isinstance(value, float) else str(value)
    return text if _ID.fullmatch(text) else None
