"""Import and export in the console."""

import csv
import io
import re
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from listings.domain.errors import Problem
from listings.domain.history import CONSOLE
from listings.service.transfer import importer
from listings.site.console import upload
from listings.site.console.import_report import ImportReport
from tests.harness import MONTH, Harness
from tests.site.tab import Tab

PATH = "/console/import"
CHEAP = "Enter the price as a number, such as 450. For “ono”, choose Negotiable."
BAD = b"title,content,price,colour\nLamp,A lamp.,12.50,blue\n,No title,cheap,red\nChair,A chair.,30,\n"


def preview(tab: Tab, content: bytes, name: str = "stock.csv", **fields: str) -> Tab:
    return tab.get(PATH).upload(PATH, name, content, **fields)


def hidden_fields(tab: Tab) -> dict[str, str]:
    """Return the form's hidden fields, without its token."""
    hidden = {
        str(one.attributes["name"]): one.attributes["value"] or "" for one in tab.page.all("input", type="hidden")
    }
    return {name: value for name, value in hidden.items() if name != "token"}


def run_import(tab: Tab) -> Tab:
    return tab.upload(f"{PATH}/run", "", b"", **hidden_fields(tab))


def download_rejected(tab: Tab) -> bytes:
    return tab.post(f"{PATH}/rejected", **hidden_fields(tab)).reply.body


def counts(tab: Tab) -> list[int]:
    """Return how many rows are to create, to update, unchanged and rejected."""
    return [int(found) for found in re.findall(r'<p class="number">([0-9,]+)</p>', tab.reply.body.decode())]


def rows(tab: Tab) -> list[tuple[str, ...]]:
    """Return line, result, title, ID and reason of each row."""
    table = tab.reply.body.decode().rpartition("Result of each row")[2]
    found = re.findall(r"<tr>(<td.*?)</tr>", table, re.DOTALL)
    return [
        tuple(re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL))
        for row in found
    ]


def read_export(tab: Tab) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export(tab).decode("utf-8-sig"), newline="")))


def export(tab: Tab, file_format: str = "csv") -> bytes:
    tab.get(f"/console/export?format={file_format}")
    return tab.reply.body


def test_the_preview_shows_every_row_and_writes_nothing(alice: Tab) -> None:
    preview(alice, BAD)
    assert (alice.reply.status, counts(alice)) == (200, [2, 0, 0, 1])
    assert rows(alice) == [
        ("2", "will be created", "Lamp", "", ""),
        ("3", "rejected", "", "", f"Enter a title. {CHEAP}"),
        ("4", "will be created", "Chair", "", ""),
    ]
    assert "Ignored column: colour." in alice.text
    assert "No listings yet" in alice.get("/console/listings").text


def test_the_valid_rows_are_imported(alice: Tab) -> None:
    run_import(preview(alice, BAD))
    assert alice.reply.status == 200
    assert "Done: 2 created, 0 updated, 0 unchanged, 1 rejected." in alice.text
    assert f"Line 3: Enter a title. {CHEAP}" in alice.text
    assert {"Lamp", "Chair"} <= set(
        re.findall(r'dir="auto">(\w+)</a>', alice.get("/console/listings").reply.body.decode())
    )
    assert "You imported a file: 2 created" in alice.get("/console/activity").text


def test_the_rejected_rows_can_be_downloaded(alice: Tab) -> None:
    content = b'title,content,price\r\n"Two\r\nlines",x,cheap\r\nLamp,A lamp.,5\r\n\r\n\xc3\xa9,\xff\r\n'
    reasons = f'"{CHEAP}"\r\n'.encode(), b"The row is not valid UTF-8: save the file as CSV UTF-8.\r\n"
    expected = b'title,content,price,reason\r\n"Two\r\nlines",x,cheap,%b\xc3\xa9,\xff,,%b' % reasons
    assert download_rejected(preview(alice, content)) == expected
    assert alice.reply.headers["content-disposition"] == 'attachment; filename="rejected.csv"'
    assert download_rejected(run_import(preview(alice, content))) == expected
    lines = b'{"title":"Lamp"}\n{"title":"Lamp","content":"x"}\n'
    assert download_rejected(preview(alice, lines, "bikes.jsonl")) == (
        b'{"title":"Lamp", "reason": "Enter a description."}\n'
    )
    alone = '\ufeff{"title":"Ōtaki"}\r\n'.encode("utf-16-le")
    assert download_rejected(preview(alice, alone, "bikes.jsonl")).decode() == (
        '{"title":"Ōtaki", "reason": "Enter a description."}\n'
    )


