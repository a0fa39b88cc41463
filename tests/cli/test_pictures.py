"""Pictures on the command line: `listings picture`, their limit, their archive, and what a restore reports."""

import errno
import json
import os
import sys
from collections.abc import Sequence
from zipfile import ZipFile

import obstore
import pytest

from listings.service.pictures.folder import PictureFolder
from tests.cli.commands import Cli, Data, Serving, clean_environment
from tests.harness import unused_port
from tests.pictures import photo
from tests.processes import run_program
from tests.s3_server import Bucket


@pytest.fixture
def key(cli: Cli, alice: Data) -> str:
    return str(cli.key(alice)["key"])


def upload(service: Serving, key: str, number: int = 1) -> str:
    headers = {"X-API-Key": key}
    response = service.http.post("/api/v1/images", content=photo(number), headers=headers)
    assert response.status_code == 201
    return str(response.json()["url"])


def test_a_deleted_picture_is_gone_and_its_listings_are_named(
    cli: Cli, alice: Data, key: str, service: Serving
) -> None:
    url = upload(service, key)
    body = {"title": "Table", "content": "Rimu.", "images": [url]}
    listing = service.http.post("/api/v1/listings", json=body, headers={"X-API-Key": key}).json()["id"]
    data = cli.data("picture", "delete", url)
    name = url.rpartition("/")[2].removesuffix(".jpg")
    assert data == {"deleted": name, "account": alice["id"], "shown_in": str(listing), "blocked": False}
    assert service.http.get(url).status_code == 404
    assert "There is no such picture" in cli.get_error("picture", "delete", url)
    assert upload(service, key) != url


def test_a_blocked_picture_is_rejected(cli: Cli, key: str, service: Serving) -> None:
    name = upload(service, key).rpartition("/")[2].removesuffix(".jpg")
    assert cli.data("picture", "delete", name, "--block")["blocked"] is True
    response = service.http.post("/api/v1/images", content=photo(1), headers={"X-API-Key": key})
    assert response.headers["X-Error-Code"] == "invalid_image"


def test_an_account_can_have_a_limit_of_its_own(cli: Cli, alice: Data, key: str, service: Serving) -> None:
    size = service.http.get("/api/v1/images", headers={"X-API-Key": key}).json()
    assert size == {"images": []}
    upload(service, key)
    for options, expected in ((("--pictures", "5"), 5), (("--pictures", "0"), None), ((), 10 * 1024**3)):
        data = cli.data("account", "limits", alice["email"], *options)
        assert data["picture_bytes"] > 0
        assert data["max_picture_bytes"] == expected
        own = service.http.get("/api/v1/key", headers={"X-API-Key": key}).json()
        assert (own["picture_bytes"], own["limits"]["picture_bytes"]) == (data["picture_bytes"], expected)


def test_an_export_lists_the_pictures_and_can_contain_them(cli: Cli, alice: Data, key: str, service: Serving) -> None:
    names = {upload(service, key, number).rpartition("/")[2] for number in (1, 2)}
    cli.run_ok("account", "export", alice["email"], "alice.json", "--pictures", "alice.zip")
    with ZipFile(cli.folder / "alice.zip") as archive:
        assert set(archive.namelist()) == names
    rows = json.loads((cli.folder / "alice.json").read_text("utf-8"))["pictures"]
    assert {row.pop("url") for row in rows} == {f"/media/{name}" for name in names}
    size = cli.data("account", "show", alice["email"])["picture_bytes"]
    assert sum(row.pop("bytes") for row in rows) == size
    assert {row.pop("uploaded_at")[:2] for row in rows} == {"20"}
    assert rows == [{"file_name": "", "width": 64, "height": 48, "unused_since": None}] * 2
    assert cli.data("report")["picture_bytes"] == size
    (largest,) = (json.loads(line) for line in cli.run_ok("account", "list", "--largest", "--json").out.splitlines())
    assert (largest["name"], largest["stored_bytes"], largest["picture_bytes"]) == ("alice", 0, size)


def test_missing_files_are_reported_after_a_restore(cli: Cli, key: str, service: Serving) -> None:
    url = upload(service, key)
    assert "All files are in" in find_check(cli)["found"]
    cli.run_ok("backup", "backup.db")
    (file,) = cli.folder.rglob(url.rpartition("/")[2])
    file.unlink()
    expected = f"The files of pictures are missing: {file.name}"
    assert find_check(cli) == {
        "check": "pictures",
        "verdict": "warning",
        "found": expected,
        "advice": f"Copy the files of your backup to {file.parent}",
    }
    service.stop()
    assert expected in cli.run_ok("restore", "backup.db", "--force").err


