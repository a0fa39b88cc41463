"""Files in the console: what one would do, what it has done, and what comes out and goes in again."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from listings.contract.history import CONSOLE
from listings.domain.errors import Problem
from listings.service.transfer import importer
from listings.site.console import upload
from tests.harness import MONTH, Harness
from tests.site.console import Tab, member, open_house

HERE = "/console/import"
BAD = b"title,content,price,colour\nLamp,A lamp.,12.50,blue\n,No title,cheap,red\nChair,A chair.,30,\n"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_house(tmp_path) as harness:
        yield harness


@pytest.fixture
def alice(harness: Harness) -> Tab:
    return member(harness)


def rehearse(tab: Tab, content: bytes, name: str = "stock.csv", **fields: str) -> Tab:
    return tab.get(HERE).upload(HERE, name, content, **fields)


def run(tab: Tab) -> Tab:
    """Import what was rehearsed."""
    fields = {
        str(one.attributes["name"]): one.attributes["value"] or ""
        for one in tab.page.all("input", type="hidden")
        if one.attributes["name"] != "token"
    }
    return tab.upload(f"{HERE}/run", "", b"", **fields)


def counts(tab: Tab) -> list[int]:
    """Created, changed, as they are, refused."""
    return [int(found) for found in re.findall(r'<p class="number">([0-9,]+)</p>', tab.reply.body.decode())]


def rows(tab: Tab) -> list[tuple[str, ...]]:
    """Line, outcome, title, id and reason of each row."""
    table = tab.reply.body.decode().rpartition("What each row would do")[2]
    found = re.findall(r"<tr>(<td.*?)</tr>", table, re.DOTALL)
    return [
        tuple(re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL))
        for row in found
    ]


def exported(tab: Tab, form: str = "csv") -> bytes:
    tab.get(f"/console/export?format={form}")
    return tab.reply.body


def test_a_file_is_rehearsed_row_by_row_before_anything_is_written(alice: Tab) -> None:
    rehearse(alice, BAD)
    assert (alice.reply.status, counts(alice)) == (200, [2, 0, 0, 1])
    assert rows(alice) == [
        ("2", "created", "Lamp", "", ""),
        ("3", "refused", "", "", "price must be a number, got &#34;cheap&#34;; title is required"),
        ("4", "created", "Chair", "", ""),
    ]
    assert "No columns of a listing, and ignored: colour." in alice.text
    assert "Nothing listed yet" in alice.get("/console/listings").text


def test_then_it_is_imported_but_for_the_refused_rows(alice: Tab) -> None:
    run(rehearse(alice, BAD))
    assert alice.reply.status == 200
    assert "Done: 2 created, 0 changed, 0 as they were, 1 refused." in alice.text
    assert "Line 3: price must be a number" in alice.text
    assert {"Lamp", "Chair"} <= set(
        re.findall(r'dir="auto">(\w+)</a>', alice.get("/console/listings").reply.body.decode())
    )
    assert "You imported a file: 2 created" in alice.get("/console/activity").text


def test_a_file_of_one_row_tells_of_one(alice: Tab) -> None:
    run(rehearse(alice, b"title,content\nLamp,A lamp.\n"))
    assert "1 row is done" in alice.text


def test_a_long_file_tells_how_far_it_is(alice: Tab) -> None:
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(450))
    run(rehearse(alice, f"title,content\n{lines}".encode()))
    body = alice.reply.body.decode()
    assert [int(found) for found in re.findall(r"([0-9]+) rows are done", body)] == [200, 400, 450]
    assert body.count("</html>") == 1
    assert "Done: 450 created" in alice.text


def test_of_a_long_file_the_first_rows_are_shown_and_all_are_counted(alice: Tab) -> None:
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(501))
    assert "And 1 more row." in rehearse(alice, f"title,content\n{lines}".encode()).text
    lines = "".join(f"Lamp {number},A lamp.\n" for number in range(600))
    rehearse(alice, f"title,content\n{lines},\n".encode())
    assert (counts(alice), "And 101 more rows." in alice.text) == ([600, 0, 0, 1], True)
    assert "Refused rows" in alice.text


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_what_is_exported_is_imported_again_without_a_change(alice: Tab, form: str) -> None:
    odd = 'Ünïcode ☃, "quotes" \'=1+1'
    run(
        rehearse(
            alice,
            f'title,content,price,images\n"{odd.replace(chr(34), chr(34) * 2)}","One,\nTwo",5,https://x.example/1\n'.encode(),
        )
    )
    content = exported(alice, form)
    assert alice.reply.headers["content-disposition"] == f'attachment; filename="listings-2026-09-21.{form}"'
    rehearse(alice, content, f"listings.{form}")
    assert counts(alice) == [0, 0, 1, 0]
    assert exported(alice, form) == content


def test_cells_that_a_spreadsheet_takes_for_formulas_are_escaped(alice: Tab) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\ttab", "\rreturn", "'=quoted", "plain"]
    lines = "".join(json.dumps({"title": text, "content": text}) + "\n" for text in texts)
    run(rehearse(alice, lines.encode(), "odd.jsonl"))
    content = exported(alice)
    cells = [row["title"] for row in csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))]
    assert cells == [*(f"'{text}" for text in texts[:-1]), "plain"]
    rehearse(alice, content)
    assert counts(alice) == [0, 0, len(texts), 0]


def test_a_file_that_was_imported_says_so_and_is_imported_once_more_where_one_wants(alice: Tab) -> None:
    run(rehearse(alice, BAD))
    rehearse(alice, BAD)
    assert "This very file was imported before" in alice.text
    assert "Done: 2 created" in run(alice).text


def test_ids_of_another_account_are_refused_unless_every_row_is_to_be_new(harness: Harness, alice: Tab) -> None:
    bob = member(harness, "bob@example.com")
    run(rehearse(bob, BAD))
    content = exported(bob)
    rehearse(alice, content)
    assert counts(alice) == [0, 0, 0, 2]
    assert "remove it, or import every row as a new listing" in alice.text
    assert alice.page.all("button", class_="x") == []
    rehearse(alice, content, new_ids="on")
    assert counts(alice) == [2, 0, 0, 0]
    assert "Done: 2 created" in run(alice).text


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("", b"", "Choose a file"),
        ("stock.csv", b"", "stock.csv is empty"),
        ("stock.xlsx", b"PK", "must end in .jsonl or .csv"),
        ("../../stock.csv", b"a,b\n1,2\n", "The first line of stock.csv must name the columns"),
        ("stock.csv", b"title,title\n", "The column title appears twice in stock.csv"),
        ("stock.csv", b"title,content\n", "stock.csv has no rows"),
        ("stock.jsonl", b"\n", "stock.jsonl has no rows"),
    ],
)
def test_a_file_that_is_none_is_told(alice: Tab, name: str, content: bytes, told: str) -> None:
    rehearse(alice, content, name)
    assert (alice.reply.status, told in alice.text) == (400, True)


def test_a_file_is_bounded_as_every_body_is(tmp_path: Path) -> None:
    with open_house(tmp_path, max_body_bytes="50000") as harness:
        alice = member(harness)
        assert "At most 48.8 kB." in alice.get(HERE).text
        assert rehearse(alice, b"title,content\n" + b"x" * 60_000).reply.status == 413
        assert "What you send must be at most 48.8 kB." in alice.text
        assert alice.page.values("a", "href", class_="button") == [HERE]
        noise = "".join(map(str, range(3_000, 12_000))).encode()
        assert rehearse(alice, b"title,content\nLamp," + noise[:30_000] + b"\n").reply.status == 200


def test_a_file_that_could_not_be_sent_again_is_refused_at_once() -> None:
    one = upload.Upload("x.csv", bytes(range(256)) * 4)
    with pytest.raises(Problem) as refused:
        upload.packed(one, 8_000)
    assert refused.value.code == "body_too_large"
    kept = upload.packed(one, 100_000)
    assert upload.unpacked("x.csv", kept, 2_000).content == one.content
    with pytest.raises(Problem):
        upload.unpacked("x.csv", kept, 1_000)


def test_a_choice_is_kept_where_the_file_is_refused(alice: Tab) -> None:
    def ticked() -> bool:
        return "checked" in alice.page.all("input", name="new_ids")[0].attributes

    alice.get(HERE)
    assert not ticked()
    rehearse(alice, b"", new_ids="on")
    assert (alice.reply.status, ticked()) == (400, True)
    alice.upload(f"{HERE}/run", "", b"", name="stock.csv", kept="x", new_ids="on")
    assert (alice.reply.status, ticked()) == (400, True)


@pytest.mark.parametrize("kept", ["", "x", "é", "AAAA", "eJw="])
def test_a_file_that_got_lost_on_its_way_is_told(alice: Tab, kept: str) -> None:
    alice.get(HERE).upload(f"{HERE}/run", "", b"", name="stock.csv", kept=kept)
    assert (alice.reply.status, "choose it once more" in alice.text) == (400, True)


def test_an_import_that_fails_tells_it_at_the_end_of_what_was_sent(alice: Tab) -> None:
    kept = upload.packed(upload.Upload("stock.csv", b"no,columns\n1,2\n"), 100_000)
    alice.get(HERE).upload(f"{HERE}/run", "", b"", name="stock.csv", kept=kept)
    assert alice.reply.status == 200
    assert "The first line of stock.csv must name the columns" in alice.text
    assert "What was done before that is kept" in alice.text


class Stopped(Exception):
    """Somebody has closed the page."""


def test_an_import_that_was_interrupted_goes_on(harness: Harness, alice: Tab) -> None:
    content = b"title,content\n" + b"".join(b"Lamp %d,A lamp.\n" % number for number in range(300))
    account = harness.run(harness.service.find_account("alice@example.com"))

    def stop(_: int) -> None:
        raise Stopped

    half = upload.Upload("stock.csv", content), upload.Report(stop), importer.ImportOptions(actor=CONSOLE)
    with pytest.raises(Stopped):
        harness.run(importer.Import(harness.service, account, *half).run())
    rehearse(alice, content)
    assert counts(alice) == [300, 0, 0, 0]
    assert "An earlier import of this file came to line 201; this one goes on behind it." in alice.text
    assert rows(alice)[0][:3] == ("202", "created", "Lamp 200")
    assert "Done: 300 created" in run(alice).text
    assert len(exported(alice).splitlines()) == 301


def test_without_a_plan_one_exports_and_imports_nothing(harness: Harness, alice: Tab) -> None:
    run(rehearse(alice, BAD))
    harness.clock.advance(13 * MONTH)
    alice.sign_in("alice@example.com").get(HERE)
    assert "An import needs the Business plan" in alice.text
    assert rehearse(alice, BAD).reply.status == 403
    assert alice.upload(f"{HERE}/run", "", b"", name="stock.csv", kept="x").reply.status == 403
    assert b"Lamp" in exported(alice)
