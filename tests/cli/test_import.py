"""`listings import`: rows create and update listings exactly once, even after interruptions."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Cli, Data, Program
from tests.cli.transfers import (
    PAST,
    counts,
    kill_in_the_middle,
    measure_memory,
    query,
    row,
    start,
    stored,
    stored_without_times,
    write_lines,
)
from tests.pictures import photo
from tests.store import databases

pytestmark = pytest.mark.usefixtures("alice")


def run_import(cli: Cli, *arguments: str, code: int = 0) -> tuple[Data, str]:
    outcome = cli("import", *arguments, "--json")
    assert outcome.code == code, outcome
    data: Data = json.loads(outcome.out)
    return data, outcome.err


def imported(cli: Cli, *rows: Data | str, name: str = "rows.jsonl", code: int = 0) -> tuple[int, int, int, int]:
    """Import rows and return the numbers of created, updated, unchanged and rejected rows."""
    return counts(run_import(cli, "1", write_lines(cli, name, *rows), code=code)[0])


def titles(cli: Cli) -> dict[int, str]:
    return dict(query(cli.folder, "SELECT id, title FROM listings"))


def test_rows_without_id_create_listings(cli: Cli) -> None:
    assert imported(cli, row(1), row(2, id=None), row(3)) == (3, 0, 0, 0)
    assert titles(cli) == {1025: "Listing 1", 2049: "Listing 2", 3073: "Listing 3"}


def test_rows_with_the_id_of_a_listing_update_it(cli: Cli) -> None:
    imported(cli, row(1, **PAST, category="Bikes"), row(2, **PAST))
    changes: list[Data] = [
        {"id": 1025, "title": "Bike", "view_count": 9, "created_at": "never"},
        {"id": 2049, "price": 0},
    ]
    assert imported(cli, *changes, name="changes.jsonl") == (0, 1, 1, 0)
    ((title, category, version, views, created, updated),) = query(
        cli.folder, "SELECT title, category, version, view_count, created_at, updated_at FROM listings WHERE id = 1025"
    )
    assert (title, category, version, views, created) == ("Bike", "Bikes", 2, 0, PAST["created_at"])
    assert updated > PAST["updated_at"]


def test_ids_of_other_accounts_and_invalid_ids_are_rejected(cli: Cli, bob: Data) -> None:
    cli.run_ok("import", str(bob["id"]), write_lines(cli, "bobs.jsonl", row(1)))
    ids = [1026, 1, 1023, 2**52 + 1025, 0, -1025, "1025", 1025.0, True, []]
    file = write_lines(cli, "rows.jsonl", *(row(2, id=number) for number in ids))
    advice = "use --ids new to import all as new, or --ids match"
    assert f"ids of another shop or account, such as 1026 in line 1: {advice}" in cli.get_usage_error(
        "import", "1", file
    )
    data, messages = run_import(cli, "1", file, "--ids", "match", code=1)
    assert counts(data) == (0, 0, 0, 10)
    assert messages.splitlines()[:-1] == [
        "rows.jsonl:1: id 1026 is invalid in this account: remove it, or import every row as a new listing",
        "rows.jsonl:2: id 1 is invalid in this account: remove it, or import every row as a new listing",
        "rows.jsonl:3: id 1023 is invalid in this account: remove it, or import every row as a new listing",
        "rows.jsonl:4: id 4503599627371521 is invalid in this account: remove it, or import every row as a new listing",
        "rows.jsonl:5: id must be a positive integer, got 0",
        "rows.jsonl:6: id must be a positive integer, got -1025",
        'rows.jsonl:7: id must be a positive integer, got "1025"',
        "rows.jsonl:8: id must be a positive integer, got 1025.0",
        "rows.jsonl:9: id must be a positive integer, got true",
        "rows.jsonl:10: id must be a positive integer, got an array",
    ]
    assert titles(cli) == {1026: "Listing 1"}


def test_another_account_in_the_bucket_is_not_changed(cli: Cli) -> None:
    query(
        cli.folder,
        "INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (1025, 1, 'n', 'n@example.com', 0)",
    )
    query(cli.folder, "INSERT INTO account_state (bucket, account_id, revision) VALUES (1, 1025, 0)")
    cli.run_ok("import", "1025", write_lines(cli, "theirs.jsonl", row(1)))
    assert imported(cli, row(2, id=1025), row(3, id=2049), code=1) == (1, 0, 0, 1)
    assert query(cli.folder, "SELECT account_id, title FROM listings") == [(1025, "Listing 1"), (1, "Listing 3")]


def test_ids_new_creates_a_listing_for_every_row_and_keeps_its_id(cli: Cli, bob: Data) -> None:
    imported(cli, row(1), row(2, external_id="b"))
    cli.run_ok("export", "1", "out.csv")
    data, _ = run_import(cli, str(bob["id"]), "out.csv", "--ids", "new")
    assert counts(data) == (2, 0, 0, 0)
    assert query(cli.folder, "SELECT external_id FROM listings WHERE account_id = 2") == [("1025",), ("b",)]
    data, _ = run_import(cli, "1", "out.csv", "--ids", "new")
    assert counts(data) == (1, 0, 1, 0)
    assert sorted(titles(cli)) == [1025, 1026, 2049, 2050, 3073]


@pytest.mark.decision("G43")
def test_an_external_id_identifies_a_listing_without_id(cli: Cli) -> None:
    rows = [row(1, external_id="a"), row(2, external_id="b"), row(3, external_id="a"), row(4, id=1025, external_id="b")]
    rows += [row(5, external_id="c", deleted_at="2026-01-01 00:00:00"), row(6, external_id="")]
    rows += [row(7, external_id="d")]
    file = write_lines(cli, "rows.jsonl", *rows)
    dry_run, messages = run_import(cli, "1", file, "--dry-run", code=1)
    done, messages_again = run_import(cli, "1", file, code=1)
    assert counts(done) == counts(dry_run) == (2, 0, 0, 5)
    assert 'rows.jsonl:1: external_id "a" is in lines 1 and 3: use it in one row only' in messages
    assert 'rows.jsonl:4: external_id "b" is in lines 2 and 4: use it in one row only' in messages_again
    assert "rows.jsonl:6: external_id must have 1 to 255 characters, got 0" in messages
    assert titles(cli) == {2049: "Listing 5", 3073: "Listing 7"}
    sync = [row(7, external_id="d"), row(2, external_id="b", price=5)]
    for expected in ((1, 0, 1, 0), (0, 0, 2, 0)):
        file = write_lines(cli, "sync.jsonl", *sync)
        for options in (["--dry-run"], []):
            assert counts(run_import(cli, "1", file, "--again", *options)[0]) == expected


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_account_can_be_imported_into_a_new_database(cli: Cli, tmp_path: Path, ending: str) -> None:
    rows = [
        row(
            1,
            **PAST,
            external_id="=1",
            category="'=1+1",
            region=" \r\n\"'",
            images=["a", "=b"],
            price=0.07,
            view_count=3,
        ),
        row(2, **PAST, is_active=False, latitude=-0.1, longitude=1e-05),
        row(3, **PAST, deleted_at="2026-01-01 00:00:00", district="@x", external_id="=1"),
    ]
    imported(cli, *rows)
    cli.run_ok("export", "1", f"out.{ending}")
    before = stored(cli.folder)
    assert counts(run_import(cli, "1", f"out.{ending}")[0]) == (0, 0, 3, 0)
    assert stored(cli.folder) == before
    before = stored(cli.folder, "updated_at")
    (tmp_path / "data").rename(tmp_path / "lost")
    cli.run_ok("migrate")
    cli.account("alice")
    assert counts(run_import(cli, "1", f"out.{ending}")[0]) == (3, 0, 0, 0)
    assert stored(cli.folder, "updated_at") == before
    assert imported(cli, row(4)) == (1, 0, 0, 0)
    assert titles(cli)[4097] == "Listing 4"


def test_the_service_works_during_an_import(cli: Cli, alice: Data, tmp_path: Path) -> None:
    file = write_lines(cli, "rows.jsonl", *(row(number, id=number * 1024 + 1) for number in range(1, 4_001)))
    key = cli.key(alice)["key"]
    program = Program(tmp_path, LISTINGS_RATE_LIMIT="0")  # a slow import leaves time for more than 1000 requests
    with program.serve() as service, start(cli.folder, "import", "1", file) as process:
        while not query(cli.folder, "SELECT 1 FROM imports"):
            assert not process.has_ended or query(cli.folder, "SELECT 1 FROM imports")
        created = [service.create(key, title="Created")]
        while not process.has_ended:
            created.append(service.create(key, title="Created"))
        assert process.fetch_exit_code() == 0
    expected = {number * 1024 + 1: f"Listing {number}" for number in range(1, 4_001)} | dict.fromkeys(
        created, "Created"
    )
    assert titles(cli) == expected
    assert len(expected) == 4_000 + len(created)


def test_invalid_rows_are_reported_with_their_line_and_skipped(cli: Cli) -> None:
    lines = [
        "title,content,price,surprise,created_at",
        'A,"two',
        'lines",1,x,',
        "",
        "B,c,abc,x,",
        "C,c",
        ",c,1,x,1999",
        'D,"d",2,x,',
    ]
    (cli.folder / "rows.csv").write_bytes("\r\n".join(lines).encode())
    outcome = cli("import", "1", "rows.csv")
    assert outcome.code == 1
    assert (
        outcome.out
        == "account_id  1\nfile        rows.csv\ncreated     3\nupdated     0\nrestored    0\ndeleted     0\n"
        "unchanged   0\nconflicts   0\nrejected    2\nimport_id   1\n"
    )
    messages = outcome.err.splitlines()
    assert messages[:2] == [
        "rows.csv: 'surprise' is not a column of a listing and is ignored",
        'rows.csv:5: price must be a number, got "abc"',
    ]
    assert messages[2].startswith("rows.csv:7: title is required; created_at must be a time like 2")
    assert query(cli.folder, "SELECT title, content FROM listings") == [("A", "two\r\nlines"), ("C", "c"), ("D", "d")]


def test_unknown_columns_are_reported_once_and_at_most_twenty(cli: Cli) -> None:
    names = [f"column{number:02}" for number in range(30)]
    rows = [row(1, **dict.fromkeys(names[:2], 1)), row(2, **dict.fromkeys(names, 1))]
    _, messages = run_import(cli, "1", write_lines(cli, "rows.jsonl", *rows))
    assert messages.splitlines()[:-1] == [
        f"rows.jsonl: {name!r} is not a column of a listing and is ignored" for name in names[:20]
    ]


def test_control_characters_are_not_printed(cli: Cli) -> None:
    outcome = cli("import", "1", write_lines(cli, "rows.jsonl", row(1, type="\x9b2J\u202e")))
    assert outcome.code == 1
    assert "\x9b" not in outcome.err
    assert "\u202e" not in outcome.err


@pytest.mark.parametrize(
    ("name", "content", "error_message"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.csv", b"title,title\n", "The column title appears twice in a.csv"),
    ],
)
def test_an_invalid_file_is_rejected_as_a_whole(cli: Cli, name: str, content: bytes, error_message: str) -> None:
    (cli.folder / name).write_bytes(content)
    assert cli.get_error("import", "1", name) == error_message
    assert cli.get_error("import", "1", name, "--ids", "new", "--dry-run") == error_message
    assert query(cli.folder, "SELECT * FROM imports WHERE finished_at IS NOT NULL") == []


def test_wrong_usage_and_unreadable_files_are_reported(cli: Cli) -> None:
    assert "must end in .jsonl or .csv" in cli.get_usage_error("import", "1", "-")
    assert cli.get_error("import", "1", "missing.csv") == "missing.csv can't be used: No such file or directory"
    (cli.folder / "folder.csv").mkdir()
    os.mkfifo(cli.folder / "pipe.csv")
    for name in ("folder.csv", "pipe.csv"):
        assert cli.get_error("import", "1", name) == f"{name} is not a regular file"
    write_lines(cli, "rows.jsonl", row(1))
    assert cli.get_error("import", "77", "rows.jsonl") == "There is no account 77"


def test_a_dry_run_prints_the_same_and_writes_nothing(cli: Cli) -> None:
    imported(cli, row(1), row(2))
    before = stored(cli.folder)
    rows: list[Data | str] = [row(1, id=1025), row(9, id=2049), row(3), row(4, id=7169), {"id": 8193, "title": "x"}]
    rows += [row(5, id=1026), "{"]
    file = write_lines(cli, "more.jsonl", *rows)
    dry_run, messages = run_import(cli, "1", file, "--ids", "match", "--dry-run", code=1)
    assert stored(cli.folder) == before
    assert messages.endswith("This was a dry run: nothing was written\n")
    assert query(cli.folder, "SELECT last FROM listing_ids") == [(2,)]
    done, messages_again = run_import(cli, "1", file, "--ids", "match", code=1)
    assert dry_run["import_id"] is None
    assert done == {**dry_run, "import_id": 2}
    assert counts(done) == (2, 1, 1, 3)
    assert messages_again.splitlines()[:-1] == messages.splitlines()[:-1]


def test_an_import_stops_before_a_listing_for_which_there_is_no_room(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_MAX_ACCOUNT_LISTINGS", "10")
    file = write_lines(cli, "new.jsonl", *map(row, range(1, 21)))
    for arguments in (("--dry-run",), (), ()):
        outcome = cli("import", "1", file, *arguments)
        assert outcome.code == 1
        assert outcome.err.splitlines()[-1] == (
            "listings: Stopped before line 11: An account can have at most 10 listings: delete some first, or raise its"
            " limits; then import the same file again, which continues there"
        )
    monkeypatch.setenv("LISTINGS_MAX_ACCOUNT_LISTINGS", "20")
    done, _ = run_import(cli, "1", file)
    assert counts(done) == (20, 0, 0, 0)


def test_at_most_a_hundred_invalid_rows_are_reported(cli: Cli) -> None:
    file = write_lines(cli, "new.jsonl", *({"title": "A"} for _ in range(150)))
    _, messages = run_import(cli, "1", file, code=1)
    assert messages.count("content is required") == 100
    assert messages.endswith("new.jsonl: 50 more rows are invalid\n")


def test_a_file_is_imported_once_without_again(cli: Cli) -> None:
    file = write_lines(cli, "rows.jsonl", row(1))
    cli.run_ok("import", "1", file)
    for options in ([], ["--dry-run"]):
        messages = cli.get_error("import", "1", file, *options)
        assert messages.startswith("This file was imported on 2")
        assert messages.endswith(" UTC: use --again to import it again")
    (cli.folder / "copy.jsonl").write_bytes((cli.folder / file).read_bytes())
    assert "--again" in cli.get_error("import", "1", "copy.jsonl")
    assert counts(run_import(cli, "1", file, "--again")[0]) == (1, 0, 0, 0)
    assert counts(run_import(cli, "1", file, "--ids", "new")[0]) == (1, 0, 0, 0)
    assert len(titles(cli)) == 3


def test_an_interrupted_import_does_not_start_over(cli: Cli, database: Path) -> None:
    file = write_lines(cli, "rows.jsonl", row(1))
    cli.run_ok("import", "1", file)
    databases.change(database, "UPDATE imports SET finished_at = NULL")
    assert "was not finished: continue that one first" in cli.get_error("import", "1", file, "--again")
    assert counts(run_import(cli, "1", file, "--again", "--dry-run")[0]) == (1, 0, 0, 0)
    assert counts(run_import(cli, "1", file)[0]) == (1, 0, 0, 0)
    assert len(titles(cli)) == 1


def test_another_account_can_import_the_same_file(cli: Cli, bob: Data) -> None:
    file = write_lines(cli, "rows.jsonl", row(1))
    cli.run_ok("import", "1", file)
    cli.run_ok("import", str(bob["id"]), file)
    assert len(titles(cli)) == 2


def test_an_import_is_logged_with_the_operator(cli: Cli) -> None:
    _, messages = run_import(cli, "1", write_lines(cli, "rows.jsonl", row(1), row(2)))
    line = json.loads(messages)
    assert line["event"] == "Imported 2 listings into account 1"
    assert line["operator"]
    _, messages = run_import(cli, "1", write_lines(cli, "one.jsonl", row(3)))
    assert json.loads(messages)["event"] == "Imported 1 listing into account 1"


def test_the_printed_id_undoes_an_import(cli: Cli) -> None:
    imported(cli, row(1, price=5))
    done, _ = run_import(cli, "1", write_lines(cli, "more.jsonl", {"id": 1025, "price": 6}, row(2)))
    assert cli.data("account", "undo", "1", "--import", str(done["import_id"]), "--yes")["reverted"] == 2
    found = query(cli.folder, "SELECT id, price_cents, deleted_at IS NOT NULL FROM listings ORDER BY id")
    assert found == [(1025, 500, 0), (2049, 0, 1)]


def test_an_import_that_changes_nothing_has_no_id(cli: Cli) -> None:
    imported(cli, row(1))
    unchanged, _ = run_import(cli, "1", write_lines(cli, "same.jsonl", {"id": 1025, "title": "Listing 1"}))
    assert unchanged["import_id"] is None


# Interruptions

MANY = 10_000


def read_progress(folder: Path) -> object:
    return query(folder, "SELECT bytes_done FROM imports WHERE bytes_done > 0")


def delete_imports(folder: Path) -> None:
    query(folder, "DELETE FROM imports")
    query(folder, "DELETE FROM listings")


@pytest.mark.slow
@pytest.mark.uncovered
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_repeatedly_killed_import_creates_each_listing_once(cli: Cli, ending: str) -> None:
    file = f"rows.{ending}"
    if ending == "csv":
        lines = ["title,content", *(f'Listing {number},"two\nlines"' for number in range(MANY)), "Broken"]
        (cli.folder / file).write_text("\n".join(lines))
    else:
        write_lines(cli, file, *(row(number) for number in range(MANY)), "broken")
    rng = random.Random(ending)
    kills = 0
    while kills < 5:
        if kill_in_the_middle(cli.folder, ("import", "1", file), lambda: read_progress(cli.folder), rng) >= 0:
            if kills:
                break
            delete_imports(cli.folder)  # it ended before it could be killed
        else:
            kills += 1
    if query(cli.folder, "SELECT 1 FROM imports WHERE finished_at IS NULL"):
        data, messages = run_import(cli, "1", file, code=1)
        assert messages.startswith("Continuing after line ")
        assert counts(data) == (MANY, 0, 0, 1)
    assert "was imported on" in cli.get_error("import", "1", file)
    assert query(cli.folder, "SELECT made, refused FROM imports") == [(MANY, 1)]
    assert [title for _, _, title, *_ in stored_without_times(cli.folder)] == [f"Listing {n}" for n in range(MANY)]


def test_after_ctrl_c_the_same_command_continues(cli: Cli) -> None:
    file = write_lines(cli, "rows.jsonl", *(row(number) for number in range(MANY)))
    rng = random.Random(1)
    while not (unfinished := query(cli.folder, "SELECT made, lines_done FROM imports WHERE finished_at IS NULL")):
        delete_imports(cli.folder)
        kill_in_the_middle(cli.folder, ("import", "1", file), lambda: read_progress(cli.folder), rng, signal.SIGINT)
    ((done, line),) = unfinished
    assert done == line > 0
    dry_run, messages = run_import(cli, "1", file, "--dry-run")
    assert messages.startswith(f"Continuing after line {line} of rows.jsonl, with {done:,} row")
    assert run_import(cli, "1", file)[0] == dry_run
    assert sorted(titles(cli).values()) == sorted(f"Listing {number}" for number in range(MANY))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a file of 10,000 long rows (90 MB) and a database into which it was imported."""
    folder = tmp_path_factory.mktemp("large")
    with (folder / "rows.jsonl").open("w") as file:
        file.writelines(json.dumps(row(number, content="x" * 9_000)) + "\n" for number in range(10_000))
    (folder / "data").mkdir()
    databases.make(folder / "data/listings.db", listings=0)
    assert measure_memory(folder, "import", "1", "rows.jsonl") < MAX_MEMORY_KIB
    yield folder
    (folder / "rows.jsonl").unlink()
    (folder / "data/listings.db").unlink()


