"""Files of listings: exports are read back exactly, and errors are reported per row."""

import io
import re
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.imports import Position
from listings.domain.model import Listing
from listings.service.transfer.escaping import escape_formula, unescape_formula
from listings.service.transfer.file_formats import MAX_ROW_BYTES, Format, ImportFile, detect_format
from listings.service.transfer.row_changes import build_imported_listing, build_listing_change
from listings.service.transfer.rows import COLUMNS, Row
from tests.harness import START

CSV, JSONL = detect_format(Path("a.csv")), detect_format(Path("a.jsonl"))
each_format = pytest.mark.parametrize("file_format", [CSV, JSONL], ids=["CSV", "JSONL"])
NOT_CSV = "The row is not valid CSV: put a cell with a quote or a line break in quotes, and double its quotes"
FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t1",
    "\r1",
    "\n1",
    "  =1",
    " \n-1",
    "\xa0@A1",
    "＝1",
    "＋1",
    "－1",
    " ＠A1",
]

# With many characters that spreadsheets and parsers treat specially.
texts = st.text(
    st.sampled_from("\"',=+-@＝＋－＠\t\r\n\xa0\u3000\ufeff; ")
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=100,  # accepted by every text field
)
required = texts.filter(lambda text: bool(text.strip()))
urls = st.text(st.sampled_from("abc=+-@',\"é🙂."), min_size=1)
timestamps_in_seconds = st.integers(0, START)


def remove_control_characters(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "", text)


@st.composite
def stored_listings(draw: st.DrawFn) -> Listing:
    created, updated = sorted([draw(timestamps_in_seconds), draw(timestamps_in_seconds)])
    deleted_at = draw(st.none() | timestamps_in_seconds)
    return Listing(
        id=draw(st.integers(1, 2**40)) * 1024 + 1,
        account_id=1,
        version=1,
        title=draw(required),
        content=draw(required),
        type=draw(st.sampled_from(["product", "service", "rental", "job"])),
        category=draw(texts),
        images=str(FIELDS["images"].rule(draw(st.lists(urls)))),
        price_cents=draw(st.integers(0, 99_999_999_999)),
        price_type=draw(st.sampled_from(["fixed", "negotiable", "per_hour", "per_night"])),
        location=draw(texts),
        region=draw(texts),
        district=draw(texts),
        latitude=draw(st.none() | st.floats(-90, 90).map(lambda degrees: degrees + 0.0)),
        longitude=draw(st.none() | st.floats(-180, 180).map(lambda degrees: degrees + 0.0)),
        is_active=deleted_at is None and draw(st.booleans()),
        external_id=draw(st.none() | texts.map(remove_control_characters).filter(bool)),
        view_count=draw(st.integers(0, 2**53 - 1)),
        created_at=timestamps.format_timestamp(created),
        updated_at=timestamps.format_timestamp(updated),
        deleted_at=deleted_at,
    )


def read_rows(file_format: Format, data: bytes, start: Position = Position()) -> list[Row]:  # noqa: B008 - a tuple
    file = io.BytesIO(data)
    file.name = "a file"  # like a file on disk
    return list(file_format.read_rows(file, start))


def read_contents(file_format: Format, data: bytes) -> list[Any]:
    rows = read_rows(file_format, data)
    assert [row.error for row in rows] == [None] * len(rows)
    return [dict(row.content) for row in rows]


def find_errors(file_format: Format, data: bytes) -> list[tuple[int, str]]:
    return [(row.line, row.error) for row in read_rows(file_format, data) if row.error is not None]


