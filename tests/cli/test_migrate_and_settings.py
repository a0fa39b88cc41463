"""What holds for every command: the database it needs, the settings in force, help, and how failures end."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import click
import pytest

from listings import __version__, maintenance, wiring
from listings.cli import listings
from listings.domain.model import Caller, NewListing
from listings.settings import SETTINGS
from tests.cli.commands import PROGRAM, Cli, Data, Outcome, Program, clean_environment
from tests.harness import load_test_settings

ADD_ACCOUNT = ["account", "create", "--name", "alice", "--email", "alice@example.com"]
NEED_A_DATABASE = [
    ADD_ACCOUNT,
    ["account", "plan", "1", "--expire"],
    ["key", "create", "1", "--name", "warehouse"],
    ["key", "revoke", "1"],
    ["list", "1"],
]
MAKE_A_DATABASE = [["migrate"], ["serve", "--port", "0"], ["serve", "--port", "0", "--workers", "2"]]


def commands_of(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = list(commands_of(listings))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# The database


def test_migrate_makes_a_database_for_its_owner_alone(cli: Cli) -> None:
    cli.done("migrate")
    folder = cli.folder / "data"
    assert mode_of(folder) == 0o700
    assert {file.name: mode_of(file) for file in folder.iterdir()} == {
        "listings.db": 0o600,
        "listings.db.lock": 0o600,
    }


def test_migrate_leaves_a_folder_that_is_there_as_it_is(cli: Cli) -> None:
    folder = cli.folder / "data"
    folder.mkdir(mode=0o755)
    cli.done("migrate")
    assert (mode_of(folder), mode_of(folder / "listings.db")) == (0o755, 0o600)


def test_migrate_tells_where_the_data_is_and_what_was_applied(cli: Cli) -> None:
    first, second = cli.data("migrate"), cli.data("migrate")
    assert first["database"] == second["database"] == str(cli.folder / "data/listings.db")
    assert first["applied"][0].startswith("0001_")
    assert second["applied"] == []


def test_migrating_twice_keeps_what_is_there(cli: Cli, alice: Data) -> None:
    assert "none" in cli.done("migrate").err
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


def test_migrate_says_where_the_data_is(cli: Cli) -> None:
    assert str(cli.folder / "data/listings.db") in cli.done("migrate").err


@pytest.mark.parametrize("command", NEED_A_DATABASE)
def test_a_missing_database_is_named_and_not_made(cli: Cli, command: list[str]) -> None:
    said = cli.refused(*command)
    assert str(cli.folder / "data/listings.db") in said
    assert "`listings migrate`" in said
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("command", [*NEED_A_DATABASE, *MAKE_A_DATABASE, ["migrate", "--dry-run"], ["backup", "b"]])
@pytest.mark.parametrize("state", ["missing", "empty", "journal"])
def test_what_is_left_of_a_database_that_is_gone_is_named_and_not_touched(
    cli: Cli, database: Path, command: list[str], state: str
) -> None:
    database.unlink()
    left = database.with_name(f"listings.db-{'journal' if state == 'journal' else 'wal'}")
    left.write_text("what was acknowledged")
    if state == "empty":
        database.touch()
    before = contents_of(database.parent)
    said = cli.refused(*command)
    assert f"The database {database} is missing, but {left} still contains writes to it: put the file back" in said
    assert contents_of(database.parent) == before


@pytest.mark.parametrize("command", NEED_A_DATABASE)
def test_a_database_that_was_never_migrated_is_refused(cli: Cli, command: list[str]) -> None:
    (cli.folder / "data").mkdir()
    (cli.folder / "data/listings.db").touch()
    assert "`listings migrate`" in cli.refused(*command)


@pytest.mark.parametrize("command", [*NEED_A_DATABASE, ["migrate"]])
def test_a_database_of_a_newer_program_is_refused(cli: Cli, database: Path, command: list[str]) -> None:
    newer = apsw.Connection(str(database))
    newer.execute("INSERT INTO schema_migrations VALUES (9999, 'newer', 'checksum', 0)")
    newer.close()
    assert "newer" in cli.refused(*command)


@pytest.mark.parametrize("command", [*NEED_A_DATABASE, ["migrate"]])
def test_a_file_that_is_no_database_is_refused_and_kept(cli: Cli, command: list[str]) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    path.write_text("Dear diary, " * 100)
    assert "listings.db" in cli.refused(*command)
    assert path.read_text().startswith("Dear diary, ")


@pytest.mark.parametrize("command", [*MAKE_A_DATABASE, ["migrate", "--dry-run"]])
def test_nothing_is_made_beside_a_file_that_is_no_database(cli: Cli, command: list[str]) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    path.write_text("Dear diary, " * 100)
    before = contents_of(path.parent)
    assert "data/listings.db can't be used: file is not a database" in cli.refused(*command)
    assert contents_of(path.parent) == before


@pytest.mark.parametrize("command", [*MAKE_A_DATABASE, ["migrate", "--dry-run"]])
def test_nothing_is_made_beside_what_is_no_file(cli: Cli, command: list[str]) -> None:
    os.mkfifo(cli.folder / "fifo")
    assert "fifo can't be used: it is not a regular file" in cli.refused("--database-url", "sqlite:///fifo", *command)
    assert [path.name for path in cli.folder.iterdir()] == ["fifo"]


@pytest.mark.parametrize(
    "command", [*NEED_A_DATABASE, *MAKE_A_DATABASE, ["migrate", "--dry-run"], ["backup", "backup.db"]]
)
@pytest.mark.parametrize(
    "tables", ["CREATE TABLE notes (text)", "CREATE TABLE schema_migrations (version INTEGER, dirty INTEGER)"]
)
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_another_programs_database_is_refused_and_not_touched(
    cli: Cli, command: list[str], tables: str, mode: str
) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as other:
        other.execute(f"PRAGMA journal_mode = {mode}; {tables}").fetchall()
    before = contents_of(path.parent)
    said = cli.refused(*command)
    assert said == f"{path} is not a Listings database: check that LISTINGS_DATABASE_URL names the right file"
    after = contents_of(path.parent)
    assert {name: after[name] for name in before} == before
    if command not in NEED_A_DATABASE:
        assert after == before


def test_another_programs_database_is_refused_while_that_writes(cli: Cli) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("PRAGMA journal_mode = WAL; CREATE TABLE notes (text)").fetchall()
        wal = path.with_name("listings.db-wal").read_bytes()
        assert "is not a Listings database" in cli.refused("migrate")
        after = contents_of(path.parent)
    assert sorted(after) == ["listings.db", "listings.db-shm", "listings.db-wal"]
    assert after["listings.db-wal"] == wal


@pytest.mark.parametrize("command", [*NEED_A_DATABASE, ["migrate"]])
@pytest.mark.parametrize("url", ["sqlite:///folder", "sqlite:///file/listings.db", "sqlite:///" + "a" * 300])
def test_a_path_that_cannot_be_a_database_is_refused(cli: Cli, command: list[str], url: str) -> None:
    (cli.folder / "folder").mkdir()
    (cli.folder / "file").touch()
    cli.refused("--database-url", url, *command)
    assert sorted(path.name for path in cli.folder.iterdir()) == ["file", "folder"]


# Settings


def test_a_flag_wins_over_the_environment_and_that_over_the_default(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def database(*flags: str) -> str:
        return str(Path(cli.data(*flags, "migrate")["database"]).relative_to(cli.folder))

    assert database() == "data/listings.db"
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "sqlite:///environment.db")
    assert database() == "environment.db"
    assert database("--database-url", "sqlite:///flag.db") == "flag.db"
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "")
    assert database() == "data/listings.db"


def test_every_command_uses_the_database_that_is_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", f"sqlite:///{cli.folder}/else%20where/the.db")
    cli.done("migrate")
    alice = cli.account("alice", "--months", "1")
    cli.done("key", "revoke", str(cli.key(alice)["id"]))
    cli.done("account", "plan", str(alice["id"]), "--expire")
    assert [path.name for path in cli.folder.iterdir()] == ["else where"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LISTINGS_DATABASE_URL", "mysql://localhost/listings"),
        ("LISTINGS_DATABASE_URL", "data/listings.db"),
        ("LISTINGS_DATABASE_URL", "sqlite:///"),
        ("LISTINGS_DATABASE_URL", "sqlite:///:memory:"),
        ("LISTINGS_HOST", "not a host"),
        ("LISTINGS_HOST", "http://127.0.0.1"),
        ("LISTINGS_PORT", "eighty"),
        ("LISTINGS_PORT", "65536"),
        ("LISTINGS_PORT", "-1"),
        ("PORT", "eighty"),
        ("LISTINGS_RATE_LIMIT", "-1"),
        ("LISTINGS_RATE_LIMIT", "1e3"),
        ("LISTINGS_RATE_WINDOW", "0"),
        ("LISTINGS_RATE_WINDOW", "an hour"),
        ("LISTINGS_CORS_ORIGINS", "shop.example"),
    ],
)
def test_a_wrong_value_names_its_variable_and_changes_nothing(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    for command in (["migrate"], *NEED_A_DATABASE):
        said = cli.refused(*command)
        assert said.startswith(f"{variable} must be ")
        assert value in said
    assert list(cli.folder.iterdir()) == []


ANY_PATH = {"seed_file", "data_folder"}


@pytest.mark.parametrize("variable", [row.variables[0] for row in SETTINGS if row.attribute not in ANY_PATH])
def test_a_wrong_value_stops_the_start(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str, variable: str
) -> None:
    monkeypatch.setenv("LISTINGS_PORT", taken_port)  # where it would stop in any case
    monkeypatch.setenv(variable, "not good")
    assert cli.refused("serve").startswith(f"{variable} must be ")
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--database-url", "mysql://localhost/listings", "serve"],
        ["serve", "--host", "not a host"],
        ["serve", "--port", "65536"],
        ["serve", "--port", ""],
        ["serve", "--surprise"],
        ["serve", "surprise"],
    ],
)
def test_a_wrong_flag_is_wrong_usage_and_changes_nothing(program: Program, arguments: list[str]) -> None:
    outcome = program.run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: listings")
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"PORT": "TAKEN", "LISTINGS_PORT": ""}, []),
        ({"PORT": "one", "LISTINGS_PORT": "TAKEN"}, []),
        ({"PORT": "1", "LISTINGS_PORT": "2"}, ["--port", "TAKEN"]),
        ({"LISTINGS_PORT": "two"}, ["--port", "TAKEN"]),
    ],
)
def test_the_port_is_the_flags_then_listings_port_then_port(
    tmp_path: Path, taken_port: str, environment: dict[str, str], flags: list[str]
) -> None:
    values = {name: value.replace("TAKEN", taken_port) for name, value in environment.items()}
    said = Program(tmp_path, **values).run("serve", *(flag.replace("TAKEN", taken_port) for flag in flags)).sentence
    assert f"port {taken_port}" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "192.0.2.1", "2001:db8::1"])
def test_a_host_that_is_not_this_machines_is_refused_in_a_sentence(program: Program, host: str) -> None:
    assert host in program.run("serve", "--host", host, "--port", "0").sentence
    assert list(program.folder.iterdir()) == []


# Help


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["account", "--help"], ["key", "--help"]])
def test_groups_list_their_commands(cli: Cli, arguments: list[str]) -> None:
    outcome = cli.done(*arguments)
    assert "Commands:" in outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize(("names", "command"), COMMANDS, ids=[" ".join(names) for names, _ in COMMANDS])
def test_every_command_has_help_with_an_example_to_paste(
    cli: Cli, names: tuple[str, ...], command: click.Command
) -> None:
    example = re.search(r"Example:\s+(listings .+)", command.help or "")
    assert example is not None
    outcome = cli.done(*names, "--help")
    assert outcome.out.startswith(f"Usage: listings {' '.join(names)} ")
    assert example[1] in outcome.out
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def furnish(cli: Cli, database: Path) -> None:
    """alice, with the key 7 and the listing 1025."""
    alice = cli.account("alice", "--months", "12")
    cli.key(alice)
    asyncio.run(create_listing(cli.folder, alice["id"]))
    fill = apsw.Connection(str(database))
    fill.execute("UPDATE api_keys SET id = 7")
    fill.close()
    cli.done("export", "alice@example.com", "exported.csv")


async def create_listing(folder: Path, account_id: int) -> None:
    async with wiring.open_service(load_test_settings(folder / "data")) as service:
        caller = Caller(1, account_id, account_id, None, None, None, None)
        added = await service.create_listing(caller, NewListing(title="Bicycle", content="Two wheels."))
        assert added.listing_id == 1025


ON_THEIR_OWN = {("serve",), ("conform",), ("copy",)}  # one would not end, the others need a server
SOUND_EXAMPLES = [(names, command) for names, command in COMMANDS if names not in ON_THEIR_OWN]


@pytest.mark.parametrize(("names", "command"), SOUND_EXAMPLES, ids=[" ".join(names) for names, _ in SOUND_EXAMPLES])
def test_every_example_is_right(cli: Cli, database: Path, names: tuple[str, ...], command: click.Command) -> None:
    if names != ("account", "create"):
        furnish(cli, database)
    example = re.search(r"Example:\s+listings (.+)", command.help or "")
    assert example is not None
    if names == ("restore",):
        cli.done("backup", "listings-backup.db")
    if names == ("undelete",):
        cli.done("delete", "1025")
    if names == ("import",):
        (cli.folder / "exported.csv").rename(cli.folder / "alice.csv")
    cli.done(*shlex.split(example[1]))


def test_the_version_is_told(cli: Cli) -> None:
    assert __version__ in cli.done("--version").out


@pytest.mark.parametrize("arguments", [[], ["account"], ["key"], ["surprise"], ["--surprise"], ["migrate", "surprise"]])
def test_what_is_no_command_is_wrong_usage(cli: Cli, arguments: list[str]) -> None:
    cli.misused(*arguments)


# The program itself


def test_the_program_ends_with_the_three_exit_codes(program: Program) -> None:
    assert program.run(*ADD_ACCOUNT).code == 1
    assert program.run("migrate").code == 0
    assert program.run(*ADD_ACCOUNT, "--json").out.startswith('{"id":1,"name":"alice",')
    assert program.run(*ADD_ACCOUNT, "--months", "one").code == 2


@pytest.mark.usefixtures("database")
def test_a_name_of_any_script_is_printed(program: Program) -> None:
    outcome = program.run("account", "create", "--name", "株式会社 ☃", "--email", "a@example.com")
    assert outcome.code == 0
    assert "株式会社 ☃" in outcome.out


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_gone_is_no_reason_for_a_traceback(program: Program, options: list[str]) -> None:
    outcome = program.pipe_to_nobody(*ADD_ACCOUNT, *options)
    assert (outcome.code, outcome.err) == (1, "")


def test_help_for_a_reader_that_has_gone_is_no_reason_for_a_traceback(program: Program) -> None:
    outcome = program.pipe_to_nobody("--help")
    assert (outcome.code, outcome.err) == (1, "")


def test_a_demo_without_a_reader_ends_without_a_traceback(program: Program) -> None:
    outcome = program.pipe_to_nobody("serve", "--demo", "--port", "0")
    assert outcome.code == 1
    assert "Traceback" not in outcome.err


def test_an_unexpected_error_is_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(maintenance, "list_pending_migrations", fail)
    outcome = cli("migrate", "--dry-run")
    told = "This should not have happened, please report it: OSError: [Errno 5] Input/output error"
    assert (outcome.code, outcome.err) == (1, f"listings: {told}\n")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    "arguments",
    [["account", "list"], ["settings", "--json"], ["--help"], ["completion", "bash"]],
)
def test_output_that_can_not_be_written_is_one_sentence(program: Program, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        outcome = program.run_into(full, *arguments)
    assert (outcome.code, outcome.err) == (1, "listings: Can't write the output: No space left on device\n")
    outcome = run_with(">&-", program.folder, *arguments)
    assert (outcome.code, outcome.err) == (1, "listings: Can't write the output: Bad file descriptor\n")


@pytest.mark.usefixtures("alice")
def test_a_key_whose_text_is_lost_is_named(program: Program) -> None:
    lost = "was made and its text is lost: end it with `listings key revoke"
    for number, arguments in enumerate((["create", "1", "--name", "warehouse"], ["rotate", "1"]), start=1):
        with Path("/dev/full").open("wb") as full:
            outcome = program.run_into(full, "key", *arguments)
        assert outcome.code == 1
        assert outcome.err.splitlines()[-1] == (
            f"listings: Can't write the output: No space left on device; key {number} {lost} {number}`"
        )
    outcome = program.pipe_to_nobody("key", "create", "1", "--name", "warehouse", "--json")
    assert outcome.err.splitlines()[-1] == f"listings: Can't write the output: Broken pipe; key 3 {lost} 3`"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_command_whose_streams_are_closed_ends_as_ever(database: Path, closed: str) -> None:
    outcome = run_with(closed, database.parent.parent, "migrate")
    assert (outcome.code, "Traceback" in outcome.err) == (int("full" in closed), False)
    assert database.is_file()


@pytest.mark.usefixtures("alice")
def test_a_command_that_has_nobody_to_tell_prints_as_ever(program: Program) -> None:
    outcome = run_with("2>&-", program.folder, "account", "list", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["name"] == "alice"


def run_with(redirection: str, folder: Path, *arguments: str) -> Outcome:
    command = f"{shlex.join([str(PROGRAM), *arguments])} {redirection}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_a_write_that_the_database_refuses_is_one_sentence(program: Program, database: Path) -> None:
    refusing = apsw.Connection(str(database))
    refusing.execute("CREATE TRIGGER refuse BEFORE INSERT ON accounts BEGIN SELECT RAISE(ABORT, 'no'); END")
    refusing.close()
    assert "rejected" in program.run(*ADD_ACCOUNT).sentence


# What is loaded


def loaded_by(folder: Path, *arguments: str) -> set[str]:
    """The packages and rooms that a command has loaded at its end."""
    code = (
        "import sys; from listings.cli import main\n"
        f"assert main({list(arguments)!r}) == 0\n"
        "print(*{name for name in sys.modules if name.count('.') <= 1}, file=sys.stderr)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=clean_environment(), capture_output=True, text=True, check=True
    )
    return set(outcome.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["migrate"], ["account", "list"]])
def test_a_command_loads_nothing_of_what_only_others_need(tmp_path: Path, arguments: list[str]) -> None:
    assert loaded_by(tmp_path, "migrate") >= {"listings.store", "apsw"}
    loaded = loaded_by(tmp_path, *arguments)
    assert not loaded & {
        "listings.api",
        "listings.telemetry.metrics",
        "listings.conform",
        "listings.service.transfer.importer",
    }
    assert not loaded & {"listings.site.lazy", "listings.site"}
    assert not loaded & {"uvicorn", "httptools", "prometheus_client", "starlette", "jinja2"}
