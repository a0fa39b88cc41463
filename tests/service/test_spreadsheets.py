"""Files of spreadsheets: round trips, encodings, delimiters, and cells as people write them."""

import io
import zipfile

import pytest

from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.spreadsheets import is_spreadsheet_form
from listings.service.transfer import xlsx
from listings.service.transfer.columns import ReadOptions
from listings.service.transfer.xlsx import Workbook
from tests.service.importing import Shop
from tests.service.spreadsheet_model import save

LONG = "é" * 40_000


ODD = [
    *("00117035", "0", "12E5", "9421012921780", "1234567890123456789", "1/2", "mar-1", "2026-11-29", "TRUE", "'5"),
    *("5.10", "=1+1", "-5", "+7", "'=1", "sku-17", "10:30", ".5", " S1 "),
]


@pytest.mark.parametrize("drop", [False, True])
def test_a_round_trip_through_excel_changes_nothing(shop: Shop, *, drop: bool) -> None:
    for text in ODD:
        shop.create(title=f"x{text}", external_id=text, content=f"one\r\ntwo\rthree {text}", category=text)
    deleted = shop.create(title="0042", content=LONG, category="2026-11-29", price=450.5, latitude=-41.25)
    shop.change(deleted)
    before = shop.listings()
    assert set(shop.outcomes(save(shop.export(), drop_trailing=drop))) == {"unchanged"}
    assert shop.listings() == before


@pytest.mark.parametrize("text", ODD)
def test_an_external_id_survives_its_cell(text: str) -> None:
    rule = FIELDS["external_id"].rule
    assert rule.from_cell(rule.to_cell(text)) == text
    assert not rule.to_cell("sku-17").startswith("'")
    assert rule.to_cell("00117035") == "'00117035"


@pytest.mark.parametrize(
    ("stored", "cell", "is_same"),
    [
        ("00117035", "117035", True),
        ("28525", "28525.0", True),
        ("12E5", "1.20E+06", True),
        ("12E5", "1200000", True),
        ("9421012921780", "9.42101E+12", True),
        ("1234567890123456789", "1234567890123450000", True),
        ("2026-11-29 03:09:05", "29/11/2026 3:09", True),
        ("2026-11-29 15:09:05", "11/29/2026 3:09:05 PM", True),
        ("1/2", "2-Jan", True),
        ("mar-1", "1-Mar", True),
        ("true", "TRUE", True),
        ("a\r\nb", "a\nb", True),
        ("00117035", "117036", False),
        ("9421012921780", "9.42102E+12", False),
        ("2026-11-29 03:09:05", "30/11/2026 3:09", False),
        ("2026-11-29 03:09:05", "29/11/2026 3:10", False),
        ("1/2", "01/02/26", True),
        ("1/2", "2026-02-01", True),
        ("1/2", "2026-03-01", False),
        ("sku-1", "sku-01", False),
        ("a", "a ", False),
        ("1" * 500, "1" * 499, False),
    ],
)
def test_what_a_spreadsheet_makes_of_a_text_is_recognised(stored: str, cell: str, *, is_same: bool) -> None:
    assert is_spreadsheet_form(stored, cell) is is_same


def import_cells(shop: Shop, column: str, cell: str) -> list[str]:
    quoted = '"' + cell.replace('"', '""') + '"'
    return shop.outcomes(f"title,content,{column}\nA,c,{quoted}\n")


@pytest.mark.parametrize(
    ("cell", "cents", "kind"),
    [
        ("$1,250.00", 125_000, "fixed"),
        ("1,250", 125_000, "fixed"),
        ("NZ$450", 45_000, "fixed"),
        ("450 NZD", 45_000, "fixed"),
        ("450 each", 45_000, "fixed"),
        ("1’250", 125_000, "fixed"),
        ("450 ono", 45_000, "negotiable"),
        ("$450 o.n.o.", 45_000, "negotiable"),
        ("450 (neg)", 45_000, "negotiable"),
        ("POA", 0, "fixed"),
        ("450.50", 45_050, "fixed"),
    ],
)
def test_a_price_is_read_as_people_write_it(shop: Shop, cell: str, cents: int, kind: str) -> None:
    assert import_cells(shop, "price", cell) == ["created"]
    (listing,) = shop.listings()
    assert (listing.price_cents, listing.price_type) == (cents, kind)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("1.250", 'price must be a number like 1250 or 1.25, got "1.250"'),
        ("1,25", 'price must be a number, got "1,25"'),
        ("400-500", 'price must be a number, got "400-500"'),
        ("from 450", 'price must be a number, got "from 450"'),
        ("free", 'price must be a number, got "free"'),
        ("US$450", 'price must be in New Zealand dollars, got "US$450"'),
        ("£450", 'price must be in New Zealand dollars, got "£450"'),
        ("450 USD", 'price must be in New Zealand dollars, got "450 USD"'),
    ],
)
def test_another_price_is_rejected_with_the_reason(shop: Shop, cell: str, reason: str) -> None:
    assert import_cells(shop, "price", cell) == [reason]