@each_format
@given(listings=st.lists(stored_listings(), max_size=4))
def test_every_listing_is_read_back_exactly(file_format: Format, listings: list[Listing]) -> None:
    found = read_contents(file_format, file_format.header + file_format.encode(listings))
    assert len(found) == len(listings)
    for listing, content in zip(listings, found, strict=True):
        assert tuple(content) == COLUMNS
        assert content["id"] == listing.id
        assert build_listing_change(content, listing, START, {}, may_restore=True) == {}
        imported = build_imported_listing(content, START, {})
        own = ("view_count", "created_at", "deleted_at")
        assert [getattr(imported, name) for name in own] == [getattr(listing, name) for name in own]
        fields = imported.new.__struct_fields__
        assert [getattr(imported.new, name) for name in fields] == [getattr(listing, name) for name in fields]


@each_format
@given(listings=st.lists(stored_listings(), min_size=2, max_size=4))
def test_reading_can_resume_after_any_row(file_format: Format, listings: list[Listing]) -> None:
    data = file_format.header + file_format.encode(listings)
    rows = read_rows(file_format, data)
    for number, row in enumerate(rows, 1):
        assert read_rows(file_format, data, row.end) == rows[number:]


@given(text=texts)
def test_an_escaped_text_is_not_a_formula_and_can_be_unescaped(text: str) -> None:
    assert unescape_formula(escape_formula(text)) == text
    assert not escape_formula(text).startswith(("\t", "\r", "\n"))
    assert not escape_formula(text).lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_escaped_with_one_more_apostrophe(text: str) -> None:
    assert escape_formula(text) == f"'{text}"
    assert escape_formula(f"''{text}") == f"'''{text}"


@pytest.mark.parametrize("text", ["", "'", "a=1", " a", "'a", ".=1", "1", "'' 1"])
def test_other_text_is_not_escaped(text: str) -> None:
    assert escape_formula(text) == text


def test_escaped_numbers_are_read_as_numbers() -> None:
    (content,) = read_contents(CSV, b"title,latitude,longitude\r\na,'-41.5,-0.5\r\n")
    assert (content["latitude"], content["longitude"]) == (-41.5, -0.5)


def test_csv_has_a_byte_order_mark_and_crlf_for_excel() -> None:
    assert CSV.header.startswith(b"\xef\xbb\xbfid,title,content,")
    assert CSV.header.endswith(f",{COLUMNS[-1]}\r\n".encode())


@each_format
def test_a_byte_order_mark_and_both_line_breaks_are_accepted(file_format: Format) -> None:
    lines = {
        "csv": [b"id,title", b'1025,"a\nb"', b"", b"2049,c"],
        "jsonl": [b'{"id":1025,"title":"a\\nb"}', b" ", b'{"id":2049,"title":"c"}'],
    }[file_format.name]
    expected = [{"id": 1025, "title": "a\nb"}, {"id": 2049, "title": "c"}]
    for mark in (b"", b"\xef\xbb\xbf"):
        for end in (b"\n", b"\r\n"):
            for last in (b"", end):
                assert read_contents(file_format, mark + end.join(lines) + last) == expected


def test_content_and_images_have_synonyms() -> None:
    assert read_contents(CSV, b"title,Description,image\na,b,https://x.example/1.jpg\n") == [
        {"title": "a", "content": "b", "images": ["https://x.example/1.jpg"]}
    ]


def test_column_names_may_be_in_any_case() -> None:
    assert read_contents(CSV, b"TITLE,Content,Price,Colour\na,b,1,red\n") == [
        {"title": "a", "content": "b", "price": 1.0, "Colour": "red"}
    ]


