"""`listings export`: every listing of an account in a file."""

import csv
import random
import re
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from listings.cli.output import create_file
from listings.domain.errors import Problem
from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Serving, clean_environment
from tests.cli.transfers import PAST, kill_in_the_middle, read_lines, row, run, write_lines
from tests.store import databases

pytestmark = pytest.mark.slow
MANY = 20_000


@pytest.fixture
def listings(cli: Cli, alice: Data, bob: Data) -> list[Data]:
    """Five listings of alice, one of them paused and one deleted. Bob has a listing too."""
    rows = [
        row(1, **PAST, price=0.3, images=["https://a.example/1.jpg", "b.jpg"], view_count=7),
        row(2, **PAST, is_active=False, district="Te Aro", latitude=-41.5, longitude=174.5),
        row(3, **PAST, deleted_at="2026-01-01 00:00:00"),
        row(4, **PAST, category='=SUM(A1), "quoted"', region="two\r\nlines"),
        row(5, **PAST, type="rental", price=999_999_999.99, price_type="per_night"),
    ]
    cli.run_ok("import", str(alice["id"]), write_lines(cli, "rows.jsonl", *rows))
    cli.run_ok("import", str(bob["id"]), write_lines(cli, "bobs.jsonl", row(99)))
    return rows


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that has many listings of one account, and its exports in both formats."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "data").mkdir()
    file = databases.make(folder / "data/listings.db", listings=0)
    with closing(databases.connect(file)) as connection, connection:
        for serial in range(1, MANY + 1):
            connection.execute(databases.LISTING, (serial, 1, f"Listing {serial}", databases.CREATED)).fetchall()
    assert [run(folder, "export", "1", name) for name in ("whole.csv", "whole.jsonl")] == [0, 0]
    return folder


def test_jsonl_contains_every_listing_as_in_the_api(cli: Cli, alice: Data, listings: list[Data]) -> None:
    result = cli.data("export", "alice@example.com", "out.jsonl")
    assert result == {"account_id": alice["id"], "file": "out.jsonl", "listings": 5}
    exported = read_lines(cli.folder / "out.jsonl")
    assert [listing["id"] for listing in exported] == [1025 + 1024 * number for number in range(5)]
    assert exported[0] == {
        "id": 1025,
        "title": "Listing 1",
        "content": "Two wheels.",
        "type": "product",
        "category": "",
        "images": ["https://a.example/1.jpg", "b.jpg"],
        "price": 0.3,
        "price_type": "fixed",
        "location": "",
        "region": "",
        "is_active": True,
        "view_count": 7,
        "created_at": PAST["created_at"],
        "updated_at": exported[0]["updated_at"],
        "district": "",
        "latitude": None,
        "longitude": None,
        "deleted_at": None,
        "external_id": None,
        "version": exported[0]["version"],
    }
    assert re.fullmatch("v1-[0-9a-f]{12}", exported[0]["version"])
    assert [
        {name: listing[name] for name in given if name != "updated_at"}
        for listing, given in zip(exported, listings, strict=True)
    ] == [{name: value for name, value in given.items() if name != "updated_at"} for given in listings]
    assert [listing["is_active"] for listing in exported] == [True, False, False, True, True]


@pytest.mark.usefixtures("listings")
def test_csv_can_be_opened_in_a_spreadsheet(cli: Cli) -> None:
    assert cli.run_ok("export", "1", "out.csv").out == "account_id  1\nfile        out.csv\nlistings    5\n"
    data = (cli.folder / "out.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbfid,title,content,type,category,images,price,price_type,location,region,")
    rows = list(csv.DictReader(data.decode("utf-8-sig").splitlines(keepends=True)))
    assert rows[0]["images"] == '["https://a.example/1.jpg","b.jpg"]'
    assert [row["price"] for row in rows] == ["0.30", "0.00", "0.00", "0.00", "999999999.99"]
    assert (rows[1]["is_active"], rows[1]["latitude"], rows[1]["longitude"]) == ("false", "'-41.5", "174.5")
    assert (rows[2]["deleted_at"], rows[0]["deleted_at"], rows[0]["latitude"]) == ("2026-01-01 00:00:00", "", "")
    assert (rows[3]["category"], rows[3]["region"]) == ('\'=SUM(A1), "quoted"', "two\r\nlines")
    assert data.endswith(b"\r\n")


@pytest.mark.usefixtures("alice")
def test_an_account_without_listings_has_an_empty_file(cli: Cli) -> None:
    assert cli.data("export", "1", "out.csv")["listings"] == 0
    assert cli.data("export", "1", "out.jsonl")["listings"] == 0
    assert (cli.folder / "out.csv").read_bytes().count(b"\r\n") == 1
    assert (cli.folder / "out.jsonl").read_bytes() == b""


