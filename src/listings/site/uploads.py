"""Forms with pictures: their files go piece by piece to unlinked temporary files, never to memory."""

import io
import re
from collections.abc import AsyncGenerator
from typing import BinaryIO, cast

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from listings.domain.errors import Problem
from listings.http.body_files import BodyFolder
from listings.site.context import held_of, site_of
from listings.site.visitor import owner_of

MAX_FORM_BYTES = 130 * 1024 * 1024
"""The largest form with pictures."""
MAX_FILES = 300

_PATHS = re.compile(r"/console/(?:pictures|import/pictures|listings/(?:new|[0-9]+)(?:/preview)?)")
_MAX_FIELDS = 300


def is_upload(request: Request) -> bool:
    """Return whether a request may have a form with pictures."""
    is_multipart = request.headers.get("content-type", "").lower().startswith("multipart/form-data")
    return is_multipart and _PATHS.fullmatch(request.scope["path"]) is not None


async def read_upload_form(request: Request) -> FormData:
    """Return a member's form with files, which are open until the response is sent.

    Raises Problem: malformed_request, body_too_large; Unavailable if too many pictures are being received.
    """
    folder = site_of(request).options.upload_folder
    if folder is None:
        raise AssertionError("build_pages sets the folder")
    parser = _Parser(request, _Received(folder, request))
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem("malformed_request", error.message) from error
    held_of(request).push_async_callback(form.close)
    return form


class _Received:
    # Apart from the parser, whose texts would otherwise stay in memory until the response is sent.

    def __init__(self, folder: BodyFolder, request: Request) -> None:
        self._folder, self._owner = folder, owner_of(request)[1]
        self._size = 0
        folder.reserve(self._owner, 0, 1)
        held_of(request).callback(lambda: folder.release(self._owner, self._size, 1))

    def add(self, size: int) -> None:
        self._folder.reserve(self._owner, size, 0)
        self._size += size

    def create(self) -> BinaryIO:
        return io.BufferedRandom(cast("io.FileIO", self._folder.create()))


class _Parser(MultiPartParser):
    def __init__(self, request: Request, received: _Received) -> None:
        max_text = site_of(request).options.max_body_bytes
        pieces = cast("AsyncGenerator[bytes, None]", request.state.stream_upload(MAX_FORM_BYTES))
        super().__init__(request.headers, pieces, max_files=MAX_FILES, max_fields=_MAX_FIELDS, max_part_size=max_text)
        self._received = received
        self._max_text = max_text
        self._text_bytes = 0

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        spooled = self._current_part.file
        if spooled is not None:  # Starlette's files are in memory until they are large
            self._files_to_close_on_error.pop().close()
            file = self._received.create()
            self._files_to_close_on_error.append(file)  # type: ignore[arg-type]  # it only closes it
            self._current_part.file = UploadFile(file, size=0, filename=spooled.filename, headers=spooled.headers)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is None:
            self._text_bytes += end - start
            if self._text_bytes > self._max_text:
                raise MultiPartException(f"The texts of a form can have at most {self._max_text} bytes")
        else:
            self._received.add(end - start)
        super().on_part_data(data, start, end)
