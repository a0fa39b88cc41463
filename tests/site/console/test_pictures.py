"""Uploads of pictures in the console."""

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from listings.domain.pictures import find_name
from listings.http.body_files import UPLOADS, Usage
from listings.site.console import pictures as form_pictures
from tests.harness import Harness
from tests.pictures import draw, encode, photo
from tests.processes import list_open_files
from tests.site.tab import Tab, open_console, open_harness

PATH = "/console/pictures"
MIB = 1024 * 1024


def upload(tab: Tab, data: bytes, name: str = "table.jpg", **fields: str) -> tuple[int, dict[str, Any]]:
    """Upload a picture like a script. Return the status and the JSON of the response."""
    tab.upload_picture(PATH, name, data, **fields)
    return tab.reply.status, json.loads(tab.reply.body)


def test_a_member_uploads_a_picture(alice: Tab, harness: Harness) -> None:
    status, body = upload(alice.get("/console"), encode(draw()))
    assert (status, body["width"], body["height"]) == (201, 640, 480)
    name = find_name(body["url"])
    assert body["url"] == f"/media/{name}.jpg"
    assert harness.fetch("GET", body["url"]).status == 200
    assert upload(alice, encode(draw())) == (200, body)
    account_id = harness.run(harness.services.accounts.find("alice@example.com")).id
    newest = harness.run(harness.store.find_newest_picture(account_id, "TABLE.JPG"))
    assert newest is not None
    assert newest.name == name


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7", photo()[:200]])
def test_what_is_no_picture_is_rejected(alice: Tab, data: bytes) -> None:
    status, body = upload(alice.get("/console"), data)
    assert status == 400
    assert set(body) == {"error"}


def test_a_form_without_a_file_is_rejected(alice: Tab) -> None:
    assert upload(alice.get("/console"), b"", "") == (400, {"error": "Choose a picture"})


def test_a_form_needs_its_token(alice: Tab) -> None:
    status, body = upload(alice.get("/console"), photo(), token="forged")
    assert status == 403
    assert "expired" in body["error"]


def test_a_visitor_is_sent_to_the_sign_in_page(harness: Harness) -> None:
    tab = Tab(harness)
    tab.get("/sign-in").upload_picture(PATH, "a.jpg", photo())
    assert (tab.reply.status, tab.reply.headers["location"].partition("?")[0]) == (303, "/sign-in")


def test_pictures_without_a_plan_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_harness(tmp_path) as harness:
        tab = open_console(harness, months=0)
        assert upload(tab.get("/console"), photo())[0] == 201
        monkeypatch.setattr(form_pictures, "MAX_DRAFT_BYTES", MIB)
        assert upload(tab, photo(1) + bytes(2 * MIB))[0] == 201  # what is stored counts
        monkeypatch.setattr(form_pictures, "MAX_DRAFT_BYTES", 5_000)
        status, body = upload(tab, encode(draw()))
        assert status == 400
        assert body["error"] == "Without a plan, your pictures can have at most 0 MB"


def test_a_large_picture_goes_to_an_unlinked_file(alice: Tab, harness: Harness) -> None:
    data = photo()
    assert upload(alice.get("/console"), data + bytes(8 * MIB))[0] == 201
    folder = str(harness.settings.media_folder)
    assert not [path for path in list_open_files(os.getpid()).values() if folder in path]


def test_a_picture_of_more_than_20_mib_is_rejected(alice: Tab) -> None:
    status, body = upload(alice.get("/console"), photo() + bytes(20 * MIB))
    assert (status, body) == (413, {"error": "A picture can have at most 20971520 bytes"})


def test_a_form_of_more_than_130_mib_is_rejected(alice: Tab) -> None:
    tab = alice.get("/console")
    assert upload(tab, bytes(131 * MIB))[0] == 413


def test_texts_of_more_than_2_mib_are_rejected(alice: Tab) -> None:
    assert upload(alice.get("/console"), photo(), text="x" * (2 * MIB))[0] == 400


def test_other_forms_keep_their_limit(alice: Tab) -> None:
    alice.get("/console/import").upload("/console/import", "a.csv", b"x" * (3 * MIB))
    assert alice.reply.status == 413


def test_an_upload_beyond_the_limit_of_its_account_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.http.body_files.UPLOADS", UPLOADS._replace(owner=Usage(0, 0)))
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        status, body = upload(tab.get("/console"), photo())
        assert status == 503
        assert tab.reply.headers["retry-after"] == "1"
        assert "at most 3" in body["error"]


def test_the_closing_page_offers_all_pictures_as_an_archive(alice: Tab) -> None:
    _, body = upload(alice.get("/console"), photo())
    assert "/console/pictures.zip" in alice.get("/console/account/close").page.values(
        "a", "href", class_="button plain"
    )
    alice.get("/console/pictures.zip")
    assert alice.reply.headers["content-type"] == "application/zip"
    with ZipFile(BytesIO(alice.reply.body)) as archive:
        assert archive.namelist() == [body["url"].removeprefix("/media/")]