def test_a_folder_that_the_user_cannot_read_is_reported(
    cli: Cli, key: str, service: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = cli.folder.rglob(upload(service, key).rpartition("/")[2])

    def find_missing(files: PictureFolder, names: Sequence[str]) -> list[str]:  # noqa: ARG001 - as the method
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file.parent))

    monkeypatch.setattr(PictureFolder, "find_missing", find_missing)
    found = find_check(cli)
    assert (found["verdict"], found["found"]) == ("fault", f"{file.parent} can't be read: Permission denied")
    assert found["advice"].endswith("or give that user access to the folder and its files")


def find_check(cli: Cli) -> Data:
    rows = map(json.loads, cli("doctor", "--json").out.splitlines())
    (found,) = (row for row in rows if row["check"] == "pictures")
    assert isinstance(found, dict)
    return found


@pytest.fixture
def in_s3(cli: Cli, bucket: Bucket, alice: Data, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket with two pictures of alice, which an import has uploaded."""
    for name, value in bucket.flags.items():
        monkeypatch.setenv(f"LISTINGS_{name.upper()}", value)
    (cli.folder / "photos").mkdir()
    for number in (1, 2):
        (cli.folder / f"photos/{number}.jpg").write_bytes(photo(number))
    (cli.folder / "stock.csv").write_text("title,content,images\nLamp,Brass.,1.jpg\nTable,Rimu.,2.jpg\n")
    cli.run_ok("import", alice["email"], "stock.csv", "--pictures", "photos")
    assert len(bucket.list_files()) == 2 * 4
    return bucket


def test_missing_objects_are_reported_after_a_restore(cli: Cli, in_s3: Bucket) -> None:
    place = f"s3://pictures/{in_s3.prefix}"
    assert find_check(cli)["found"] == f"All files are in {place}"
    cli.run_ok("backup", "backup.db")
    file = next(name for name in in_s3.list_files() if name.endswith(".jpg"))
    obstore.delete(in_s3.open_store(), file)
    found = find_check(cli)
    assert (found["verdict"], found["advice"]) == ("warning", f"Copy the files of your backup to {place}")
    assert found["found"] == f"The files of pictures are missing: {file}"
    assert found["found"] in cli.run_ok("restore", "backup.db", "--force").err


def test_an_export_contains_the_pictures_in_s3(cli: Cli, alice: Data, in_s3: Bucket) -> None:
    cli.run_ok("account", "export", alice["email"], "alice.json", "--pictures", "alice.zip")
    with ZipFile(cli.folder / "alice.zip") as archive:
        assert sorted(archive.namelist()) == [name for name in in_s3.list_files() if name.endswith(".jpg")]


def test_s3_that_does_not_respond_is_reported(
    cli: Cli, alice: Data, in_s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = in_s3.list_files()[0][:32]
    cli.run_ok("backup", "backup.db")
    with unused_port() as port, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        found = find_check(cli)
        assert found["verdict"] == "fault"
        assert found["found"] == f"s3://pictures/{in_s3.prefix} can't be read: HTTP error: error sending request"
        assert found["found"] in cli.run_ok("restore", "backup.db", "--force").err
        for command in (("picture", "delete", name), ("account", "erase", alice["email"], "--yes")):
            assert "Pictures can't be stored or deleted: S3 does not respond as expected" in cli(*command).err
        assert cli("account", "export", alice["email"], "a.json", "--pictures", "a.zip").code == 1
        assert not (cli.folder / "a.zip").exists()
    assert len(in_s3.list_files()) == 2 * 4
    assert cli.data("picture", "delete", name)["deleted"] == name


def test_s3_without_the_extra_prevents_the_start(cli: Cli) -> None:
    code = "import sys; sys.modules['obstore'] = None; from listings.cli import main; sys.exit(main(['serve']))"
    environment = clean_environment() | {"LISTINGS_MEDIA_URL": "s3://bucket/media"}
    done = run_program([sys.executable, "-c", code], cwd=cli.folder, env=environment)
    assert (done.returncode, done.stderr) == (
        1,
        "listings: LISTINGS_MEDIA_URL is s3://, which needs obstore: install the packages in requirements/s3.txt\n",
    )


def test_s3_without_a_secret_prevents_the_start(cli: Cli, in_s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    message = "The AWS_ variables are not sufficient for S3: Generic S3 error: Missing SecretAccessKey"
    assert cli.get_error("serve") == message
    (found,) = (row for row in map(json.loads, cli("doctor", "--json").out.splitlines()) if row["check"] == "settings")
    assert (found["verdict"], found["found"]) == ("fault", message)


def test_s3_without_its_public_url_prevents_the_start(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_MEDIA_URL", "s3://bucket/media")
    assert cli.get_error("serve") == "LISTINGS_MEDIA_URL is s3://, which needs LISTINGS_MEDIA_BASE_URL: set it"