def test_an_import_with_rejected_rows_needs_attention(harness: Harness, alice: Tab) -> None:
    run_import(preview(alice, b"title,content\nLamp,Bright\n,Nothing\n"))
    assert "1 row of stock.csv rejected" in alice.get("/console").text
    harness.clock.advance(8 * 24 * 3600)
    assert "rejected" not in alice.sign_in("alice@example.com").get("/console").text


def test_files_are_packed_and_unpacked_in_other_threads(alice: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {"compress": set(), "decompressobj": set()}

    def record(name: str) -> None:
        original = getattr(zlib, name)

        def recorded(*arguments: Any) -> Any:
            threads[name].add(threading.get_ident())
            return original(*arguments)

        monkeypatch.setattr(zlib, name, recorded)

    for name in threads:
        record(name)
    download_rejected(preview(alice, BAD))
    download_rejected(run_import(preview(alice, BAD)))
    assert all(threads.values())
    assert threading.get_ident() not in set.union(*threads.values())


def test_the_progress_of_one_row_is_in_the_singular(alice: Tab) -> None:
    run_import(preview(alice, b"title,content\nLamp,A lamp.\n"))
    assert "1 row done" in alice.text


def test_the_progress_is_shown_after_each_batch(alice: Tab) -> None:
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(450))
    run_import(preview(alice, f"title,content\n{lines}".encode()))
    body = alice.reply.body.decode()
    assert [int(found) for found in re.findall(r"([0-9]+) rows done", body)] == [200, 400, 450]
    assert body.count("</html>") == 1
    assert "Done: 450 created" in alice.text


def test_the_preview_shows_500_rows_and_counts_all(alice: Tab) -> None:
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(501))
    assert "And 1 more row." in preview(alice, f"title,content\n{lines}".encode()).text
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(600))
    preview(alice, f"title,content\n{lines},x\n".encode())
    assert (counts(alice), "And 101 more rows." in alice.text) == ([600, 0, 0, 1], True)
    assert "Rejected rows" in alice.text


def test_a_file_whose_rows_are_all_rejected_is_to_be_fixed(alice: Tab) -> None:
    assert "Fix the file and try again" in preview(alice, b"title,content\n,x\n").text


def test_500_rejected_rows_are_shown_and_the_others_counted(alice: Tab) -> None:
    preview(alice, b"title,content\n" + b",x\n" * 502 + b"Lamp,A lamp.\n")
    rejected_rows, _, all_rows = alice.text.partition("First rows")
    assert ("And 2 more rows." in rejected_rows, "And 3 more rows." in all_rows) == (True, True)
    assert "And 2 more rows." in run_import(alice).text


def test_a_file_can_be_imported_again_after_a_warning(harness: Harness, alice: Tab) -> None:
    run_import(preview(alice, BAD))
    harness.clock.advance(60)
    form = hidden_fields(preview(alice, BAD))
    assert "This file was imported on 22 Sep 2026, 2:13 am . Import it again only if" in alice.text
    assert "Nothing has been imported yet" not in alice.text
    assert "Done: 2 created" in alice.upload(f"{PATH}/run", "", b"", **form).text
    assert "This file was imported on 22 Sep 2026, 2:14 am" in alice.upload(f"{PATH}/run", "", b"", **form).text


def test_a_file_that_would_change_nothing_is_not_imported_again(alice: Tab) -> None:
    run_import(preview(alice, b"title,content\na,b\n"))
    content = export(alice)
    run_import(preview(alice, content.replace(b",a,", b",c,")))
    preview(alice, content.replace(b",a,", b",c,"))
    assert "Importing it again would change nothing." in alice.text
    assert "Import it again only if" not in alice.text


