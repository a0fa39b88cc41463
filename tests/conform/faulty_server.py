"""An in-memory implementation of the specification, with a switch for every fault that a check should detect.

It shares no code with the service. `FAULTS` maps the name of each fault to the checks that must fail.
"""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

RECORD = (
    *("id", "title", "content", "type", "category", "images", "price", "price_type", "location", "region"),
    *("is_active", "view_count", "created_at", "updated_at"),
)
LOCATION = ("district", "latitude", "longitude")
SETTABLE = (
    *("title", "content", "type", "category", "images", "price", "price_type", "location", "region"),
    *LOCATION,
)
CHOICES = {
    "type": ("product", "service", "rental", "job"),
    "price_type": ("fixed", "negotiable", "per_hour", "per_night"),
}
LIMIT = 1000

FAULTS: dict[str, set[str]] = {
    "another prefix": {"version-1", "list-1", "create-1", "create-4", "create-5", "create-6"}
    | {f"field-{number}" for number in range(1, 13)}
    | {"auth-3", "auth-4", "auth-6", "auth-7"},
    "list is an array": {"list-1"},
    "list omits new listings": {"list-2"},
    "list has inactive listings": {"list-3"},
    "list has listings of all accounts": {"list-4"},
    "get-one wraps the record": {"read-1"},
    "id is a string": {"record-1", "create-2"},
    "no title": {"record-2"},
    "no content": {"record-3"},
    "no default type": {"record-4", "field-13"},
    "any type is accepted": {"record-4"},
    "no category": {"record-5"},
    "images is a string": {"record-6", "field-5", "update-3", "update-4"},
    "price is a string": {"record-7"},
    "any price is accepted": {"record-7"},
    "any price_type is accepted": {"record-8"},
    "location is null": {"record-9", "field-8", "update-3", "update-4"},
    "no region": {"record-10"},
    "is_active is a number": {"record-11"},
    "view_count is a fraction": {"record-12"},
    "times are in ISO 8601": {"record-13", "record-14"},
    "times without seconds": {"record-13", "record-14"},
    "list has fewer fields": {"record-5", "record-15"},
    "get-one has more fields": {"record-15"},
    "create returns 200": {"create-1"},
    "create without a message": {"create-3"},
    "title is optional": {"create-4"},
    "content is optional": {"create-5"},
    "malformed JSON is 500": {"create-6"},
    "NaN is accepted as JSON": {"create-6"},
    "title in capitals": {"field-1"},
    "content in capitals": {"field-2"},
    "default type is service": {"field-13"},
    "update without a message": {"update-1", "update-2"},
    "PUT ignores the title": {"update-3"},
    "PATCH ignores the title": {"update-4"},
    "PUT replaces the listing": {"update-5", "update-7"},
    "PATCH replaces the listing": {"update-6", "update-7"},
    "an empty PUT is 400": {"update-7"},
    "PUT ignores is_active": {"state-1"},
    "PATCH ignores is_active": {"state-2"},
    "PUT of is_active ignores the rest": {"state-3"},
    "PATCH of is_active ignores the rest": {"state-4"},
    "view_count can be written": {"update-8"},
    "view_count can be created": {"update-8"},
    "delete without a message": {"delete-1"},
    "delete is 204": {"delete-1", "json-1"},
    "deleted listings are listed": {"delete-2"},
    "inactive listings can't be deleted": {"delete-3"},
    "X-API-Key is ignored": {"auth-1"},
    "Authorization is ignored": {"auth-2"},
    "401 is 403": {"auth-3", "auth-4"},
    "reads need no key": {"auth-3", "auth-4", "auth-5"},
    "an invalid key is 403": {"auth-4"},
    "an expired plan is accepted": {"auth-6"},
    "an expired plan lists": {"auth-6"},
    "the missing key error is vague": {"auth-7"},
    "others can read": {"owner-1", "owner-2"},
    "rejected updates of others are applied": {"owner-1"},
    "403 and 404 are swapped": {"owner-2", "missing-1"},
    "unknown ids are 400": {"missing-1"},
    "errors have two fields": {"errors-1"},
    "errors are objects": {"errors-1"},
    "errors are HTML": {"errors-1", "json-1", "auth-7"},
} | {
    f"{name} is rejected": {f"field-{number}"}
    for number, name in enumerate(SETTABLE, 1)
    if name not in {"title", "content"}
}
LIMIT_FAULTS: dict[str, set[str]] = {
    "no limit": {"limit-1"},
    "create has no limit": {"limit-2"},
    "one limit for all keys": {"limit-3"},
}
ALLOWED_VARIATIONS = {  # that the specification allows, with the checks that are then skipped
    "new listings are inactive": {"list-2", "record-15"},
    "success is 202": set[str](),
    "records have more fields": set[str](),
    "reads count as views": set[str](),
    "read-only fields are rejected": set[str](),
    "deleted listings can be read": set[str](),
    "optional fields are empty, not null": set[str](),
}
OTHER_FAULTS = {  # that fail no check, or any of the following ones
    *("limit of 500", "limit of 1500", "one id for all", "keys are repeated", "list shows a page of one"),
    "list repeats records",
}


