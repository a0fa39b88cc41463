"""Files of listings: what is written is read again, to the letter, and what is wrong is told row by row."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listings.contract.imports import Position
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.model import Listing
from listings.service.transfer.file_formats import LONGEST_ROW, File, Format, escaped, format_of, unescaped
from listings.service.transfer.importer import listing_change, new_listing
from listings.service.transfer.rows import COLUMNS, Row
from tests.harness import START

CSV, JSONL = format_of(Path("a.csv")), format_of(Path("a.jsonl"))
both = pytest.mark.parametrize("form", [CSV, JSONL], ids=["CSV", "JSONL"])
NOT_CSV = "The row is not valid CSV: a cell with a quote or a line break stands in quotes, its own quotes doubled"
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
NOW = timestamps.text_of(START)

# What spreadsheets and parsers stumble over, often.
texts = st.text(
    st.sampled_from("\"',=+-@\t\r\n\ufeff; ") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=100,  # what every field takes
)
required = texts.filter(lambda text: bool(text.strip()))
addresses = st.text(st.sampled_from("abc=+-@',\"é🙂."), min_size=1)
moments = st.integers(0, START)


def in_cents(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@st.composite
def stored(draw: st.DrawFn) -> Listing:
    """Any listing that can be stored."""
    created, updated = sorted([draw(moments), draw(moments)])
    deleted_at = draw(st.none() | moments)
    return Listing(
        id=draw(st.integers(1, 2**40)) * 1024 + 1,
        account_id=1,
        version=1,
        title=draw(required),
        content=draw(required),
        type=draw(st.sampled_from(["product", "service", "rental", "job"])),
        category=draw(texts),
        images=str(FIELDS["images"].rule(draw(st.lists(addresses)))),
        price_cents=draw(in_cents(99_999_999_999)),
        price_type=draw(st.sampled_from(["fixed", "negotiable", "per_hour", "per_night"])),
        location=draw(texts),
        region=draw(texts),
        district=draw(texts),
        latitude=draw(st.none() | st.floats(-90, 90).map(lambda degrees: degrees + 0.0)),
        longitude=draw(st.none() | st.floats(-180, 180).map(lambda degrees: degrees + 0.0)),
        is_active=deleted_at is None and draw(st.booleans()),
        view_count=draw(st.integers(0, 2**53 - 1)),
        created_at=timestamps.text_of(created),
        updated_at=timestamps.text_of(updated),
        deleted_at=deleted_at,
    )


def rows_of(form: Format, data: bytes, start: Position = Position()) -> list[Row]:  # noqa: B008 - a tuple
    file = io.BytesIO(data)
    file.name = "a file"  # as an opened one has
    return list(form.rows(file, start))


def contents(form: Format, data: bytes) -> list[Any]:
    rows = rows_of(form, data)
    assert [row.fault for row in rows] == [None] * len(rows)
    return [dict(row.content) for row in rows]


def faults(form: Format, data: bytes) -> list[tuple[int, str]]:
    return [(row.line, row.fault) for row in rows_of(form, data) if row.fault is not None]


@both
@given(listings=st.lists(stored(), max_size=4))
def test_every_listing_comes_back_exactly(form: Format, listings: list[Listing]) -> None:
    found = contents(form, form.header + form.encode(listings))
    assert len(found) == len(listings)
    for listing, content in zip(listings, found, strict=True):
        assert tuple(content) == COLUMNS
        assert content["id"] == listing.id
        assert listing_change(content, listing, START) == {}
        made = new_listing(content, START)
        kept = ("view_count", "created_at", "updated_at", "deleted_at")
        assert [getattr(made, name) for name in kept] == [getattr(listing, name) for name in kept]
        fields = made.new.__struct_fields__
        assert [getattr(made.new, name) for name in fields] == [getattr(listing, name) for name in fields]


@both
@given(listings=st.lists(stored(), min_size=2, max_size=4))
def test_a_file_is_read_on_behind_any_of_its_rows(form: Format, listings: list[Listing]) -> None:
    data = form.header + form.encode(listings)
    rows = rows_of(form, data)
    for number, row in enumerate(rows, 1):
        assert rows_of(form, data, row.end) == rows[number:]


@given(text=texts)
def test_what_is_escaped_is_no_formula_and_comes_back(text: str) -> None:
    assert unescaped(escaped(text)) == text
    assert not escaped(text).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert re.fullmatch(r"'+[=+\-@\t\r].*", escaped(text), re.DOTALL) is not None or escaped(text) == text


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_escaped_by_one_apostrophe_more(text: str) -> None:
    assert escaped(text) == f"'{text}"
    assert escaped(f"''{text}") == f"'''{text}"
    assert escaped(f" {text}") == f" {text}"


def test_numbers_are_escaped_too() -> None:
    (content,) = contents(CSV, b"title,latitude,longitude\r\na,'-41.5,-0.5\r\n")
    assert (content["latitude"], content["longitude"]) == (-41.5, -0.5)


def test_csv_is_for_excel() -> None:
    assert CSV.header.startswith(b"\xef\xbb\xbfid,title,content,")
    assert CSV.header.endswith(b",deleted_at\r\n")


@both
def test_a_byte_order_mark_and_other_line_ends_are_fine(form: Format) -> None:
    lines = {
        "csv": [b"id,title", b'1025,"a\nb"', b"", b"2049,c"],
        "jsonl": [b'{"id":1025,"title":"a\\nb"}', b" ", b'{"id":2049,"title":"c"}'],
    }[form.name]
    expected = [{"id": 1025, "title": "a\nb"}, {"id": 2049, "title": "c"}]
    for mark in (b"", b"\xef\xbb\xbf"):
        for end in (b"\n", b"\r\n"):
            for last in (b"", end):
                assert contents(form, mark + end.join(lines) + last) == expected


def test_columns_may_stand_in_any_order_and_be_left_out() -> None:
    assert contents(CSV, b"price, is_active ,surprise,title\n12.50,TRUE,x,a\n,False,,b\n") == [
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
        ("price", "1_000", "1_000"),
        ("price", "nan", "nan"),
        ("price", "٣", "٣"),
        ("id", "1025", 1025),
        ("id", "1025.0", "1025.0"),
        ("id", "9" * 5000, "9" * 5000),
        ("view_count", "'-1", -1),
        ("is_active", "yes", "yes"),
        ("images", "a  b\tc", ["a", "b", "c"]),
        ("images", "'=a b", ["=a", "b"]),
        ("title", "007", "007"),
        ("title", "true", "true"),
    ],
)
def test_cells_become_the_values_of_their_columns(column: str, cell: str, value: object) -> None:
    assert contents(CSV, f"{column},region\n{cell},x\n".encode()) == [{column: value, "region": "x"}]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"nope", "The row is not valid JSON: invalid character (byte 4)"),
        (b"[1]", "The row must be a JSON object, got a list"),
        (b'{"title": "\xff"}', "The row is not valid UTF-8"),
        (b'{"title": "\\ud800"}', "The row contains half of a surrogate pair"),
        (b'{"title": NaN}', "The row is not valid JSON: invalid character (byte 10)"),
        (b'{"title": ' + b"[" * 100_000, "The row is nested too deeply"),
        (b'{"title": "' + b"x" * LONGEST_ROW + b'"}', "The row must be at most 8388608 bytes"),
    ],
)
def test_a_json_line_at_fault_is_told_and_passed_over(data: bytes, expected: str) -> None:
    whole = b'{"id":1025}\n\n' + data + b'\n{"id":2049}\n'
    assert faults(JSONL, whole) == [(3, expected)]
    assert [row.content.get("id") for row in rows_of(JSONL, whole)] == [1025, None, 2049]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"1", "The row must have as many cells as the header, 2, got 1"),
        (b"1,a,", "The row must have as many cells as the header, 2, got 3"),
        (b"1,\xff", "The row is not valid UTF-8"),
        (b'1,"a\n\xff"', "The row is not valid UTF-8"),
        (b'1,"a" b', NOT_CSV),
        (b"1,a\rb", NOT_CSV),
        (
            b"1," + b"x" * (1024 * 1024 + 1),
            "A cell must be at most 1048576 characters; is the quote behind it missing?",
        ),
        (b"1," + b"x" * LONGEST_ROW, "The row must be at most 8388608 bytes"),
        (b'1,"' + (b"a" * 100_000 + b'\n","') * 90 + b'x"', "The row must be at most 8388608 bytes"),
    ],
)
def test_a_csv_row_at_fault_is_told_and_passed_over(data: bytes, expected: str) -> None:
    whole = b'id,title\n1025,"a\nb"\n\n' + data + b"\n2049,c\n"
    found = faults(CSV, whole)
    assert found[0] == (5, expected)
    assert rows_of(CSV, whole)[-1].content == {"id": 2049, "title": "c"}


def test_a_quote_that_is_never_closed_is_one_fault() -> None:
    assert faults(CSV, b'id,title\n1025,a\n2049,"b\n3073,c\n') == [(3, "The row ends within a quoted cell")]


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"1025,a\n",
        b"\xff\xfei\0d\0",
        b"id;title\n1025;a\n",
        b'"id',
        b"x" * (LONGEST_ROW + 1),
        b"\xef\xbb\xbf",
    ],
    ids=["blank", "no names", "UTF-16", "semicolons", "an open quote", "too long", "a mark alone"],
)
def test_without_a_header_the_whole_file_is_refused(data: bytes) -> None:
    with pytest.raises(Problem, match="The first line of a file must name the columns"):
        rows_of(CSV, data)


def test_a_column_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(Problem, match="The column title stands in a file twice"):
        rows_of(CSV, b"title,content,title\n")


@pytest.mark.parametrize("name", ["a", "a.json", "csv", ".csv", "-", "a.csv.gz", "a.txt"])
def test_another_ending_tells_no_format(name: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.jsonl or \.csv"):
        format_of(Path(name))


def test_an_ending_in_capitals_is_the_same() -> None:
    assert format_of(Path("A.CSV")) is CSV


def test_a_file_that_is_changed_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":1025}\n' * 3)
    with path.open("rb") as opened:
        file = File(opened, JSONL)
        assert len(list(file.rows(Position()))) == 3
        rows = file.rows(Position())
        next(rows)
        path.write_text('{"id":2049}\n' * 9)
        with pytest.raises(Problem, match=r"a\.jsonl was changed while it was read"):
            list(rows)