def test_a_reloaded_import_shows_its_result_again(alice: Tab) -> None:
    form = hidden_fields(preview(alice, BAD))
    for _ in range(2):
        alice.upload(f"{PATH}/run", "", b"", **form)
    counts = "2 created, 0 updated, 0 unchanged, 1 rejected"
    assert f"This file was imported on 22 Sep 2026, 2:13 am : {counts}." in alice.text
    assert "Nothing was imported this time." in alice.text
    assert "/console/activity/undo?import=1" in alice.page.values("a", "href")
    assert alice.page.texts.count("Import of stock.csv · Console · Listings") == 1
    assert "choose the file again" in alice.text
    assert ("--again" in alice.text, "Before that" in alice.text) == (False, False)


def test_a_file_with_ids_of_another_shop_waits_for_a_choice(alice: Tab) -> None:
    run_import(preview(alice, b"title,content\nMine,x\n"))
    before = export(alice)
    content = b"ID,Name,Description,price\n" + b"".join(b"%d,Tee,x,9\n" % number for number in (1025, 1026, 1027))
    preview(alice, content)
    assert "The file has ids of another shop or account, such as 1026 in line 3." in alice.text
    assert export(alice) == before
    preview(alice, content, **{"choose-ids": "match"})
    assert counts(alice) == [0, 1, 0, 2]
    assert "remove it, or import every row as a new listing" in alice.text
    preview(alice, content, **{"choose-ids": "new"})
    assert counts(alice) == [3, 0, 0, 0]
    assert "Done: 3 created" in run_import(alice).text
    assert [row["external_id"] for row in read_export(alice)] == ["", "1025", "1026", "1027"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("", b"", "Choose a file"),
        ("stock.csv", b"", "stock.csv is empty"),
        ("stock.pdf", b"PK", "must end in .jsonl or .csv or .xlsx"),
        ("stock.xlsx", b"PK", "stock.xlsx is not an Excel workbook"),
        ("stock.xlsx", b"PK\x03\x04", "The workbook can't be read: it is not a valid .xlsx file."),
        ("stock.csv", b"price,colour\n1,red\n", "No column of stock.csv has the titles"),
        ("../../stock.csv", b"a,b\n1,2\n", "The first line of stock.csv must name the columns"),
        ("stock.csv", b"title,title\n", "The column title appears twice in stock.csv"),
        ("stock.csv", b"title,content\n", "stock.csv has no rows"),
        ("stock.jsonl", b"\n", "stock.jsonl has no rows"),
        (
            "stock.csv",
            b"title,content,\xc3\xa9\xff\nLamp,A lamp.,5\n",
            "The first line of stock.csv is not valid UTF-8",
        ),
    ],
)
def test_an_unusable_file_is_rejected_with_the_reason(alice: Tab, name: str, content: bytes, message: str) -> None:
    preview(alice, content, name)
    assert (alice.reply.status, message in alice.text) == (400, True)


def test_the_size_of_an_upload_is_limited(alice: Tab) -> None:
    assert "At most 2 MB and 20,000 rows." in alice.get(PATH).text
    assert preview(alice, b"title,content\n" + b"x" * 2_100_000).reply.status == 413
    assert "The limit is 2 MB." in alice.text
    assert alice.page.values("a", "href", class_="button") == [PATH]
    noise = "".join(map(str, range(100_000, 310_000))).encode()
    assert preview(alice, b"title,content\nLamp," + noise + b"\n").reply.status == 200


def test_a_file_too_large_to_submit_again_is_rejected() -> None:
    one = upload.Upload("x.csv", bytes(range(256)) * 4)
    with pytest.raises(Problem) as rejected:
        upload.pack(one, 8_000)
    assert rejected.value.code == "body_too_large"
    packed = upload.pack(one, 100_000)
    assert upload.unpack("x.csv", packed, 2_000).content == one.content
    with pytest.raises(Problem):
        upload.unpack("x.csv", packed, 1_000)


@pytest.mark.parametrize("packed", ["", "x", "é", "AAAA", "eJw="])
def test_an_import_without_its_file_is_rejected(alice: Tab, packed: str) -> None:
    alice.get(PATH).upload(f"{PATH}/run", "", b"", name="stock.csv", packed=packed)
    assert (alice.reply.status, "Choose it again" in alice.text) == (400, True)