@pytest.mark.usefixtures("listings")
def test_the_file_is_private_and_the_only_new_file(cli: Cli) -> None:
    before = set(cli.folder.iterdir())
    cli.run_ok("export", "1", "out.csv")
    assert set(cli.folder.iterdir()) - before == {cli.folder / "out.csv"}
    assert (cli.folder / "out.csv").stat().st_mode & 0o777 == 0o600


def test_an_export_works_while_the_service_runs(alice: Data, cli: Cli, service: Serving) -> None:
    key = cli.key(alice)["key"]
    created = [service.create(key) for _ in range(3)]
    assert cli.data("export", "1", "out.jsonl")["listings"] == 3
    assert [listing["id"] for listing in read_lines(cli.folder / "out.jsonl")] == created


@pytest.mark.usefixtures("listings")
def test_an_existing_file_is_overwritten_only_with_force(cli: Cli) -> None:
    (cli.folder / "out.csv").write_text("precious")
    assert cli.get_error("export", "1", "out.csv") == (
        "out.csv exists: choose another name, or overwrite it with --force"
    )
    assert (cli.folder / "out.csv").read_text() == "precious"
    cli.run_ok("export", "1", "out.csv", "--force")
    assert (cli.folder / "out.csv").read_bytes().count(b"Two wheels.") == 5


@pytest.mark.usefixtures("listings")
def test_an_unwritable_file_is_a_one_line_error(cli: Cli) -> None:
    assert (
        cli.get_error("export", "1", "missing/out.csv") == "missing/out.csv can't be written: No such file or directory"
    )
    (cli.folder / "folder.csv").mkdir()
    error = cli.get_error("export", "1", "folder.csv", "--force")
    assert error == "folder.csv is not a regular file: choose another name"
    assert cli.get_error("export", "1", "x" * 300 + ".csv") == f"{'x' * 200} can't be written: File name too long"
    (cli.folder / "loop.csv").symlink_to("loop.csv")
    assert "loop.csv can't be written: " in cli.get_error("export", "1", "loop.csv")
    assert list(cli.folder.glob("*.part*")) == []


@pytest.mark.usefixtures("alice")
def test_an_unknown_account_is_rejected_and_leaves_no_file(cli: Cli) -> None:
    before = set(cli.folder.iterdir())
    assert cli.get_error("export", "77", "out.csv") == "There is no account 77"
    assert set(cli.folder.iterdir()) == before


@pytest.mark.uncovered
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_export_leaves_no_file_that_looks_complete(full: Path, number: signal.Signals) -> None:
    file, part = full / "stopped.csv", full / "stopped.csv.part"
    rng = random.Random(number)
    while kill_in_the_middle(full, ("export", "1", "stopped.csv"), part.exists, rng, number) == 0:
        file.unlink()  # it ended before it could be killed
    assert not file.exists()
    assert part.exists() is (number == signal.SIGKILL)
    assert run(full, "export", "1", "stopped.csv") == 0
    assert file.read_bytes() == (full / "whole.csv").read_bytes()
    assert not part.exists()
    file.unlink()


def test_a_file_created_during_an_export_is_overwritten_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"

    def export(*, overwrite: bool) -> None:
        file.unlink(missing_ok=True)
        with create_file(file, overwrite=overwrite) as part:
            part.write(b"exported")
            file.write_text("written by another program")

    with pytest.raises(Problem, match="can't be written: File exists"):
        export(overwrite=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "written by another program")]
    export(overwrite=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "exported")]


def test_two_exports_cannot_write_the_same_file(full: Path) -> None:
    arguments = [str(PROGRAM), "export", "1", "two.csv"]
    processes = [
        subprocess.Popen(arguments, cwd=full, env=clean_environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    ends = sorted((process.wait(DEADLINE), process.communicate()[1].decode()) for process in processes)
    assert ends[0][0] == 0
    assert ends[1] in {
        (1, "listings: two.csv can't be written: Another process is writing this file\n"),
        (1, "listings: two.csv can't be written: File exists\n"),
        (1, "listings: two.csv exists: choose another name, or overwrite it with --force\n"),
    }
    assert (full / "two.csv").read_bytes() == (full / "whole.csv").read_bytes()


@pytest.mark.uncovered
@pytest.mark.usefixtures("listings")
@pytest.mark.parametrize(
    ("command", "file", "again"), [("export", "out.csv", "--force"), ("import", "bobs.jsonl", "--again")]
)
def test_progress_is_shown_only_on_a_terminal(cli: Cli, command: str, file: str, again: str) -> None:
    code, shown = terminal.run(cli.folder, command, "1", file, stream="stderr")
    assert code == 0
    assert re.search(r"Exporting|Importing", shown)
    assert re.search(r"Exporting|Importing", cli.run_ok(command, "1", file, again).err) is None