MAX_MEMORY_KIB = 40 * 1024


@pytest.mark.slow
@pytest.mark.uncovered
@pytest.mark.parametrize(("ending", "options"), [("csv", []), ("jsonl", ["--dry-run"])])
def test_export_and_import_use_little_memory(large: Path, ending: str, options: list[str]) -> None:
    file = f"out.{ending}"
    assert measure_memory(large, "export", "1", file) < MAX_MEMORY_KIB
    assert (large / file).stat().st_size > 2 * MAX_MEMORY_KIB * 1024
    assert measure_memory(large, "import", "1", file, *options) < MAX_MEMORY_KIB
    (large / file).unlink()


def test_the_pictures_of_a_folder_are_uploaded_first(cli: Cli) -> None:
    folder = cli.folder / "photos"
    folder.mkdir()
    (folder / "bike.JPG").write_bytes(photo(1))
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("not a picture", "utf-8")
    (cli.folder / "rows.csv").write_text("title,content,images\nBike,c,bike.jpg\nLamp,c,broken.png\n", "utf-8")
    chosen = ["1", "rows.csv", "--pictures", "photos"]
    for options, rows, pictures in ((["--dry-run"], 0, 0), ([], 1, 1)):
        data, messages = run_import(cli, *chosen, *options, code=1)
        assert counts(data) == (1, 0, 0, 1)
        assert "photos/broken.png: The picture must be JPEG, PNG or WebP" in messages
        assert (
            'rows.csv:3: images[0] must be a URL or the file name of an uploaded picture, got "broken.png"' in messages
        )
        assert "notes.txt" not in messages
        assert query(cli.folder, "SELECT count(*) FROM listings") == [(rows,)]
        assert query(cli.folder, "SELECT count(*) FROM pictures") == [(pictures,)]
    ((name, file_name),) = query(cli.folder, "SELECT name, file_name FROM pictures")
    assert file_name == "bike.JPG"
    assert query(cli.folder, "SELECT images FROM listings") == [(f'["/media/{name}.jpg"]',)]
    assert len(list((cli.folder / "data/media").rglob(f"{name}*"))) == 4


def test_a_folder_of_pictures_must_exist(cli: Cli) -> None:
    (cli.folder / "rows.csv").write_text("title,content\nBike,c\n", "utf-8")
    assert cli("import", "1", "rows.csv", "--pictures", "photos").code == 2
