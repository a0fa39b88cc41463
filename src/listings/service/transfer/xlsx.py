"""Read and write Excel workbooks (.xlsx) in pieces, with bounded memory. Both are zip files of XML (ECMA-376)."""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import IO, BinaryIO, TypeAlias, cast
from xml.parsers import expat
from xml.sax.saxutils import escape

from listings.domain.errors import Problem
from listings.service.pieces import Pieces

ERROR = "\0"
"""The first character of a cell without a value; the others say why. XML can't contain it."""

_MAX_BYTES = 64 * 1024 * 1024  # unpacked, in all
_MAX_ROWS = 1_048_576  # of Excel
_MAX_COLUMNS = 1_000
_MAX_CELL = 1024 * 1024  # characters
_MAX_STRINGS = 1_000_000  # shared by cells
_MAX_ELEMENTS = 100_000  # of styles and sheets, which are in memory
_PIECE = 64 * 1024
_DATE_FORMATS = range(14, 23)  # of dates and times, which every workbook has
_DATE_LETTERS = re.compile("[dyhs]")
_NOT_LETTERS = re.compile(r'"[^"]*"|\\.|\[[^]]*\]')  # in a format
_DAY_1900, _DAY_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001 - without a time zone
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")  # how Excel writes characters that XML can't contain
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff\ud800-\udfff]|_(?=x[0-9A-Fa-f]{4}_)")

_Attributes: TypeAlias = dict[str, str]


def _refuse(reason: str) -> Problem:
    return Problem("invalid_request", f"The workbook can't be read: {reason}. Save it as CSV UTF-8 instead")


class Workbook:
    """The first visible sheet of a workbook. Every method raises Problem("invalid_request") for an invalid file."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
            raise _refuse("it is not a valid .xlsx file") from error
        self._read = 0

    def read_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the cells of each row that has any."""
        path, first_day = self._find_sheet()
        parser = _CellParser(self._read_formats(), first_day)
        for _ in self._parse("xl/sharedStrings.xml", parser.start, parser.end, parser.data, is_required=False):
            pass
        for _ in self._parse(path, parser.start, parser.end, parser.data):
            rows, parser.rows = parser.rows, []
            yield from rows

    def _parse(
        self,
        path: str,
        start: Callable[[str, _Attributes], None],
        end: Callable[[str], None] = lambda _: None,
        data: Callable[[str], None] = lambda _: None,
        *,
        is_required: bool = True,
    ) -> Iterator[None]:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = data
        parser.StartDoctypeDeclHandler = _refuse_entities
        if not is_required and path not in self._zip.namelist():
            return
        try:
            with self._zip.open(path) as part:
                while piece := part.read(_PIECE):
                    self._read += len(piece)
                    if self._read > _MAX_BYTES:
                        raise _refuse("it has more than 64 MiB")
                    parser.Parse(piece)
                    yield
                parser.Parse(b"", True)  # noqa: FBT003 - positional only
                yield
        except KeyError:
            raise _refuse(f"{path} is missing") from None
        except (expat.ExpatError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError):
            raise _refuse("it is damaged or encrypted") from None

    def _list(self, path: str, *, is_required: bool = True) -> list[tuple[str, _Attributes]]:
        found: list[tuple[str, _Attributes]] = []

        def start(name: str, attributes: _Attributes) -> None:
            if len(found) >= _MAX_ELEMENTS:
                raise _refuse("it has too many styles or sheets")
            found.append((_strip(name), {_strip(one): value for one, value in attributes.items()}))

        for _ in self._parse(path, start, is_required=is_required):
            pass
        return found

    def _find_sheet(self) -> tuple[str, datetime]:  # with the day that has the number 0
        elements = self._list("xl/workbook.xml")
        sheets = [one for name, one in elements if name == "sheet" and one.get("state", "visible") == "visible"]
        if not sheets:
            raise _refuse("it has no visible sheet")
        targets = {one.get("Id"): one.get("Target", "") for _, one in self._list("xl/_rels/workbook.xml.rels")}
        target = targets.get(sheets[0].get("id"), "")
        is_1904 = any(one.get("date1904") in {"1", "true"} for name, one in elements if name == "workbookPr")
        return (target[1:] if target.startswith("/") else f"xl/{target}"), _DAY_1904 if is_1904 else _DAY_1900

    def _read_formats(self) -> list[bool]:  # whether each style of cells shows dates
        own: dict[str, bool] = {}
        formats: list[bool] = []
        parent = ""
        for name, one in self._list("xl/styles.xml", is_required=False):
            number = one.get("numFmtId", "0")
            if name == "numFmt":
                own[number] = bool(_DATE_LETTERS.search(_NOT_LETTERS.sub("", one.get("formatCode", "").lower())))
            elif name == "xf" and parent == "cellXfs":
                formats.append(own.get(number, number.isdecimal() and int(number) in _DATE_FORMATS))
            parent = name if name in {"cellXfs", "cellStyleXfs", "cellStyles"} else parent
        return formats


def _strip(name: str) -> str:
    return name.rpartition(":")[2]


def _refuse_entities(*_: object) -> None:
    raise _refuse("it defines entities")