def test_columns_may_be_in_any_order_and_may_be_missing() -> None:
    assert read_contents(CSV, b"price, is_active ,surprise,title\n12.50,TRUE,x,a\n,False,,b\n") == [
        {"price": 12.5, "is_active": True, "surprise": "x", "title": "a"},
        {"price": None, "is_active": False, "surprise": None, "title": "b"},
    ]


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("price", "1250", 1250),
        ("price", "4.5E-05", 4.5e-05),
        ("price", ".5", 0.5),
        ("price", "1e999", float("inf")),
        ("price", "9" * 400, float("inf")),
        ("price", "abc", "abc"),
        ("price", '"$1,250.50"', 1250.5),
        ("price", '"1,5"', "1,5"),
        ("price", "1_000", "1_000"),
        ("price", "nan", "nan"),
        ("price", "٣", "٣"),
        ("id", "1025", 1025),
        ("id", "1025.0", 1025),
        ("id", "1025.5", "1025.5"),
        ("id", "9" * 5000, "9" * 5000),
        ("view_count", "'-1", -1),
        ("is_active", "yes", "yes"),
        ("title", "007", "007"),
        ("title", "true", "true"),
    ],
)
def test_cells_are_converted_by_column(column: str, cell: str, value: object) -> None:
    assert read_contents(CSV, f"{column},region\n{cell},x\n".encode()) == [{column: value, "region": "x"}]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"title=\xc4\x81\x7f&content=Alloy",
            'The row is not valid JSON: it begins with "title=\\u0101\\u007f&content=Al"',
        ),
        (b"[1]", "The row must be a JSON object, got an array"),
        (b'{"title": "\xff"}', "The row is not valid UTF-8"),
        (b'{"title": "\\ud800"}', "The row contains an unpaired surrogate"),
        (b'{"title": "\\\\ud800"', "The row is not valid JSON: truncated"),
        (b'{"title": NaN}', "The row is not valid JSON: invalid character (byte 10)"),
        (b'{"title": ' + b"[" * 100_000, "The row is nested too deeply"),
        (b'{"title": "' + b"x" * MAX_ROW_BYTES + b'"}', "The row must be at most 8388608 bytes"),
    ],
)
def test_an_invalid_json_line_is_reported_and_skipped(data: bytes, expected: str) -> None:
    whole = b'{"id":1025}\n\n' + data + b'\n{"id":2049}\n'
    assert find_errors(JSONL, whole) == [(3, expected)]
    assert [row.content.get("id") for row in read_rows(JSONL, whole)] == [1025, None, 2049]


@pytest.mark.parametrize("header", [b"id,pr\xe9cio", b"id,\xe9,\xe9"])
def test_a_header_that_is_not_utf_8_is_rejected(header: bytes) -> None:
    with pytest.raises(Problem, match=r"The first line of .+ is not valid UTF-8: save") as raised:
        read_rows(CSV, header + b"\n1,a\n")
    assert raised.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"1,a,b", "This row has 3 columns, but the header has 2"),
        (b"1,\xff", "The row is not valid UTF-8: save the file as CSV UTF-8"),
        (b'1,"a\n\xff"', "The row is not valid UTF-8: save the file as CSV UTF-8"),
        (b'1,"a" b', NOT_CSV),
        (b"1,a\rb", NOT_CSV),
        (
            b"1," + b"x" * (1024 * 1024 + 1),
            "A cell must be at most 1048576 characters: check for a missing closing quote",
        ),
        (b"1," + b"x" * MAX_ROW_BYTES, "The row must be at most 8388608 bytes"),
        (b'1,"' + (b"a" * 100_000 + b'\n","') * 90 + b'x"', "The row must be at most 8388608 bytes"),
    ],
)
def test_an_invalid_csv_row_is_reported_and_skipped(data: bytes, expected: str) -> None:
    whole = b'id,title\n1025,"a\nb"\n\n' + data + b"\n2049,c\n"
    found = find_errors(CSV, whole)
    assert found[0] == (5, expected)
    assert read_rows(CSV, whole)[-1].content == {"id": 2049, "title": "c"}


