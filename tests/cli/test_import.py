"""`listings import`: rows create and update listings exactly once, even after interruptions."""

import json
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from listings.contract.imports import Position
from listings.service.transfer.file_formats import ImportFile
from listings.service.transfer.rows import Row
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
from tests.store import databases

pytestmark = pytest.mark.usefixtures("alice")


def run_import(cli: Cli, *arguments: str, code: int = 0) -> tuple[Data, str]:
    """Return the JSON data and the messages of an import."""
    outcome = cli("import", *arguments, "--json")
    assert outcome.code == code, outcome
    data: Data = json.loads(outcome.out)
    return data, outcome.err


def imported(cli: Cli, *rows: Data | str, name: str = "rows.jsonl", code: int = 0) -> tuple[int, int, int, int]:
    """Import rows and return the numbers of created, updated, unchanged and rejected rows."""
    return counts(run_import(cli, "1", write_lines(cli, name, *rows), code=code)[0])


def titles(cli: Cli) -> dict[int, str]:
    return dict(query(cli.folder, "SELECT id, title FROM listings"))


# Rows


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


def test_an_id_of_the_accounts_bucket_is_used_and_not_reused(cli: Cli) -> None:
    assert imported(cli, row(1, id=5121), row(2), row(3, id=3073)) == (3, 0, 0, 0)
    assert titles(cli) == {3073: "Listing 3", 5121: "Listing 1", 6145: "Listing 2"}


def test_a_row_without_id_does_not_use_the_id_of_a_later_row(cli: Cli) -> None:
    assert imported(cli, row(1), row(2, id=1025)) == (2, 0, 0, 0)
    assert titles(cli) == {1025: "Listing 2", 2049: "Listing 1"}


def test_ids_of_other_accounts_and_invalid_ids_are_rejected(cli: Cli, bob: Data) -> None:
    cli.run_ok("import", str(bob["id"]), write_lines(cli, "bobs.jsonl", row(1)))
    ids = [1026, 1, 1023, 2**52 + 1025, 0, -1025, "1025", 1025.0, True, []]
    data, messages = run_import(
        cli, "1", write_lines(cli, "rows.jsonl", *(row(2, id=number) for number in ids)), code=1
    )
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


def test_new_ids_creates_a_listing_for_every_row(cli: Cli, bob: Data) -> None:
    imported(cli, row(1), row(2))
    cli.run_ok("export", "1", "out.csv")
    data, _ = run_import(cli, str(bob["id"]), "out.csv", "--new-ids")
    assert counts(data) == (2, 0, 0, 0)
    data, _ = run_import(cli, "1", "out.csv", "--new-ids")
    assert counts(data) == (2, 0, 0, 0)
    assert sorted(titles(cli)) == [1025, 1026, 2049, 2050, 3073, 4097]


@pytest.mark.decision("G43")
def test_an_external_id_identifies_a_listing_without_id(cli: Cli) -> None:
    rows = [row(1, external_id="a"), row(2, external_id="b"), row(3, external_id="a"), row(4, id=1025, external_id="b")]
    rows += [row(5, external_id="c", deleted_at="2026-01-01 00:00:00"), row(6, external_id="")]
    file = write_lines(cli, "rows.jsonl", *rows)
    dry_run, messages = run_import(cli, "1", file, "--dry-run", code=1)
    done, messages_again = run_import(cli, "1", file, code=1)
    assert counts(done) == (3, 1, 0, 2)
    assert 'external_id "b" belongs to listing 3073: use another one' in messages_again
    assert counts(dry_run) == (4, 1, 0, 1)  # without the changes of earlier rows
    assert "rows.jsonl:6: external_id must have 1 to 255 characters, got 0" in messages
    assert titles(cli) == {2049: "Listing 3", 3073: "Listing 2", 4097: "Listing 5"}
    sync = [row(3, external_id="a"), row(2, external_id="b", price=5)]
    for expected in ((0, 1, 1, 0), (0, 0, 2, 0)):
        file = write_lines(cli, "sync.jsonl", *sync)
        for options in (["--dry-run"], []):
            assert counts(run_import(cli, "1", file, "--again", "--new-ids", *options)[0]) == expected


def test_deleted_at_deletes_and_restores(cli: Cli) -> None:
    imported(cli, row(1), row(2, deleted_at="2026-01-01 00:00:00"))
    changes: list[Data] = [{"id": 1025, "deleted_at": "2026-01-02 00:00:00"}, {"id": 2049, "deleted_at": None}]
    assert imported(cli, *changes, name="changes.jsonl") == (0, 2, 0, 0)
    assert query(cli.folder, "SELECT is_active, deleted_at FROM listings") == [(0, 1_767_312_000), (0, None)]


# Whole accounts


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
    (tmp_path / "data").rename(tmp_path / "lost")
    cli.run_ok("migrate")
    cli.account("alice")
    assert counts(run_import(cli, "1", f"out.{ending}")[0]) == (3, 0, 0, 0)
    assert stored(cli.folder) == before
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