class _CellParser:
    def __init__(self, formats: list[bool], first_day: datetime) -> None:
        self.rows: list[tuple[int, list[str]]] = []
        self._formats, self._first_day = formats, first_day
        self._strings: list[str] = []
        self._cells: list[str] = []
        self._number = 0
        self._cell: _Attributes = {}
        self._parts: dict[str, list[str]] = {}
        self._name, self._size = "", 0
        self._is_phonetic = False  # a guide to the pronunciation is not part of a text

    def start(self, name: str, attributes: _Attributes) -> None:
        if name in {"c", "si"}:
            self._cell, self._parts, self._size = attributes, {}, 0
        elif name in {"t", "v", "f"}:
            if not self._is_phonetic:
                self._name = name
                self._parts.setdefault(name, [])
        elif name == "row":
            number = attributes.get("r", "")
            before, self._number = self._number, int(number) if number.isdecimal() else self._number + 1
            if not before < self._number <= _MAX_ROWS:
                raise _refuse("its rows are not in order, or too many")
        elif name == "rPh":
            self._is_phonetic = True
        elif ":" in name:
            self.start(_strip(name), attributes)

    def data(self, text: str) -> None:
        if self._name:
            self._parts[self._name].append(text)
            self._size += len(text)
            if self._size > _MAX_CELL:
                raise _refuse("a cell is too long")

    def end(self, name: str) -> None:
        if name in {"t", "v", "f"}:
            self._name = ""
        elif name == "c":
            reference = self._cell.get("r")
            index = len(self._cells) if reference is None else _read_column(reference[:4].rstrip("0123456789"))
            if not len(self._cells) <= index < _MAX_COLUMNS:
                raise _refuse(f"its columns are not in order, or more than {_MAX_COLUMNS:,}")
            self._cells += [""] * (index - len(self._cells))
            self._cells.append(self._read_value())
        elif name == "row":
            if any(self._cells):
                self.rows.append((self._number, self._cells))
            self._cells = []
        elif name == "si":
            if len(self._strings) >= _MAX_STRINGS:
                raise _refuse("it has too many texts")
            self._strings.append(self._join("t"))
        elif name == "rPh":
            self._is_phonetic = False
        elif ":" in name:
            self.end(_strip(name))

    def _join(self, name: str) -> str:
        parts = self._parts.get(name, ())
        text = parts[0] if len(parts) == 1 else "".join(parts)
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text

    def _read_value(self) -> str:
        kind = self._cell.get("t", "n")
        text = self._join("t" if kind == "inlineStr" else "v")
        if kind == "e":
            return f"{ERROR}the error {text[:20]}"
        if "f" in self._parts and "v" not in self._parts:
            return f"{ERROR}a formula without a value"
        if kind == "s":
            number = int(text) if text.isdecimal() else _MAX_STRINGS
            if number >= len(self._strings):
                raise _refuse("it refers to a missing text")
            return self._strings[number]
        if kind == "b":
            return "true" if text.strip() == "1" else "false"
        if kind != "n":
            return text
        style = self._cell.get("s", "0")
        is_date = style.isdecimal() and int(style) < len(self._formats) and self._formats[int(style)]
        return _format_number(text.strip(), self._first_day if is_date else None)


@lru_cache(_MAX_COLUMNS)
def _read_column(letters: str) -> int:
    index = 0
    for letter in letters.upper():
        index = 26 * index + ord(letter) - 64
    return index - 1


def _format_number(text: str, first_day: datetime | None) -> str:
    # Excel shows at most 15 digits.
    if not text or (text.isdecimal() and first_day is None):
        return text
    try:
        number = float(text)
        if first_day is not None:
            moment = first_day + timedelta(seconds=round(number * 86_400))
            return f"{moment:%Y-%m-%d %H:%M:%S}" if number % 1 else f"{moment:%Y-%m-%d}"
    except (ValueError, OverflowError):
        return text
    short = f"{number:.15g}"
    return str(int(float(short))) if "e" in short and float(short).is_integer() and abs(number) < 10**21 else short


# Writing

_NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook {_NAMESPACE} xmlns:r="{_OFFICE}">'
    '<sheets><sheet name="Listings" sheetId="1" r:id="r1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="r2" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
    "xl/styles.xml": f'<styleSheet {_NAMESPACE}><fonts count="1"><font/></fonts>'
    '<fills count="1"><fill/></fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="2"><xf/><xf numFmtId="49" applyNumberFormat="1"/></cellXfs></styleSheet>',
}
_MAX_EXCEL_CELL = 32_767  # UTF-16 code units


class WorkbookWriter:
    """Writes a workbook with one sheet of text cells, which a spreadsheet does not change."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._zip = zipfile.ZipFile(cast("IO[bytes]", self._pieces), "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        for path, text in _PARTS.items():
            self._zip.writestr(zipfile.ZipInfo(path), f'<?xml version="1.0" encoding="UTF-8"?>{text}')
        sheet = zipfile.ZipInfo("xl/worksheets/sheet1.xml")
        sheet.compress_type = zipfile.ZIP_DEFLATED
        self._sheet = self._zip.open(sheet, "w", force_zip64=True)
        self._sheet.write(f'<worksheet {_NAMESPACE}><cols><col min="1" max="99" width="16" style="1"/></cols>'.encode())
        self._sheet.write(b"<sheetData>")

    def write(self, rows: Iterable[Iterable[str]]) -> bytes:
        """Add rows, and return the next bytes of the file."""
        text = "".join(f"<row>{''.join(map(_write_cell, row))}</row>" for row in rows)
        self._sheet.write(text.encode())
        return self._pieces.take()

    def finish(self) -> bytes:
        """Return the last bytes of the file."""
        self._sheet.write(b"</sheetData></worksheet>")
        self._sheet.close()
        self._zip.close()
        return self._pieces.take()


def _write_cell(text: str) -> str:
    if not text:
        return '<c s="1"/>'
    if len(text) > _MAX_EXCEL_CELL // 2:
        text = text.encode("utf-16-le", "surrogatepass")[: 2 * _MAX_EXCEL_CELL].decode("utf-16-le", "ignore")
    safe = escape(_UNSAFE.sub(lambda match: f"_x{ord(match[0]):04X}_", text))
    return f'<c s="1" t="inlineStr"><is><t xml:space="preserve">{safe}</t></is></c>'
