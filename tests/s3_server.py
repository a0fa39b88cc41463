"""A SeaweedFS server for tests, whose S3 has one bucket that anyone may read, like the bucket of a market."""

import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path
from types import TracebackType
from typing import NamedTuple, Self

import obstore
from obstore.store import S3Store

from bench.servers import find_free_port

BUCKET = "pictures"
KEY, SECRET = "access", "secret"
_START_TIMEOUT_SECONDS = 120
_SERVICES = ("master", "volume", "filer", "s3")


class S3Server:
    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="listings-s3-")
        self.port = find_free_port()
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(_START_TIMEOUT_SECONDS)
        self._folder.cleanup()
        for socket in Path("/tmp").glob("seaweedfs-*.sock"):  # noqa: S108 - its own choice
            if socket.stem.rpartition("-")[2] in self._ports:
                socket.unlink()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def create_bucket(self) -> "Bucket":
        """Return what differs from bucket to bucket: a new prefix in the only one."""
        return Bucket(self, f"{secrets.token_hex(4)}/media")

    def open_store(self, prefix: str = "") -> S3Store:
        return S3Store(
            BUCKET,
            prefix=prefix or None,
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process in this block: it accepts connections but does not respond."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def _start(self) -> None:
        folder = Path(self._folder.name)
        owner = {"name": "market", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
        visitor = {"name": "anonymous", "actions": [f"Read:{BUCKET}"]}
        (folder / "s3.json").write_text(json.dumps({"identities": [owner, visitor]}))
        ports = ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={self.port}"]
        ports += [f"-{name}.port.grpc={find_free_port()}" for name in _SERVICES]
        ports += [f"-{name}.port={find_free_port()}" for name in _SERVICES[:-1]]
        self._ports = {argument.rpartition("=")[2] for argument in ports}
        command = [
            f"{get_path('scripts')}/weed",
            "-logtostderr",
            "server",
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", f"-dir={folder}", *ports),
            *("-filer", "-s3", f"-s3.config={folder}/s3.json"),
        ]
        environment = {**os.environ, "HOME": str(folder)}
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not self._is_ready():
            assert self._process.poll() is None, (folder / "log").read_text()[-2_000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2_000:]
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        """Return whether objects can be stored. The first one creates the bucket."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=1).close()
            obstore.put(self.open_store("start"), "ready", b"volume")
        except (OSError, obstore.exceptions.BaseError):
            return False
        return True


class Bucket(NamedTuple):
    """A prefix of the bucket, as a market uses it."""

    server: S3Server
    prefix: str

    @property
    def public_url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/{BUCKET}/{self.prefix}"

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    @property
    def flags(self) -> dict[str, str]:
        return {"media_url": self.url, "media_base_url": self.public_url}

    def open_store(self) -> S3Store:
        return self.server.open_store(self.prefix)

    def list_files(self) -> list[str]:
        found = [entry["path"] for page in obstore.list(self.open_store()) for entry in page]
        return sorted(name for name in found if name != "database-id")
