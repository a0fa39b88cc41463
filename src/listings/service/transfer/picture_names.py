"""Cells that name the files of uploaded pictures."""

import re
from collections.abc import Collection, Iterator
from pathlib import PureWindowsPath
from typing import cast

from listings.domain.faults import FieldError, preview
from listings.domain.fields import FIELDS
from listings.domain.pictures import build_path
from listings.service.transfer.rows import Row
from listings.store.store import Store

_URL = re.compile(r"https?:|/", re.IGNORECASE)
_SEPARATORS = (re.compile(r"\s*[,;|]\s*"), re.compile(r"[\s,;|]+"))  # a file name may have spaces
_MAX_CACHED = 10_000
_LATER = "0" * 32


class PictureNames:
    """Finds the newest picture of an account with each file name."""

    def __init__(self, store: Store, account_id: int, expected: Collection[str] = ()) -> None:
        """`expected`: file names of pictures that will be uploaded before the rows are imported."""
        self._store = store
        self._account_id = account_id
        self._expected = {name.casefold() for name in expected}
        self._found: dict[str, str | None] = {}

    async def replace(self, row: Row) -> Row:
        """Return the row with URLs instead of file names, or with an error if no picture has one of the names."""
        if "images" not in row.cell_errors:
            return row
        errors = {name: error for name, error in row.cell_errors.items() if name != "images"}
        urls: list[str] = []
        try:
            for index, part in enumerate(cast("list[str]", FIELDS["images"].rule.from_text(row.cells["images"]))):
                urls += [part] if _URL.match(part) else await self._find_names(part, index)
        except FieldError as error:
            return row._replace(cell_errors={**errors, "images": error.with_traceback(None)})
        return row._replace(content={**row.content, "images": urls}, cell_errors=errors)

    async def _find_names(self, text: str, index: int) -> list[str]:
        for names in _split(text):
            urls = [await self._find(name) for name in names]
            if None not in urls:
                return [url for url in urls if url is not None]
        message = f"[{index}] must be a URL or the file name of an uploaded picture, got {preview(text)}"
        raise FieldError(message, "not_allowed")

    async def _find(self, name: str) -> str | None:
        file_name = PureWindowsPath(name).name.casefold()
        if file_name in self._expected:
            return build_path(_LATER)
        if file_name not in self._found:
            if len(self._found) >= _MAX_CACHED:
                self._found.clear()
            picture = await self._store.find_newest_picture(self._account_id, file_name)
            self._found[file_name] = build_path(picture.name) if picture is not None else None
        return self._found[file_name]


def _split(text: str) -> Iterator[list[str]]:
    yield [text]  # as one name
    for separator in _SEPARATORS:
        yield [name for name in separator.split(text) if name]