def test_an_unclosed_quote_is_one_error() -> None:
    assert find_errors(CSV, b'id,title\n1025,a\n2049,"b\n3073,c\n') == [(3, "The row ends within a quoted cell")]


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"1025,a\n",
        b"\xff\xfei\0d\0",
        b'"id',
        b"x" * (MAX_ROW_BYTES + 1),
        b"\xef\xbb\xbf",
    ],
    ids=["blank", "no names", "UTF-16", "open quote", "too long", "only a byte-order mark"],
)
def test_a_csv_file_without_a_header_is_rejected(data: bytes) -> None:
    with pytest.raises(Problem, match=r"The first line of a file (must name the columns|is not valid UTF-8)"):
        read_rows(CSV, data)


def test_long_numbers_and_headers_are_read_in_linear_time() -> None:
    def measure(size: int) -> float:
        started = process_time()
        digits = "1" * 50 * size + "x"
        row = f"price,latitude\n{digits},{digits}\n".encode()
        assert read_contents(CSV, row) == [{"price": digits, "latitude": digits}]
        header = ",".join(["title", *map(str, range(10 * size))])
        assert read_rows(CSV, header.encode() + b"\n") == []
        return process_time() - started

    short = min(measure(100) for _ in range(5))
    assert min(measure(1_000) for _ in range(3)) < 40 * short  # quadratic, it takes 100 times as long


@pytest.mark.parametrize(
    ("file_format", "blank"),
    [(CSV, b"\n"), (CSV, b"\r\n"), (CSV, b"\r\r\n"), (JSONL, b"\n"), (JSONL, b" \t\r\n"), (JSONL, b" \r\r \n")],
)
@pytest.mark.parametrize("count", [1, 33, 200_000])
def test_blank_lines_are_skipped_and_counted(file_format: Format, blank: bytes, count: int) -> None:
    head, rows = (
        (b"title\n", [b"a\n", b"b\n"]) if file_format is CSV else (b"", [b'{"title":"a"}\n', b'{"title":"b"}\n'])
    )
    data = head + rows[0] + blank * count + rows[1]
    *found, last = (row for row in read_rows(file_format, data) if not row.is_gap)
    first_line = 1 + head.count(b"\n")
    assert [row.line for row in [*found, last]] == [first_line, first_line + count + 1]
    assert data[last.offset : last.end.offset] == rows[1]
    assert last.end == Position(len(data), first_line + count + 1)


def test_many_blank_lines_cost_no_more_than_their_bytes() -> None:
    started = process_time()
    rows = read_rows(CSV, b"title\n" + b"\n" * 20_000_000 + b"a\n")
    assert process_time() - started < 2  # seconds; line by line, it takes ten times as long
    assert len(rows) > 100  # gaps, at which other tasks run and progress is shown
    assert [row.content for row in rows if not row.is_gap] == [{"title": "a"}]


def test_a_duplicate_column_is_rejected() -> None:
    with pytest.raises(Problem, match="The column title appears twice in a file"):
        read_rows(CSV, b"title,content,title\n")


def test_columns_without_a_name_are_ignored() -> None:
    (row,) = read_rows(CSV, b"id,title,, \n1025,a,b,\n")
    assert row.content == {"id": 1025, "title": "a"}


@pytest.mark.parametrize("name", ["a", "a.json", "csv", ".csv", "-", "a.csv.gz", "a.txt"])
def test_an_unknown_extension_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.jsonl or \.csv or \.xlsx"):
        detect_format(Path(name))


def test_an_extension_may_be_in_capitals() -> None:
    assert detect_format(Path("A.CSV")) is CSV


def test_a_change_of_the_file_during_reading_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":1025}\n' * 3)
    with path.open("rb") as opened:
        file = ImportFile(opened, JSONL)
        assert len(list(file.rows(Position()))) == 3
        rows = file.rows(Position())
        next(rows)
        path.write_text('{"id":2049}\n' * 9)
        with pytest.raises(Problem, match=r"a\.jsonl was changed while it was read"):
            list(rows)


def test_a_csv_header_is_at_most_64_kib() -> None:
    with pytest.raises(Problem, match="must name the columns"):
        read_rows(CSV, b"title,content" + b"," * 70_000 + b"\n")
