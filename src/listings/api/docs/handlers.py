"""Handlers that serve the OpenAPI document, the reference page with its files, and the guides."""

import asyncio
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from listings.api import codec
from listings.api.codec import Response
from listings.api.docs.document import build_document, describe_access
from listings.api.endpoints import Routes
from listings.api.request import Request
from listings.http.host import choose_host
from listings.service import ServiceInfo, Services

BASE_URL = b"https://BASE-URL.invalid"
"""Placeholder in the page for the URL under which a reader opens it."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = f"content-security-policy: {_POLICY}\r\nreferrer-policy: no-referrer\r\n".encode()
_NO_ACCOUNT = 0  # as a key of the response cache
_HTML = b"text/html; charset=utf-8"
_CSS = b"text/css; charset=utf-8"
_SCRIPT = b"text/javascript; charset=utf-8"


class _Content(NamedTuple):
    """Static content that clients may cache under the hash of its body."""

    body: bytes
    content_type: bytes
    tag: str
    headers: bytes = b""

    def respond(self, request: Request) -> Response:
        current = request.find_current_tag(self.tag)
        if current:
            return codec.build_not_modified_response(current)
        key = _NO_ACCOUNT, 0, self.tag
        return Response(200, self.body, self.headers, tag=self.tag, content_type=self.content_type, cache_key=key)


class DocsHandlers:
    """Documents a table of routes. The document and the page are built on first use."""

    def __init__(self, routes: Callable[[], Routes]) -> None:
        """`routes` returns the table. It is a function because the table contains these handlers."""
        self._routes = routes

    async def get_document(self, services: Services, request: Request) -> Response:
        """GET /openapi.json."""
        return self._build_document(services.about).respond(request)

    async def get_page(self, services: Services, request: Request) -> Response:
        """GET /docs. Without a public URL, the samples have the host of the request."""
        page = await asyncio.to_thread(self._render_page, services.about)
        return _respond_with_page(page, request)

    async def get_guide(self, services: Services, request: Request) -> Response:
        """GET /docs/{guide}."""
        page = await asyncio.to_thread(_render_guide, request.segment, services.about)
        return _respond_with_page(page, request)

    async def get_style(self, _services: Services, request: Request) -> Response:
        """GET /docs/reference.css."""
        return _read_file("reference.css", _CSS).respond(request)

    async def get_script(self, _services: Services, request: Request) -> Response:
        """GET /docs/reference.js."""
        return _read_file("reference.js", _SCRIPT).respond(request)

    @cache  # noqa: B019 - there is one instance
    def _build_document(self, about: ServiceInfo) -> _Content:
        return _build_content(codec.encode(build_document(self._routes(), about)), codec.JSON)

    @cache  # noqa: B019 - there is one instance
    def _render_page(self, about: ServiceInfo) -> bytes:
        from listings.api.docs.page import render_page  # noqa: PLC0415 - imports Jinja2, which few services need

        return render_page(build_document(self._routes(), about), about.base_url or BASE_URL.decode(), about)


@cache
def _render_guide(name: str, about: ServiceInfo) -> bytes:
    from listings.api.docs.guides import render_guide  # noqa: PLC0415 - imports a Markdown parser, which few need

    texts = {"access": describe_access(about.plan), "contact": f" to <{about.contact}>" if about.contact else ""}
    return render_guide(name, about.base_url or BASE_URL.decode(), about, texts)


def _respond_with_page(page: bytes, request: Request) -> Response:
    content = page.replace(BASE_URL, f"http://{choose_host(request.header(b'host'))}".encode())
    return _build_content(content, _HTML, _PAGE_HEADERS).respond(request)


@cache
def _read_file(name: str, content_type: bytes) -> _Content:
    return _build_content(files("listings.api.docs").joinpath("static", name).read_bytes(), content_type)


def _build_content(body: bytes, content_type: bytes, headers: bytes = b"") -> _Content:
    return _Content(body, content_type, f'"{sha256(body).hexdigest()[:16]}"', headers)