# Invalid rows and files


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
        == "account_id  1\nfile        rows.csv\ncreated     2\nupdated     0\nunchanged   0\nrejected    3\n"
        "import_id   1\n"
    )
    messages = outcome.err.splitlines()
    assert messages[:3] == [
        "rows.csv: 'surprise' is not a column of a listing and is ignored",
        'rows.csv:5: price must be a number, got "abc"',
        "rows.csv:6: This row has 2 columns, but the header has 5",
    ]
    assert messages[3].startswith("rows.csv:7: title is required; created_at must be a time like 2")
    assert query(cli.folder, "SELECT title, content FROM listings") == [("A", "two\r\nlines"), ("D", "d")]


def test_lines_that_are_not_json_are_rejected_one_by_one(cli: Cli) -> None:
    assert imported(cli, "nope", row(1), "[]", '{"title": "\\ud800"}', row(2), code=1) == (2, 0, 0, 3)


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
        ("a.jsonl", b"", "a.jsonl is empty"),
        (
            "a.csv",
            b"1025,a\n",
            "The first line of a.csv must name the columns, separated by commas, for example id,title,price",
        ),
        ("a.csv", b"title,title\n", "The column title appears twice in a.csv"),
    ],
)
def test_an_invalid_file_is_rejected_as_a_whole(cli: Cli, name: str, content: bytes, error_message: str) -> None:
    (cli.folder / name).write_bytes(content)
    assert cli.get_error("import", "1", name) == error_message
    assert cli.get_error("import", "1", name, "--new-ids", "--dry-run") == error_message
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


# A dry run


def test_a_dry_run_prints_the_same_and_writes_nothing(cli: Cli) -> None:
    imported(cli, row(1), row(2))
    before = stored(cli.folder)
    rows: list[Data | str] = [row(1, id=1025), row(9, id=2049), row(3), row(4, id=7169), {"id": 7169, "title": "x"}]
    rows += [row(5, id=1026), "{"]
    file = write_lines(cli, "more.jsonl", *rows)
    dry_run, messages = run_import(cli, "1", file, "--dry-run", code=1)
    assert stored(cli.folder) == before
    assert messages.endswith("This was a dry run: nothing was written\n")
    assert query(cli.folder, "SELECT last FROM listing_ids") == [(2,)]
    done, messages_again = run_import(cli, "1", file, code=1)
    assert dry_run["import_id"] is None
    assert done == {**dry_run, "import_id": 2}
    assert counts(done) == (2, 2, 1, 2)
    assert messages_again.splitlines()[:-1] == messages.splitlines()[:-1]


def test_a_dry_run_reads_the_file_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    rows = ImportFile.rows

    def record(file: ImportFile, start: Position) -> Iterator[Row]:
        starts.append(start)
        return rows(file, start)

    monkeypatch.setattr(ImportFile, "rows", record)
    run_import(cli, "1", write_lines(cli, "rows.jsonl", row(1)), "--dry-run")
    assert starts == [Position()]


def test_a_dry_run_rejects_rows_for_which_there_is_no_room(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(cli, row(1), row(2))  # 22 bytes each
    monkeypatch.setenv("LISTINGS_MAX_ACCOUNT_LISTINGS", "3")
    monkeypatch.setenv("LISTINGS_MAX_ACCOUNT_BYTES", "70")
    rows = [row(3), row(4), {"id": 1025, "deleted_at": "2026-01-01 00:00:00"}, row(5)]
    file = write_lines(cli, "more.jsonl", *rows, *({"id": 2049, "content": "x" * length} for length in (16, 15)))
    dry_run, messages = run_import(cli, "1", file, "--dry-run", code=1)
    done, messages_again = run_import(cli, "1", file, code=1)
    assert done == {**dry_run, "import_id": 2}
    assert counts(done) == (2, 2, 0, 2)
    assert messages_again.splitlines()[:-1] == messages.splitlines()[:-1]


# Importing a file again


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
    assert counts(run_import(cli, "1", file, "--new-ids")[0]) == (1, 0, 0, 0)
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


# Undoing an import


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
    """Delete all listings and the records of imports."""
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
    while kills < 10:
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


@pytest.mark.covers_programs
def test_concurrent_imports_of_a_file_create_each_listing_once(cli: Cli) -> None:
    file = write_lines(cli, "rows.jsonl", *(row(number) for number in range(2_000)))
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda _: Program(cli.folder).run("import", "1", file), range(2)))
    if [end.code for end in ends] == [1, 1]:  # each of them was interrupted by the other
        cli.run_ok("import", "1", file)
    else:
        assert sorted(end.code for end in ends) == [0, 1]
    error = next(end.err for end in ends if end.code)
    assert "Another import of this file is running" in error or "was imported on" in error
    assert len(titles(cli)) == 2_000


# Memory


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
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_export_and_import_use_little_memory(large: Path, ending: str) -> None:
    file = f"out.{ending}"
    assert measure_memory(large, "export", "1", file) < MAX_MEMORY_KIB
    assert (large / file).stat().st_size > 2 * MAX_MEMORY_KIB * 1024
    assert measure_memory(large, "import", "1", file, "--dry-run") < MAX_MEMORY_KIB
    assert measure_memory(large, "import", "1", file) < MAX_MEMORY_KIB
    (large / file).unlink()
