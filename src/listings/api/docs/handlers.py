"""What the service tells about itself: the document, the page made of it, and the page's files."""

from collections.abc import Callable
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from listings.api import codec
from listings.api.codec import Response
from listings.api.docs import document as openapi
from listings.api.docs import page as reference
from listings.api.endpoints import Routes
from listings.api.request import Request
from listings.service import Service

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = f"content-security-policy: {_POLICY}\r\nreferrer-policy: no-referrer\r\n".encode()
_HTML = b"text/html; charset=utf-8"
_CSS = b"text/css; charset=utf-8"
_SCRIPT = b"text/javascript; charset=utf-8"


class _Content(NamedTuple):
    """What may be kept by its receiver, under a tag of what it is."""

    body: bytes
    kind: bytes
    tag: str
    headers: bytes = b""

    def answer(self, request: Request) -> Response:
        if codec.is_current(request.header_values(b"if-none-match"), self.tag):
            return codec.not_modified_response(self.tag)
        return Response(200, self.body, self.headers, tag=self.tag, kind=self.kind)


class Description:
    """Describes a table of routes; made when it is first asked for, and kept."""

    def __init__(self, routes: Callable[[], Routes]) -> None:
        """`routes` gives the table, which these very handlers are in."""
        self._routes = routes

    async def document(self, _service: Service, request: Request) -> Response:
        """GET /openapi.json."""
        return self._document.answer(request)

    async def page(self, _service: Service, request: Request) -> Response:
        """GET /docs, for the address that the reader has come by."""
        content = reference.at(self._page, request.header(b"host"))
        return _content(content, _HTML, _PAGE_HEADERS).answer(request)

    async def style(self, _service: Service, request: Request) -> Response:
        """GET /docs/reference.css."""
        return _file("reference.css", _CSS).answer(request)

    async def script(self, _service: Service, request: Request) -> Response:
        """GET /docs/reference.js."""
        return _file("reference.js", _SCRIPT).answer(request)

    @cached_property
    def _document(self) -> _Content:
        return _content(codec.encode(openapi.document(self._routes())), codec.JSON)

    @cached_property
    def _page(self) -> bytes:
        return reference.page(openapi.document(self._routes()))


@cache
def _file(name: str, kind: bytes) -> _Content:
    return _content(files("listings.api.docs").joinpath("static", name).read_bytes(), kind)


def _content(body: bytes, kind: bytes, headers: bytes = b"") -> _Content:
    return _Content(body, kind, f'"{sha256(body).hexdigest()[:16]}"', headers)