@pytest.mark.parametrize(
    ("cell", "cents"), [("12,50", 1_250), ("1.250,00", 125_000), ("1.250.000", 125_000_000), ("12.50", 1_250)]
)
def test_in_files_with_semicolons_a_comma_separates_decimals(shop: Shop, cell: str, cents: int) -> None:
    assert shop.outcomes(f"title;content;price\nA;c;{cell}\n") == ["created"]
    assert shop.listings()[0].price_cents == cents


URLS = ["https://x.example/1.jpg", "https://x.example/2,a.jpg"]


@pytest.mark.parametrize("separator", [" ", ",", ", ", "|", " | ", ";", "\n", "\r\n", " \n "])
def test_urls_of_pictures_may_be_separated_in_any_way(shop: Shop, separator: str) -> None:
    assert import_cells(shop, "images", separator.join(URLS)) == ["created"]
    assert import_cells(shop, "image", str(URLS).replace("'", '"')) == ["created"]
    assert [FIELDS["images"].rule.to_text(one.images).split("\n") for one in shop.listings()] == [URLS, URLS]


@pytest.mark.parametrize(
    "cell",
    ["https://cdn.example/my photo 1.jpg", "photo 1.jpg", "photo.jpg", "C:\\me\\1.jpg", "www.x.example/1.jpg", "[1]"],
)
def test_a_picture_without_a_url_is_rejected(shop: Shop, cell: str) -> None:
    (reason,) = import_cells(shop, "images", cell)
    assert reason.startswith("images[0] must be")
    form = FIELDS["images"]
    assert form.strict_rule is not None
    with pytest.raises(ValueError, match="must be"):
        form.strict_rule(form.rule.from_text(cell))


def test_spaces_and_apostrophes_around_article_numbers_are_removed(shop: Shop) -> None:
    assert shop.outcomes("title,content,sku\nA,c,S1\nB,c,'00123\nC,c,\u00a0S2 \n") == ["created"] * 3
    assert [listing.external_id for listing in shop.listings()] == ["S1", "00123", "S2"]
    assert shop.outcomes("title,content,sku\nB,c,S3\nC,c, S3\n")[0].startswith('external_id "S3" is in lines 2 and 3')


def test_a_shortened_article_number_is_rejected(shop: Shop) -> None:
    (reason,) = shop.outcomes("title,content,sku\nA,c,9.42101E+12\n")
    assert reason.startswith('external_id was shortened by a spreadsheet, got "9.42101E+12"')


def test_empty_rows_and_cells_are_skipped(shop: Shop) -> None:
    text = "title,content,price,external_id\nRow,c,1,b\n,,,\n , ,,\n\nShort,c\nLong,c,2,d,,\n"
    assert shop.outcomes(text) == ["created"] * 3
    assert shop.outcomes("title,content\nA,c,,x\n") == ["This row has 4 columns, but the header has 2"]


@pytest.mark.parametrize(
    "content",
    [
        "title;content;price\nKōwhai;c;5\n".encode(),
        "title\tcontent\tprice\nKōwhai\tc\t5\n".encode(),
        "title|content|price\nKōwhai|c|5\n".encode(),
        "sep=;\r\ntitle;content;price\r\nKōwhai;c;5\r\n".encode(),
        "\ufefftitle,content,price\nKōwhai,c,5\n".encode("utf-16-le"),
        "\ufefftitle\tcontent\tprice\r\nKōwhai\tc\t5\r\n".encode("utf-16-be"),
        'title,content,price\rKōwhai,"c\nc",5\r'.encode(),
        "\ufefftitle;content;price\rKōwhai;c;5\r".encode("utf-16-le"),
    ],
)
def test_delimiters_and_encodings_are_recognised(shop: Shop, content: bytes) -> None:
    assert shop.outcomes(content) == ["created"]
    assert (shop.titles(), shop.listings()[0].price_cents) == (["Kōwhai"], 500)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_json_lines_with_a_byte_order_mark_keep_their_line_numbers(shop: Shop, encoding: str) -> None:
    text = '\ufeff{"title":"Kōwhai 🚲","content":"c"}\r\n\r\n{"title":"Lamp"}\r\n{"title":"Ōtaki","content":"c"}\r\n'
    assert [one[:2] for one in shop.run(text.encode(encoding), "a.jsonl")] == [
        (1, "created"),
        (3, "content is required"),
        (4, "created"),
    ]
    assert shop.titles() == ["Kōwhai 🚲", "Ōtaki"]


