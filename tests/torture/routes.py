"""The table of all routes: for each, the request with the largest response, and the largest body.

In URLs and bodies, `$name` is replaced by a value of the caller (`tests.torture.route_data`).
"""

from collections.abc import Mapping
from string import Template
from typing import Literal, NamedTuple, TypeAlias

Caller: TypeAlias = Literal["key", "session", "visitor"]
"""Who sends the request, and so whose bytes it counts as: the owner of a key or a session, or a visitor's network."""

SMALL_BYTES = 16 * 1024
"""Responses below this size are counted, but never rejected."""

FORM_BYTES, VISITOR_FORM_BYTES = 2 * 1024 * 1024, 64 * 1024
_RESERVED_BYTES = 1024  # so that no other limit of a body is reached
_LIST = "/api/v1/listings"
_FORM = "application/x-www-form-urlencoded"
_BOUNDARY = "b0undary"
_FILE = (
    f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="token"\r\n\r\n$token\r\n'
    f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="f.csv"\r\n\r\n$file\r\n'
    f"--{_BOUNDARY}--\r\n"
)
_LONG = '"content": "$long"'  # 400 kB
_UPDATES = '{"operations": [$updates]}'
_WRONG_TOKEN = "token=wrong"  # for forms that would end the caller's session; the error page is the larger response


class Request(NamedTuple):
    """The bytes of a request, as Latin-1, and the character that follows them and how often."""

    start: str
    fill: str
    filled: int

    def encode(self) -> bytes:
        return (self.start + self.fill * self.filled).encode("latin-1")


class Route(NamedTuple):
    method: str
    path: str  # as in the table of routes
    caller: Caller
    url: str = ""  # the path if empty
    body: str = ""
    fill: str = ""  # a character that fills the rest of the body, up to its limit
    status: int = 200  # of the response, unless the service is overloaded
    header: str = ""
    is_constant: bool = False  # the same bytes for everybody, which are never 503
    many: bool = False  # whether it is also requested by many owners together
    needs: Literal["", "mail", "operator", "stripe"] = ""  # to be served

    @property
    def name(self) -> str:
        return f"{self.method} {self.path} of a {self.caller}"

    @property
    def is_page(self) -> bool:
        return self.caller != "key" and not self.path.startswith(
            ("/docs", "/llms.txt", "/openapi", "/healthz", "/readyz")
        )

    @property
    def is_form(self) -> bool:
        return self.method == "POST" and self.caller != "key"

    @property
    def max_body_bytes(self) -> int:
        return VISITOR_FORM_BYTES if self.caller == "visitor" else FORM_BYTES

    def build(self, values: Mapping[str, str]) -> Request:
        start = Template(self.body).substitute(values)
        filled = max(0, self.max_body_bytes - _RESERVED_BYTES - len(start)) if self.fill else 0
        headers = ["Host: localhost", f"X-Forwarded-For: {values['network']}"]
        headers += [Template(line).substitute(values) for line in (_IDENTITY[self.caller], self.header) if line]
        if self.is_page:
            headers.append("Accept: text/html")
        if self.is_form:
            kind = f"multipart/form-data; boundary={_BOUNDARY}" if start.startswith("--") else _FORM
            headers += ["Sec-Fetch-Site: same-origin", f"Content-Type: {kind}"]
        if self.method not in {"GET", "DELETE"}:
            headers.append(f"Content-Length: {len(start) + filled}")
        url = Template(self.url or self.path).substitute(values)
        return Request("\r\n".join((f"{self.method} {url} HTTP/1.1", *headers, "", start)), self.fill, filled)


_IDENTITY = {
    "key": "X-API-Key: $key",
    "session": "Cookie: listings_session=$session",
    "visitor": "Cookie: listings_form=$secret",
}
_WHOLE = "Prefer: return=representation"


def _get(path: str, caller: Caller, url: str = "", *, status: int = 200, many: bool = False) -> Route:
    return Route("GET", path, caller, url, status=status, many=many)


def _constant(path: str, caller: Caller, url: str = "") -> Route:
    return Route("GET", path, caller, url, is_constant=True)


def _form(
    path: str, caller: Caller, body: str = "", *, url: str = "", fill: str = "", status: int = 200, many: bool = False
) -> Route:
    return Route("POST", path, caller, url, body or "token=$token", fill, status, many=many)


UNKNOWN = "/unknown"
"""A path without a route: its page is the one of all errors."""

WITH_SLASH = "/sign-in/"
"""One for all paths of pages with a slash at the end, which redirect to those without."""

