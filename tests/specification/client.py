"""Calls a listing management service over HTTP and records the listings that it creates.

Like the cases, it needs nothing but pytest and the standard library.
"""

import http.client
import json
import secrets
import ssl
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

LISTINGS = "/api/v1/listings"
TIMEOUT_SECONDS = 30
MAX_SHOWN_BYTES = 300
FAILURES = (
    OSError,
    http.client.HTTPException,
    AssertionError,
    LookupError,
    TypeError,
)  # of servers with faults
UNKNOWN_ID = "2147480573"  # near the largest 32-bit integer, far from ids that are counted from 1


class Response(NamedTuple):
    """A response with a description of its request. Neither contains a key."""

    request: str
    status: int
    body: bytes

    def __str__(self) -> str:
        return f"{self.request} returned {self.status} {self.body[:MAX_SHOWN_BYTES]!r}"

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object in the body. The case fails if it contains anything else."""
        try:
            value = json.loads(self.body, parse_constant=_reject)
        except ValueError:
            raise AssertionError(f"Expected JSON: {self}") from None
        assert isinstance(value, dict), f"Expected a JSON object: {self}"
        return value


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class Account:
    """Sends requests with the headers of one account. `name` describes it in reports."""

    def __init__(self, server: "Server", name: str, headers: dict[str, str]) -> None:
        self.name = name
        self.headers = headers
        self._server = server

    def send(self, method: str, path: str = "", body: object = None) -> Response:
        """Send a request to /api/v1/listings followed by `path`. A body of bytes is sent as it is."""
        return self._server.send(self, method, path, body)

    def create(self, **fields: object) -> str:
        """Create a listing whose title marks it as this run's, and return its id."""
        response = self.send("POST", body=self.build_fields(**fields))
        assert response.succeeded, response
        return str(response.fields["id"])

    def build_fields(self, **fields: object) -> dict[str, object]:
        """Return the body of a create."""
        return {"title": self._server.title, "content": "Created by a test of the specification.", **fields}

    def read(self, listing_id: str) -> dict[str, Any]:
        response = self.send("GET", f"/{listing_id}")
        assert response.succeeded, response
        return response.fields

    def read_list(self) -> dict[str, dict[str, Any]]:
        """Return the records of the account's list by id."""
        response = self.send("GET")
        assert response.succeeded, response
        return {str(record["id"]): record for record in response.fields["listings"]}

    def call_each_method(self, listing_id: str) -> list[Response]:
        """Read, update and delete a listing. The delete comes last, so that each request can succeed."""
        path = f"/{listing_id}"
        return [
            self.send("GET", path),
            self.send("PUT", path, {"price": 11}),
            self.send("PATCH", path, {"price": 12}),
            self.send("DELETE", path),
        ]

    def call_each_endpoint(self, listing_id: str) -> list[Response]:
        return [
            self.send("GET"),
            self.send("POST", body=self.build_fields()),
            *self.call_each_method(listing_id),
        ]


class Server:
    """The server under test."""

    def __init__(self, base_url: str) -> None:
        self._address = urlsplit(base_url)
        self.title = f"Specification test {secrets.token_hex(4)}"  # how the titles of this run begin
        self._created: dict[str, Account] = {}
        self._creators: dict[str, Account] = {}

    def send(self, account: Account, method: str, path: str, body: object) -> Response:
        """Send a request over a connection of its own, so that no idle connection can break."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if method == "POST":
            self._creators[account.name] = account  # before the response: the run may be interrupted meanwhile
        connection = self._open()
        try:
            headers = account.headers | ({} if content is None else {"Content-Type": "application/json"})
            connection.request(method, self._address.path.rstrip("/") + LISTINGS + path, content, headers)
            received = connection.getresponse()
            shown = "" if content is None else f" {content[:MAX_SHOWN_BYTES]!r}"
            response = Response(f"{method} {LISTINGS}{path}{shown} ({account.name})", received.status, received.read())
        finally:
            connection.close()
        self._record(account, method, path, response)
        return response

    def delete_created(self) -> list[str]:
        """Delete every listing that the run created. Return the ids of those that it could not delete."""
        for account in self._creators.values():
            with suppress(*FAILURES):
                self._find_unrecorded(account)
        for listing_id, account in list(self._created.items()):
            with suppress(*FAILURES):
                if account.send("DELETE", f"/{listing_id}").status == http.HTTPStatus.NOT_FOUND:
                    self._created.pop(listing_id, None)
        return list(self._created)

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def _record(self, account: Account, method: str, path: str, response: Response) -> None:
        if method == "DELETE" and response.succeeded:
            self._created.pop(path.removeprefix("/"), None)
        if method == "POST" and response.succeeded and "id" in response.fields:
            self._created[str(response.fields["id"])] = account

    def _find_unrecorded(self, account: Account) -> None:
        """Record listings whose create was interrupted before its response."""
        for listing_id, record in account.read_list().items():
            if str(record.get("title")).startswith(self.title):
                self._created[listing_id] = account