def test_windows_1252_is_read_unless_the_file_is_broken_utf_8(shop: Shop) -> None:
    assert shop.outcomes("title,content\nCafé – “new”,c\n".encode("cp1252")) == ["created"]
    assert shop.titles() == ["Café – “new”"]
    broken = "title,content\nCafé,c\nCaf\xe9,c\n".encode("latin-1").replace(b"Caf\xe9,c\nC", "Café,c\nC".encode())
    assert shop.outcomes(broken) == ["created", "The row is not valid UTF-8: save the file as CSV UTF-8"]


NAMESPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def build_workbook(rows: str, *, strings: str = "", sheets: str = "", styles: str = "", workbook: str = "") -> bytes:
    data = io.BytesIO()
    sheets = sheets or '<sheet name="A" sheetId="1" r:id="r1"/>'
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(
            "xl/workbook.xml",
            f'<workbook {NAMESPACE} xmlns:r="{RELATIONS}">{workbook}<sheets>{sheets}</sheets></workbook>',
        )
        file.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="x"><Relationship Id="r0" Target="worksheets/no.xml"/>'
            '<Relationship Id="r1" Target="/xl/worksheets/sheet1.xml"/></Relationships>',
        )
        file.writestr("xl/worksheets/sheet1.xml", f"<worksheet {NAMESPACE}><sheetData>{rows}</sheetData></worksheet>")
        file.writestr("xl/sharedStrings.xml", f"<sst {NAMESPACE}>{strings}</sst>")
        file.writestr("xl/styles.xml", f"<styleSheet {NAMESPACE}>{styles}</styleSheet>")
    return data.getvalue()


def read_workbook(data: bytes) -> list[tuple[int, list[str]]]:
    return list(Workbook(io.BytesIO(data)).read_rows())


STYLES = (
    '<numFmts><numFmt numFmtId="170" formatCode="yyyy\\-mm"/>'
    '<numFmt numFmtId="171" formatCode="0.00&quot;d&quot;"/></numFmts>'
    '<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/><xf numFmtId="171"/></cellXfs>'
)


def test_a_workbook_is_read_by_cell_references() -> None:
    rows = (
        '<row r="2"><c r="B2" t="s"><v>1</v></c>'
        '<c r="D2" t="inlineStr"><is><r><t>in</t></r><r><t>line</t></r></is></c></row>'
        '<row r="5"><c r="A5"><v>0.30000000000000004</v></c><c t="b"><v>1</v></c><c r="C5" s="1"><v>46355</v></c>'
        '<c r="D5" s="2"><v>46355.5</v></c><c r="E5" s="3"><v>9421012921780</v></c>'
        '<c r="F5" t="str"><f>A1</f><v>ok</v></c></row>'
        '<row r="6"><c r="A6" t="e"><v>#REF!</v></c><c r="B6"><f>A1</f></c></row>'
    )
    strings = "<si><t>no</t></si><si><r><t>two </t></r><r><t>parts_x000D_</t></r><rPh><t>x</t></rPh></si>"
    assert read_workbook(build_workbook(rows, strings=strings, styles=STYLES)) == [
        (2, ["", "two parts\r", "", "inline"]),
        (5, ["0.3", "true", "2026-11-29", "2026-11-29 12:00:00", "9421012921780", "ok"]),
        (6, ["\0the error #REF!", "\0a formula without a value"]),
    ]


def test_the_first_visible_sheet_is_read_and_dates_may_count_from_1904() -> None:
    sheets = '<sheet name="H" state="hidden" r:id="r0"/><sheet name="A" r:id="r1"/>'
    data = build_workbook(
        '<row><c s="1"><v>44893</v></c></row>', sheets=sheets, styles=STYLES, workbook='<workbookPr date1904="1"/>'
    )
    assert read_workbook(data) == [(1, ["2026-11-29"])]