API = (
    _get(_LIST, "key", many=True),
    Route("POST", _LIST, "key", _LIST, f'{{"title": "Lamp", {_LONG}}}', status=201, header=_WHOLE),
    Route("POST", f"{_LIST}/batch", "key", f"{_LIST}/batch?dry_run=true", _UPDATES),
    _get(f"{_LIST}/{{id}}", "key", f"{_LIST}/$listing", many=True),
    Route("PUT", f"{_LIST}/{{id}}", "key", f"{_LIST}/$listing", '{"price": 5}', header=_WHOLE),
    Route("PATCH", f"{_LIST}/{{id}}", "key", f"{_LIST}/$listing", '{"price": 6}', header=_WHOLE),
    Route("DELETE", f"{_LIST}/{{id}}", "key", f"{_LIST}/$deleted", status=404),
    Route("POST", f"{_LIST}/{{id}}/restore", "key", f"{_LIST}/$deleted/restore", header=_WHOLE),
    _get(f"{_LIST}/{{id}}/changes", "key", f"{_LIST}/$listing/changes?before=$batch"),
    _get("/api/v1/changes", "key", "/api/v1/changes?after=1"),
    _get("/api/v1/changes/groups", "key"),
    Route(
        "POST",
        "/api/v1/changes/revert",
        "key",
        "/api/v1/changes/revert?dry_run=true",
        '{"change": $change, "overwrite": true}',
    ),
    _get("/api/v1/changes/reverts/{id}", "key", "/api/v1/changes/reverts/$revert"),
    _get("/api/v1/images", "key"),
    Route("POST", "/api/v1/images", "key", "", "no picture", status=400),
    Route("DELETE", "/api/v1/images/{id}", "key", "/api/v1/images/unknown", status=404),
    _get("/media/{file}", "visitor", "/media/unknown.jpg", status=404),
    _get("/api/v1/key", "key"),
    _get("/api/v1/rate_limit", "key"),
    _get("/healthz", "visitor"),
    _get("/readyz", "visitor"),
    _constant("/openapi.json", "visitor"),
    _constant("/llms.txt", "visitor"),
    _constant("/docs", "visitor"),
    _constant("/docs/reference.css", "visitor"),
    _constant("/docs/reference.js", "visitor"),
    _constant("/docs/inter.woff2", "visitor"),
    _constant("/docs/{guide}", "visitor", "/docs/sync"),
)
MARKET = (
    _get("/", "visitor"),
    _get("/", "visitor", "/?q=lamp", many=True),
    _get("/listings/{id}", "visitor", "/listings/$quoted", many=True),
    _get("/listings/{id}/message", "visitor", "/listings/$quoted/message")._replace(needs="mail"),
    Route(
        "POST",
        "/listings/{id}/message",
        "visitor",
        "/listings/$quoted/message",
        "token=$form&text=",
        fill="'",
        status=400,
        needs="mail",
    ),
    _get("/saved", "visitor"),
    _get("/sellers/{id}/message", "visitor", "/sellers/$account/message")._replace(needs="mail"),
    Route(
        "POST",
        "/sellers/{id}/message",
        "visitor",
        "/sellers/$account/message",
        "token=$form&text=",
        fill="'",
        status=400,
        needs="mail",
    ),
    _form("/saved", "visitor", "id=1&action=save", status=303),
    _get("/listings/{id}/report", "visitor", "/listings/$quoted/report")._replace(needs="mail"),
    Route(
        "POST",
        "/listings/{id}/report",
        "visitor",
        "/listings/$quoted/report",
        "token=$form&reason=other&text=",
        fill="'",
        status=400,
        needs="mail",
    ),
    _get("/operator", "session")._replace(needs="operator"),
    *(
        _form(f"/operator/{path}", "session", status=status)._replace(needs="operator")
        for path, status in (("code", 403), ("plan", 400), ("report", 400), ("takedown", 400), ("lift", 400))
    ),
    _get("/sellers/{id}", "visitor", "/sellers/$account"),
    _get("/robots.txt", "visitor"),
    _get("/sitemap.xml", "visitor"),
    _get("/sitemaps/{id}.xml", "visitor", "/sitemaps/1.xml"),
    _constant("/static/{digest}/{name}", "visitor", "$script"),
    _constant("/static/{digest}/{name}", "visitor", "$style"),
    _constant("/static/{digest}/{name}", "visitor", "$font"),
    _constant("/static/demo/{name}", "visitor", "/static/demo/table.webp"),
    _constant("/logo", "visitor"),
    Route(
        "POST", "/payments/{provider}/webhook", "visitor", "/payments/stripe/webhook", "{}", status=400, needs="stripe"
    ),
    _get(UNKNOWN, "visitor", status=404),
    _get(WITH_SLASH, "visitor", status=308),
)
SIGN_IN = (
    _get("/sign-in", "visitor"),
    _form("/sign-in", "visitor", "token=$form&password=x&email=", fill="'", status=403, many=True),
    _get("/sign-up", "visitor"),
    _form("/sign-up", "visitor", "token=$form&name=", fill="'", status=400),
    _form("/sign-out", "session", _WRONG_TOKEN, status=403),
    _get("/reset-password", "visitor"),
    Route("POST", "/reset-password", "visitor", "", "token=$form&email=", fill="'", status=400, needs="mail"),
    _get("/confirm-email/{token}", "visitor", "/confirm-email/x", status=404),
    _form("/confirm-email/{token}", "visitor", "token=$form", url="/confirm-email/x", status=404),
    _get("/invitations/{token}", "visitor", "/invitations/$invitation"),
    _form("/invitations/{token}", "visitor", "token=$form", url="/invitations/$invitation", status=400),
)
CONSOLE = (
    _get("/console", "session"),
    _get("/console/usage", "session"),
    _get("/console/messages", "session"),
    _get("/console/plan", "session"),
    _form("/console/plan", "session", status=400),
    _get("/console/plan/invoices/{id}", "session", "/console/plan/invoices/1", status=404),
    _form("/console/account/about", "session", "token=$token&about=", fill="'", status=400),
    _form("/console/plan/request", "session", _WRONG_TOKEN, status=403),
    _get("/console/keys", "session"),
    _form("/console/keys", "session", "token=$token&name=", fill="'", status=400),
    _get("/console/keys/{id}", "session", "/console/keys/$key_id"),
    _form("/console/keys/{id}/rotate", "session", url="/console/keys/$key_id/rotate", status=400),
    _form("/console/keys/{id}/revoke", "session", _WRONG_TOKEN, url="/console/keys/$key_id/revoke", status=403),
    _form("/console/test-mode", "session", _WRONG_TOKEN, status=403),
    _get("/console/activity", "session"),
    _get("/console/activity/undo", "session", "/console/activity/undo?change=$batch&overwrite=on"),
    _form("/console/activity/undo", "session", "token=$token&change=$batch"),
    _get("/console/activity/undo/{id}", "session", "/console/activity/undo/$revert"),
)
LISTINGS = (
    _get("/console/listings", "session", f"/console/listings?q=lamp{'%27' * 2000}"),
    _form("/console/listings", "session", "token=$token&q=", fill="'", status=400),
    _get("/console/listings/new", "session", "/console/listings/new?from=$quoted"),
    _form("/console/listings/new", "session", "token=$token&content=", fill="'", status=400, many=True),
    _form("/console/listings/new", "visitor", "content=", fill="'"),
    _form("/console/listings/new/preview", "session", "token=$token&content=", fill="'", status=400),
    _get("/console/listings/{id}", "session", "/console/listings/$quoted", many=True),
    _form(
        "/console/listings/{id}",
        "session",
        "token=$token&content=",
        url="/console/listings/$quoted",
        fill="'",
        status=400,
    ),
    _form("/console/listings/{id}", "visitor", "content=", url="/console/listings/1", fill="'"),
    _form(
        "/console/listings/{id}/preview",
        "session",
        "token=$token&content=",
        url="/console/listings/$quoted/preview",
        fill="'",
        status=400,
    ),
    _form(
        "/console/listings/{id}/state",
        "session",
        "token=$token&action=restore",
        url="/console/listings/$quoted/state",
        status=400,
    ),
    _get("/console/listings/{id}/history", "session", "/console/listings/$listing/history?before=$batch"),
)
TRANSFER = (
    _form("/console/pictures", "session", status=400),
    _get("/console/pictures.zip", "session"),
    _get("/console/import", "session"),
    _form("/console/import/pictures", "session"),
    _get("/console/import/template", "session"),
    _form("/console/import", "session", _FILE),
    _form("/console/import/run", "session", "token=$token&name=f.csv&new_ids=on&packed=$rows"),
    _form("/console/import/rejected", "session", "token=$token&name=f.csv&rejected=$packed", many=True),
    _get("/console/export", "session", "/console/export?format=jsonl", many=True),
)
ACCOUNT = (
    _get("/console/account", "session"),
    *(
        _form(f"/console/account/{part}", "session", f"token=$token&{field}=", fill="'", status=400)
        for part, field in (("contact", "contact"), ("name", "name"), ("email", "email"))
    ),
    _form("/console/account/close", "session", "token=$token&email=", fill="'", status=400),
    *(
        _form(f"/console/account/{part}", "session", _WRONG_TOKEN, status=403)
        for part in ("messages", "email/confirm", "password", "session", "sessions")
    ),
    _get("/console/account/close", "session"),
)
TABLE: tuple[Route, ...] = (*API, *MARKET, *SIGN_IN, *CONSOLE, *LISTINGS, *TRANSFER, *ACCOUNT)