class RejectedRequest(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Row(NamedTuple):
    """A listing and its owner."""

    owner: str
    fields: dict[str, Any]


class Market:
    """The rules of the specification. Not thread-safe: `FaultyServer` holds a lock."""

    def __init__(self, *faults: str) -> None:
        """Create three accounts: alice and bob with a plan, charlie with an expired one. Their keys are in KEYS."""
        assert set(faults) <= FAULTS.keys() | LIMIT_FAULTS.keys() | ALLOWED_VARIATIONS.keys() | OTHER_FAULTS
        self.faults = frozenset(faults)
        self.rows: dict[int, Row] = {}
        self.deleted: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.rate_limit_status = 420  # the specification names no status
        self.limit = 500 if "limit of 500" in faults else 1500 if "limit of 1500" in faults else LIMIT

    def respond(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        """Return the status and the body of the response."""
        try:
            return self._respond(method, path, headers, body)
        except RejectedRequest as error:
            return error.status, self._error_body(error)

    def _respond(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        prefix = "/api/v2/listings" if "another prefix" in self.faults else "/api/v1/listings"
        if not path.startswith(prefix):
            raise RejectedRequest(404, "Not found")
        item = path.removeprefix(prefix).strip("/")
        caller = self._authenticate(method, item, headers)
        if not item:
            return self._list(caller) if method == "GET" else self._create(caller, body)
        listing_id = self._find_own(caller, method, item, body)
        if method == "GET":
            status, value = 200, self._get_one(listing_id)
        else:
            status, value = self._delete(listing_id) if method == "DELETE" else self._update(method, listing_id, body)
        return 202 if "success is 202" in self.faults else status, value

    def _error_body(self, error: RejectedRequest) -> Any:
        if "errors have two fields" in self.faults:
            return {"error": error.text, "status": error.status}
        if "errors are objects" in self.faults:
            return {"error": {"text": error.text}}
        return b"<html>Sorry</html>" if "errors are HTML" in self.faults else {"error": error.text}

    def _authenticate(self, method: str, item: str, headers: Any) -> str:
        key = self._read_key(headers)
        if "reads need no key" in self.faults and method == "GET" and item and key not in KEYS.values():
            return self.rows[int(item)].owner
        if not key:
            text = "Go away" if "the missing key error is vague" in self.faults else "An API key is required"
            raise RejectedRequest(403 if "401 is 403" in self.faults else 401, text)
        if key not in KEYS.values():
            wrong = self.faults & {"401 is 403", "an invalid key is 403"}
            raise RejectedRequest(403 if wrong else 401, "The API key is unknown")
        if "keys are repeated" in self.faults and item:
            raise RejectedRequest(500, f"{key} may not do that")
        self._count(method, key)
        caller = key.removesuffix("-key")
        lists = "an expired plan lists" in self.faults and method == "GET" and not item
        if caller == "charlie" and "an expired plan is accepted" not in self.faults and not lists:
            raise RejectedRequest(403, "The Business plan has expired")
        return caller

    def _read_key(self, headers: Any) -> str:
        given = headers.get("X-API-Key", "") if "X-API-Key is ignored" not in self.faults else ""
        if given or "Authorization is ignored" in self.faults:
            return str(given)
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""

    def _count(self, method: str, key: str) -> None:
        if "no limit" in self.faults or (method == "POST" and "create has no limit" in self.faults):
            return
        counted = "all" if "one limit for all keys" in self.faults else key
        if self.counts[counted] >= self.limit:
            raise RejectedRequest(self.rate_limit_status, "Too many requests")
        self.counts[counted] += 1

    def _list(self, caller: str) -> tuple[int, Any]:
        records = [self._record(number) for number in self.rows if self._is_listed(caller, number)]
        if "list shows a page of one" in self.faults:
            records = records[:1]
        if "list repeats records" in self.faults:
            records += records
        if "list has fewer fields" in self.faults:
            records = [{name: record[name] for name in record if name != "category"} for record in records]
        return 200, records if "list is an array" in self.faults else {"listings": records}

    def _is_listed(self, caller: str, number: int) -> bool:
        if "list omits new listings" in self.faults:
            return False
        row = self.rows[number]
        if row.owner != caller and "list has listings of all accounts" not in self.faults:
            return False
        if number in self.deleted:
            return "deleted listings are listed" in self.faults
        return row.fields["is_active"] or "list has inactive listings" in self.faults

    def _create(self, caller: str, body: bytes) -> tuple[int, Any]:
        given = self._validate(self._decode(body))
        for name in ("title", "content"):
            if name not in given and f"{name} is optional" not in self.faults:
                raise RejectedRequest(400, f"{name} is required")
            if f"{name} in capitals" in self.faults:
                given[name] = given[name].upper()
        for name in SETTABLE:
            if name in given and f"{name} is rejected" in self.faults:
                raise RejectedRequest(400, f"{name} is not accepted")
        number = 1 if "one id for all" in self.faults else len(self.rows) + 1
        self.rows[number] = Row(caller, self._defaults() | given)
        response = {"id": self._format_id(number), "message": "Created"}
        if "create without a message" in self.faults:
            del response["message"]
        return 200 if "create returns 200" in self.faults else 201, response

    def _defaults(self) -> dict[str, Any]:
        time = "2026-01-31 10:20:30"
        time = "2026-01-31T10:20:30Z" if "times are in ISO 8601" in self.faults else time
        time = "2026-01-31 10:20" if "times without seconds" in self.faults else time
        kind = "service" if "default type is service" in self.faults else "product"
        views = 0.5 if "view_count is a fraction" in self.faults else 0
        return {
            "type": None if "no default type" in self.faults else kind,
            **dict.fromkeys(("category", "images", "price", "price_type", "location", "region")),
            "is_active": "new listings are inactive" not in self.faults,
            "view_count": views,
            "created_at": time,
            "updated_at": time,
        }

    def _decode(self, body: bytes) -> dict[str, Any]:
        def reject(_: str) -> None:
            raise ValueError

        nan = None if "NaN is accepted as JSON" in self.faults else reject
        try:
            value = json.loads(body, parse_constant=nan)
        except ValueError:
            raise RejectedRequest(
                500 if "malformed JSON is 500" in self.faults else 400, "The body is not JSON"
            ) from None
        if not isinstance(value, dict):
            raise RejectedRequest(400, "The body must be an object")
        return value

    def _validate(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the settable fields. A price of NaN is dropped, so that the list remains valid JSON."""
        for name, choices in CHOICES.items():
            if value.get(name, choices[0]) not in choices and f"any {name} is accepted" not in self.faults:
                raise RejectedRequest(400, f"{name} must be one of {', '.join(choices)}")
        if isinstance(value.get("price"), str) and "any price is accepted" not in self.faults:
            raise RejectedRequest(400, "price must be a number")
        writable = {*SETTABLE, "is_active"}
        if "view_count can be created" in self.faults or "view_count can be written" in self.faults:
            writable.add("view_count")
        if "read-only fields are rejected" in self.faults and value.keys() - writable:
            raise RejectedRequest(400, "A field is read-only")
        return {name: value[name] for name in value.keys() & writable if value[name] == value[name]}

    def _find_own(self, caller: str, method: str, item: str, body: bytes) -> int:
        swapped = "403 and 404 are swapped" in self.faults
        number = int(item) if item.isdigit() else 0
        if number not in self.rows or (number in self.deleted and not self._can_find_deleted(method)):
            unknown = 400 if "unknown ids are 400" in self.faults else 404
            raise RejectedRequest(403 if swapped else unknown, "There is no such listing")
        if self.rows[number].owner == caller or (method == "GET" and "others can read" in self.faults):
            return number
        if method in {"PUT", "PATCH"} and "rejected updates of others are applied" in self.faults:
            self.rows[number].fields.update(self._decode(body))
        raise RejectedRequest(404 if swapped else 403, "The listing belongs to another account")

    def _can_find_deleted(self, method: str) -> bool:
        readable = method == "GET" and "deleted listings can be read" in self.faults
        return readable or "deleted listings are listed" in self.faults

    def _get_one(self, number: int) -> Any:
        self.rows[number].fields["view_count"] += "reads count as views" in self.faults
        record = self._record(number)
        if "get-one has more fields" in self.faults:
            record["district"] = None
        return {"listing": record} if "get-one wraps the record" in self.faults else record

    def _record(self, number: int) -> dict[str, Any]:
        fields = {"id": self._format_id(number), **self.rows[number].fields}
        if "price is a string" in self.faults and fields["price"] is not None:
            fields["price"] = str(fields["price"])
        if "images is a string" in self.faults:
            fields["images"] = " ".join(fields["images"] or ())
        if "is_active is a number" in self.faults:
            fields["is_active"] = int(fields["is_active"])
        if "optional fields are empty, not null" in self.faults:
            empty = {"price": 0, "images": [], "price_type": "fixed"}
            fields = {name: empty.get(name, "") if value is None else value for name, value in fields.items()}
        if "location is null" in self.faults:
            fields["location"] = None
        names = (*RECORD, *LOCATION) if "records have more fields" in self.faults else RECORD
        return {name: fields.get(name) for name in names if f"no {name}" not in self.faults}

    def _format_id(self, number: int) -> Any:
        return str(number) if "id is a string" in self.faults else number

    def _update(self, method: str, number: int, body: bytes) -> tuple[int, Any]:
        value = self._decode(body)
        if not value and method == "PUT" and "an empty PUT is 400" in self.faults:
            raise RejectedRequest(400, "The body has no fields")
        changes = self._validate(value)
        if "view_count can be created" in self.faults:
            changes.pop("view_count", None)
        if f"{method} of is_active ignores the rest" in self.faults and "is_active" in changes:
            changes = {"is_active": changes["is_active"]}
        for name in ("title", "is_active"):
            if f"{method} ignores {'the ' * (name == 'title')}{name}" in self.faults:
                changes.pop(name, None)
        fields = self.rows[number].fields
        if f"{method} replaces the listing" in self.faults:
            fields |= dict.fromkeys(("category", "images", "location", "region"))
        fields |= changes
        return 200, {} if "update without a message" in self.faults else {"message": "Updated"}

    def _delete(self, number: int) -> tuple[int, Any]:
        if not self.rows[number].fields["is_active"] and "inactive listings can't be deleted" in self.faults:
            raise RejectedRequest(409, "Inactive listings cannot be deleted")
        self.deleted.add(number)
        if "delete is 204" in self.faults:
            return 204, b""
        return 200, {} if "delete without a message" in self.faults else {"message": "Deleted"}


KEYS = {name: f"{name}-key" for name in ("alice", "bob", "charlie")}


class FaultyServer:
    """An HTTP server for `Market`."""

    def __init__(self, *faults: str, prefix: str = "", before_response: Callable[[str], object] = str) -> None:
        """Call `before_response` with the method after each request is processed and before its response is sent."""
        self.market = Market(*faults)
        self.requests: list[str] = []

        def record(method: str) -> None:
            self.requests.append(method)
            before_response(method)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.market, prefix, record))
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_port}{prefix}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def enable_tls(self, context: ssl.SSLContext) -> None:
        """Serve HTTPS. Call this before entering the server."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.base_url = self.base_url.replace("http:", "https:").replace("127.0.0.1", "localhost")

    @property
    def remaining(self) -> set[int]:
        """The ids of the listings that are not deleted."""
        return self.market.rows.keys() - self.market.deleted


def _handler(market: Market, prefix: str, record: Callable[[str], None]) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # send head and body in one write

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            assert self.path.startswith(prefix)
            with lock:
                status, value = market.respond(self.command, self.path.removeprefix(prefix), self.headers, body)
            record(self.command)
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that the base class calls

        def log_message(self, *_: object) -> None:
            pass

    return Handler