BOMB = build_workbook("<row><c t='inlineStr'><is><t>" + "x" * 70_000_000 + "</t></is></c></row>")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (BOMB, "a cell is too long"),
        (build_workbook(" " * 70_000_000), "it has more than 64 MiB"),
        (
            build_workbook(
                '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
            ),
            "columns",
        ),
        (build_workbook('<row r="2"/><row r="9999999"><c><v>1</v></c></row>'), "rows"),
        (build_workbook('<row r="2"><c><v>1</v></c></row><row r="1"><c><v>1</v></c></row>'), "rows"),
        (build_workbook('<row><c t="s"><v>7</v></c></row>'), "missing text"),
        (build_workbook("<row>"), "damaged"),
        (build_workbook("", styles="<xf/>" * 101), "too many styles"),
        (build_workbook("", strings="<si><t>ab</t></si>" * 101), "too many texts"),
        (build_workbook("", sheets='<sheet name="A" state="hidden" r:id="r1"/>'), "no visible sheet"),
        (build_workbook("", sheets='<sheet name="A" r:id="r0"/>'), "is missing"),
        (b"PK\x03\x04" + bytes(100), "not a valid"),
        (build_workbook("x")[:-40], "not a valid"),
    ],
    ids=[
        "cell",
        "bomb",
        "far cell",
        "far row",
        "order",
        "string",
        "XML",
        "styles",
        "strings",
        "hidden",
        "part",
        "no zip",
        "cut",
    ],
)
def test_a_hostile_workbook_is_refused(data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_MAX_ELEMENTS", "_MAX_STRINGS"):  # which take seconds to exceed
        monkeypatch.setattr(xlsx, limit, 100)
    with pytest.raises(Problem, match=rf"The workbook can't be read: .*{reason}"):
        read_workbook(data)


def test_entities_are_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("xl/workbook.xml", '<!DOCTYPE x [<!ENTITY a "b">]><workbook><sheets/></workbook>')
    with pytest.raises(Problem, match="it defines entities"):
        read_workbook(data.getvalue())


def test_rows_of_a_workbook_have_its_numbers_and_errors_reject_them(shop: Shop) -> None:
    def cells(*texts: str) -> str:
        return "".join(f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts)

    rows = (
        f'<row r="3">{cells("title", "content", "price")}</row><row r="5">{cells("A", "one&#10;two", "=1")}</row>'
        f'<row r="6">{cells("B", "c")}<c t="e"><v>#N/A</v></c></row><row r="9">{cells("C", "c", "5")}</row>'
    )
    planned = shop.run(build_workbook(rows), "a.xlsx", dry_run=True)
    assert [(one.line, one.outcome) for one in planned] == [
        (5, 'price must be a number, got "=1"'),
        (6, "The column price has the error #N/A: enter a value"),
        (9, "created"),
    ]
    assert shop.outcomes(build_workbook(rows), "a.xlsx")[2] == "created"


def test_an_exported_workbook_has_the_exact_texts(shop: Shop) -> None:
    for text in ODD:
        shop.create(title=f"={text}\x0b_x000D_", external_id=text, content=f"one\r\ntwo\t{text} <&>]]>", category="'=1")
    shop.create(content=LONG)
    data = shop.export("a.xlsx")
    header, *rows = read_workbook(data)
    assert header[1][-2:] == ["external_id", "version"]
    assert rows[0][1][header[1].index("external_id")] == "00117035"
    before = shop.listings()
    assert set(shop.outcomes(data, "a.xlsx")) == {"unchanged"}
    assert shop.listings() == before


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("<p>Soft &amp; warm.<br>Wash at 30&deg;C</p>", "Soft & warm.\nWash at 30°C"),
        ("<ul><li>One</li><li>Two</li></ul><script>x()</script>", "- One\n- Two"),
        ("Warm.\\n\\nOne size.", "Warm.\n\nOne size."),
        ("C:\\new folder", "C:\\new folder"),
        ("3 < 5 > 2", "3 < 5 > 2"),
    ],
)
def test_html_and_escaped_line_breaks_become_text(shop: Shop, cell: str, text: str) -> None:
    assert shop.outcomes(f'title,content\nA,"{cell}"\n') == ["created"]
    assert shop.outcomes(f'title,content\nB,"{cell}"\n', read=ReadOptions(keep_text=True)) == ["created"]
    assert [one.content for one in shop.listings()] == [text, cell]


def test_html_of_a_listing_is_exported_and_imported_as_it_is(shop: Shop) -> None:
    shop.create(content="<p>Soft</p>\\n", category="A > B")
    assert shop.outcomes(shop.export()) == ["unchanged"]
