"""A Redis or Valkey server for tests, with its own folder, port and socket."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis

from bench.servers import find_free_port
from listings.ratelimit.redis_connection import Endpoint

_START_TIMEOUT_SECONDS = 120


def find_redis() -> str:
    """Return the program that LISTINGS_TEST_REDIS names, or an installed one. Without one, skip the test."""
    program = os.environ.get("LISTINGS_TEST_REDIS") or shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("needs Redis or Valkey; .ci/run installs it")
    return program


class RedisServer:
    """A server without persistence; it can be killed and restarted, and is then empty."""

    def __init__(self, *, password: str = "", configuration: str = "") -> None:
        """`configuration` is the content of redis.conf."""
        self._program = find_redis()
        self._options = ["--requirepass", password] if password else []
        self._password = password
        self._configuration = configuration

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self.port = find_free_port()
        self.socket = f"{self._folder.name}/redis.sock"
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--unixsocket",
            self.socket,
            "--dir",
            self._folder.name,
        ]
        file = Path(self._folder.name) / "redis.conf"
        file.write_text(self._configuration)
        command = [self._program, str(file), *options, "--save", "", "--appendonly", "no", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        with self.client() as client:
            while not _is_ready(client):
                assert self._process.poll() is None, "Redis has ended"
                assert time.monotonic() < deadline, "Redis does not respond"
                time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_START_TIMEOUT_SECONDS)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process in this block: it accepts connections but does not respond."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def client(self, **options: Any) -> "redis.Redis":
        return redis.Redis(unix_socket_path=self.socket, password=self._password or None, **options)

    @property
    def url(self) -> str:
        return (
            f"redis://:{self._password}@127.0.0.1:{self.port}" if self._password else f"redis://127.0.0.1:{self.port}"
        )

    def endpoint(self, **changes: Any) -> Endpoint:
        """Return the endpoint, with a response timeout that no busy machine exceeds."""
        return Endpoint(
            "127.0.0.1", self.port, "", tls=False, user="", password=self._password, database=0, timeout_seconds=60
        )._replace(**changes)


def _is_ready(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.BusyLoadingError:
        return False
    except redis.exceptions.ResponseError:
        return True
    except redis.exceptions.ConnectionError:
        return False
