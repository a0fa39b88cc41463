"""An HTTP proxy that forwards requests to a server and can change them and their responses."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit


class Request(NamedTuple):
    """A request; `fields` are those of its JSON object, or None."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any] | None:
        try:
            value = json.loads(self.body, parse_constant=float)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def with_fields(self, **fields: Any) -> "Request":
        return self._replace(body=json.dumps((self.fields or {}) | fields).encode())


class Answer(NamedTuple):
    status: int
    fields: dict[str, Any]


Forward: TypeAlias = Callable[[Request], Answer]
Fault: TypeAlias = Callable[[Request, Forward], Answer]


@contextmanager
def run_faulty_proxy(base_url: str, fault: Fault) -> Iterator[str]:
    """Run a proxy for the server; yield its base URL."""
    target = urlsplit(base_url).netloc

    def forward(request: Request) -> Answer:
        connection = HTTPConnection(target)
        try:
            connection.request(request.method, request.path, request.body or None, request.headers)
            response = connection.getresponse()
            return Answer(response.status, json.loads(response.read()))
        finally:
            connection.close()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            names = ("X-API-Key", "Authorization", "Content-Type")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = fault(Request(self.command, self.path, headers, body), forward)
            content = json.dumps(answer.fields).encode()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names that the base class calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