def test_a_failed_import_shows_the_error_at_the_end(alice: Tab) -> None:
    packed = upload.pack(upload.Upload("stock.csv", b"no,columns\n1,2\n"), 100_000)
    alice.get(PATH).upload(f"{PATH}/run", "", b"", name="stock.csv", packed=packed)
    assert alice.reply.status == 200
    assert "The first line of stock.csv must name the columns" in alice.text
    assert "Import the file again once this is solved" in alice.text


class Stopped(Exception):
    """Interrupts an import, like a closed page."""


LAMPS = b"title,content\n" + b"".join(b"Lamp %d,A lamp.\n" % number for number in range(300))


def interrupt_import(harness: Harness, content: bytes = LAMPS, name: str = "stock.csv") -> bytes:
    """Import the first 200 rows of a file, and return it."""
    account = harness.run(harness.services.accounts.find("alice@example.com"))

    def stop(_: int) -> None:
        raise Stopped

    arguments = upload.Upload(name, content), ImportReport(stop), importer.ImportOptions(actor=CONSOLE)
    with pytest.raises(Stopped):
        harness.run(harness.services.transfer.run_import(account, *arguments))
    return content


def test_an_interrupted_import_continues(harness: Harness, alice: Tab) -> None:
    content = interrupt_import(harness)
    preview(alice, content)
    assert counts(alice) == [300, 0, 0, 0]
    assert "An earlier import of this file stopped after line 201. This one continues from there." in alice.text
    assert "Remaining rows" in alice.text
    assert rows(alice)[0][:3] == ("202", "will be created", "Lamp 200")
    assert "Done: 300 created" in run_import(alice).text
    assert len(export(alice).splitlines()) == 301


def test_an_interrupted_import_of_utf_16_continues(harness: Harness, alice: Tab) -> None:
    text = "\ufeff" + "".join(f'{{"title":"Kōwhai {number}","content":"c"}}\r\n' for number in range(300))
    preview(alice, interrupt_import(harness, text.encode("utf-16-be"), "a.jsonl"), "a.jsonl")
    assert rows(alice)[0][:3] == ("201", "will be created", "Kōwhai 200")
    assert "Done: 300 created" in run_import(alice).text
    assert len(export(alice).splitlines()) == 301


def test_rows_rejected_before_an_interruption_can_be_downloaded(harness: Harness, alice: Tab) -> None:
    content = interrupt_import(harness, LAMPS.replace(b"Lamp 7,", b",7 ").replace(b"Lamp 250,", b",250 "))
    expected = b"title,content,reason\r\n,7 A lamp.,Enter a title.\r\n,250 A lamp.,Enter a title.\r\n"
    assert download_rejected(preview(alice, content)) == expected
    assert download_rejected(run_import(preview(alice, content))) == expected


def find_undo_links(tab: Tab) -> list[str]:
    return [str(url) for url in tab.page.values("a", "href") if "?import=" in str(url)]


def test_the_stored_part_of_an_import_can_be_undone(tmp_path: Path, harness: Harness, alice: Tab) -> None:
    preview(alice, interrupt_import(harness))
    (undo,) = find_undo_links(alice)
    database = tmp_path / "listings.db"
    database.rename(tmp_path / "away.db")  # the service now rejects all writes
    run_import(alice)
    assert "200 listings were created and 0 updated. Import the same file again" in alice.text
    assert find_undo_links(alice) == [undo]
    (tmp_path / "away.db").rename(database)
    assert "Undo an import" in alice.get(undo).text


def test_without_a_plan_only_export_is_possible(harness: Harness, alice: Tab) -> None:
    run_import(preview(alice, BAD))
    harness.clock.advance(13 * MONTH)
    alice.sign_in("alice@example.com").get(PATH)
    assert "Upgrade to Business to import files" in alice.text
    assert preview(alice, BAD).reply.status == 403
    assert alice.upload(f"{PATH}/run", "", b"", name="stock.csv", packed="x").reply.status == 403
    assert b"Lamp" in export(alice)


