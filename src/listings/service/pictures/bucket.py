"""The files of pictures in a bucket of S3, or of a service with its API. Needs the packages of the extra `s3`."""

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from listings.domain import pictures
from listings.domain.errors import Problem
from listings.service.pictures.files import PictureFiles

if TYPE_CHECKING:  # the package has these types only for checks
    from obstore.store import ClientConfig, RetryConfig

_OWNER = "database-id"
_NAME_LENGTH = 32
_CLIENT: "ClientConfig" = {"connect_timeout": "2s", "timeout": "5s", "allow_http": True}  # for an endpoint without TLS
_RETRIES: "RetryConfig" = {"max_retries": 1, "retry_timeout": timedelta(seconds=15)}

_log = logging.getLogger(__name__)


class PictureBucket(PictureFiles):
    """The bucket. The environment has the credentials, in the variables of other programs for S3."""

    def __init__(self, folder: Path, bucket: str, prefix: str, base_url: str) -> None:
        """`base_url`: the public URL of the prefix, in the bucket or at a CDN. Raises Problem("invalid_setting")."""
        super().__init__(folder, f"s3://{bucket}/{prefix}".rstrip("/"))
        self.base_url = base_url
        os.environ.setdefault("TOKIO_WORKER_THREADS", "2")  # of obstore; the default is one per core, in each process
        try:
            self._store = S3Store(bucket, prefix=prefix or None, client_options=_CLIENT, retry_config=_RETRIES)
        except BaseError as error:
            reason = str(error).partition("\n")[0]
            raise Problem("invalid_setting", f"The AWS_ variables are not sufficient for S3: {reason}") from error

    def claim(self, database_id: str) -> bool:
        self.create()
        found = self._read(_OWNER)
        if found is None:
            self._put(_OWNER, database_id.encode())
            found = self._read(_OWNER)
        return found == database_id.encode()

    def publish(self, draft: str, name: str) -> None:
        for source, file in zip(pictures.list_files(draft), pictures.list_files(name), strict=True):
            kind = {"Content-Type": pictures.get_media_type(file), "Cache-Control": pictures.CACHE_CONTROL}
            self._put(file, self.drafts / source, kind)

    def find_missing(self, names: Sequence[str]) -> list[str]:
        found = set[str]()
        for file, _ in self._list(after=names[0]):
            if file[:_NAME_LENGTH] > names[-1]:
                break
            found.add(file)
        return [name for name in names if not found.issuperset(pictures.list_files(name))]

    def delete(self, names: Iterable[str]) -> None:
        with _translate_errors():
            obstore.delete(self._store, [file for name in names for file in pictures.list_files(name)])

    def open(self, file: str) -> str:
        return f"{self.base_url}/{file}"

    def read(self, file: str) -> bytes:
        content = self._read(file)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "There is no such object", file)
        return content

    def list_older(self, moment: float) -> Iterator[str]:
        for file, changed in self._list():
            name = pictures.parse_file(file)
            if name is not None and changed < moment:
                yield name

    def _put(self, file: str, content: bytes | Path, attributes: dict[str, str] | None = None) -> None:
        with _translate_errors(), suppress(AlreadyExistsError):  # after a lost response
            obstore.put(self._store, file, content, attributes=attributes, mode="create")

    def _read(self, file: str) -> bytes | None:
        with _translate_errors(), suppress(FileNotFoundError):
            return bytes(obstore.get(self._store, file).bytes())
        return None

    def _list(self, after: str | None = None) -> Iterator[tuple[str, float]]:  # in ascending order
        with _translate_errors():
            for page in obstore.list(self._store, offset=after, chunk_size=1_000):
                for entry in page:
                    yield entry["path"], entry["last_modified"].timestamp()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (BaseError, FileNotFoundError) as error:  # the bucket itself may be missing
        _log.warning("The bucket of pictures can't be used: %s", str(error).partition("\n")[0])
        raise OSError(errno.EIO, "S3 does not respond as expected") from error  # which reveals no address
