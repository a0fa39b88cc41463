"""Handlers that serve the OpenAPI document, the reference page with its files, and the guides."""

import asyncio
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

from listings.api import codec
from listings.api.codec import Response
from listings.api.compression import compress
from listings.api.docs.document import build_document, describe_access
from listings.api.endpoints import Routes
from listings.api.request import Request
from listings.http.host import choose_host
from listings.service import ServiceInfo, Services

BASE_URL = b"https://BASE-URL.invalid"
"""Placeholder in the pages for the URL under which a reader opens them."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = f"content-security-policy: {_POLICY}\r\nreferrer-policy: no-referrer\r\n".encode()
_MAX_HOSTS = 8  # that have copies of the pages; readers with other hosts get the copy of the example
_EXAMPLE_HOST = "market.example"
_PACKAGE = "listings.api.docs"
_HTML = b"text/html; charset=utf-8"
_MARKDOWN = b"text/markdown; charset=utf-8"
_OVERVIEW = "llms.txt"
_CSS = b"text/css; charset=utf-8"
_FONT = b"font/woff2"
_SCRIPT = b"text/javascript; charset=utf-8"


class _Content(NamedTuple):
    plain: Response
    compressed: Response

    def respond(self, request: Request) -> Response:
        current = request.find_current_tag(self.plain.tag)
        if current:
            return Response(304, b"", tag=current)
        return self.compressed if request.encodings.permit(len(self.plain.body)) else self.plain


class DocsHandlers:
    """Documents a table of routes. The document and the pages are built on first use."""

    def __init__(self, routes: Callable[[], Routes]) -> None:
        """`routes` returns the table. It is a function because the table contains these handlers."""
        self._routes = routes
        self._copies: WeakKeyDictionary[Services, dict[str, dict[str, _Content]]] = WeakKeyDictionary()
        """The pages of each service, by the host in their samples and by name."""

    async def get_document(self, services: Services, request: Request) -> Response:
        return self._build_document(services.about).respond(request)

    async def get_page(self, services: Services, request: Request) -> Response:
        """GET /docs. Without a public URL, the samples have the host of the request. With `q`, search the pages."""
        query = dict(parse_qsl(request.query.decode("latin-1"), errors="replace")).get("q", "").strip()
        if query:
            base_url = services.about.base_url or BASE_URL.decode()
            page = await asyncio.to_thread(_search, query, base_url, services.about)
            page = page.replace(BASE_URL, f"http://{choose_host(request.header(b'host'))}".encode())
            return Response(200, page, _PAGE_HEADERS, content_type=_HTML)
        return await self._respond_with_page("", services, request)

    async def get_guide(self, services: Services, request: Request) -> Response:
        return await self._respond_with_page(request.segment, services, request)

    async def get_overview(self, services: Services, request: Request) -> Response:
        return await self._respond_with_page(_OVERVIEW, services, request)

    async def get_style(self, _services: Services, request: Request) -> Response:
        return _read_files(_CSS, ("listings.site", "base.css"), (_PACKAGE, "reference.css")).respond(request)

    async def get_script(self, _services: Services, request: Request) -> Response:
        return _read_files(_SCRIPT, (_PACKAGE, "reference.js")).respond(request)

    async def get_font(self, _services: Services, request: Request) -> Response:
        return _read_files(_FONT, ("listings.site", "inter.woff2")).respond(request)

    @cache  # noqa: B019 - there is one instance
    def _build_document(self, about: ServiceInfo) -> _Content:
        return _build_content(codec.encode(build_document(self._routes(), about)), codec.JSON)

    async def _respond_with_page(self, name: str, services: Services, request: Request) -> Response:
        copies = self._copies.setdefault(services, {_EXAMPLE_HOST: {}})
        host = choose_host(request.header(b"host")) if not services.about.base_url else _EXAMPLE_HOST
        if host not in copies and len(copies) > _MAX_HOSTS:
            host = _EXAMPLE_HOST
        pages = copies.setdefault(host, {})
        if name not in pages:
            page = await asyncio.to_thread(self._render, name, services.about)
            if name not in pages:  # another request may have built it
                kind = _MARKDOWN if name.endswith((_OVERVIEW, ".md")) else _HTML
                pages[name] = _build_content(page.replace(BASE_URL, f"http://{host}".encode()), kind, _PAGE_HEADERS)
        return pages[name].respond(request)

    @cache  # noqa: B019 - there is one instance
    def _render(self, name: str, about: ServiceInfo) -> bytes:
        base_url = about.base_url or BASE_URL.decode()
        if not name:
            from listings.api.docs.page import render_page  # noqa: PLC0415 - imports Jinja2, which few services need

            return render_page(build_document(self._routes(), about), base_url, about)
        from listings.api.docs import guides  # noqa: PLC0415 - imports a Markdown parser, which few need

        texts = {"access": describe_access(about.plan), "contact": f" to <{about.contact}>" if about.contact else ""}
        if name == _OVERVIEW:
            return guides.format_overview(base_url, texts["access"]).encode()
        if name.endswith(".md"):
            return guides.format_guide(name.removesuffix(".md"), base_url, texts).encode()
        return guides.render_guide(name, base_url, about, texts)


def _search(query: str, base_url: str, about: ServiceInfo) -> bytes:
    from listings.api.docs.search import render_results  # noqa: PLC0415 - imports Jinja2, which few services need

    return render_results(query, base_url, about)


@cache
def _read_files(content_type: bytes, *names: tuple[str, str]) -> _Content:
    bodies = [files(package).joinpath("static", name).read_bytes() for package, name in names]
    return _build_content(b"".join(bodies), content_type)


def _build_content(body: bytes, content_type: bytes, headers: bytes = b"") -> _Content:
    tag = f'"{sha256(body).hexdigest()[:16]}"'
    plain = codec.with_head(Response(200, body, headers, tag=tag, content_type=content_type, is_shared=True))
    return _Content(plain, compress(plain))