def build_sheet(rows: int = 300) -> bytes:
    """Return a spreadsheet that a seller has written by hand."""
    lines = "".join(f"A-{n},Bike {n},Two wheels.,Bicycles,$1{n:03}.00,Hamilton,Petone\n" for n in range(rows))
    return f"SKU,Name,Description,Category,Price (NZ$),Region,Town\n{lines}".encode()


def export_values(tab: Tab, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for row in read_export(tab)]


def test_unknown_columns_can_be_assigned_as_the_preview_shows(alice: Tab) -> None:
    content = b"Artikel,Preis,Notiz\nLampe,5,Messing\nStuhl,7,Eiche\n"
    preview(alice, content)
    assert (alice.reply.status, "must name the columns" in alice.text) == (400, True)
    form = hidden_fields(alice) | {"choose-map:Artikel": "title", "choose-map:Notiz": "content"}
    alice.upload(PATH, "", b"", **form)
    assert (counts(alice), "Ignored column: Preis." in alice.text) == ([2, 0, 0, 0], True)
    alice.upload(PATH, "", b"", **hidden_fields(alice) | {"choose-map:Preis": "price"})
    assert counts(alice) == [2, 0, 0, 0]
    run_import(alice)
    assert export_values(alice, "title", "content", "price") == [
        ("Lampe", "Messing", "5.00"),
        ("Stuhl", "Eiche", "7.00"),
    ]


def test_the_preview_shows_the_old_and_the_new_value_of_each_field(alice: Tab) -> None:
    run_import(preview(alice, build_sheet(1)))
    preview(alice, build_sheet(1).replace(b"$1000.00", b"1250").replace(b"Petone", b""))
    assert "Price $1,000 $1,250" in re.sub(r"\s+", " ", alice.text)
    assert "Address or suburb Petone (empty)" in re.sub(r"\s+", " ", alice.text)
    assert "You can undo the import afterwards." in alice.text


def test_conflicts_are_shown_and_can_be_overwritten(alice: Tab) -> None:
    run_import(preview(alice, build_sheet(1)))
    content = export(alice)
    run_import(preview(alice, content.replace(b"1000.00", b"900.00")))
    preview(alice, content.replace(b"1000.00", b"800.00"))
    assert counts(alice) == [0, 1, 0, 0]
    run_import(preview(alice, export(alice).replace(b"900.00", b"850.00"), "later.csv"))
    preview(alice, content.replace(b"1000.00", b"800.00"))
    assert counts(alice) == [0, 0, 0, 1, 0]
    assert "Changed since your file was exported: Price is “$850” now, your file has “$800”." in alice.text
    assert b"Changed since your file was exported" in download_rejected(alice)
    alice.upload(PATH, "", b"", **hidden_fields(preview(alice, content)) | {"choose-conflicts": "overwrite"})
    assert counts(alice) == [0, 1, 0, 0]
    assert "Done: 0 created, 1 updated" in run_import(alice).text


def test_a_workbook_is_exported_edited_and_imported(alice: Tab) -> None:
    run_import(preview(alice, build_sheet(2)))
    content = export(alice, "xlsx")
    assert alice.reply.headers["content-type"].startswith("application/vnd.openxmlformats")
    preview(alice, content, "listings.xlsx")
    assert counts(alice) == [0, 0, 2, 0]
    run_import(alice)
    assert "Done: 0 created, 0 updated, 2 unchanged, 0 rejected." in alice.text


def test_the_template_can_be_imported(alice: Tab) -> None:
    template = alice.get(f"{PATH}/template").reply.body
    assert counts(preview(alice, template, "template.xlsx")) == [1, 0, 0, 0]


def test_the_latest_imports_are_listed_with_their_undo(alice: Tab) -> None:
    run_import(preview(alice, BAD, "mine.csv"))
    alice.get(PATH)
    assert "mine.csv 22 Sep 2026, 2:13 am 2 created, 0 updated, 0 unchanged, 1 rejected Undo" in re.sub(
        r"\s+", " ", alice.text
    )
    assert "/console/activity/undo?import=1" in alice.page.values("a", "href")
