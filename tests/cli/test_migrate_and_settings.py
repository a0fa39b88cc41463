"""Tests of all commands: the required database, settings, help, output and errors."""

import asyncio
import json
import os
import re
import shlex
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
from tests.cli.commands import PROGRAM, Cli, Data, Outcome, Program, clean_environment
from tests.cli.fixed_response import responding
from tests.harness import load_test_settings
from tests.processes import run_program
from tests.sqlite_database import create_database
from tests.store.databases import change

pytestmark = pytest.mark.covers_programs

ADD_ACCOUNT = ["account", "create", "--name", "alice", "--email", "alice@example.com"]
NEED_A_DATABASE = [  # all open it with the same function, so most tests run only the first
    ADD_ACCOUNT,
    ["account", "plan", "1", "--expire"],
    ["key", "create", "1", "--name", "warehouse"],
    ["key", "revoke", "1"],
    ["list", "1"],
]
CREATE_A_DATABASE = [["migrate"], ["serve", "--port", "0"], ["serve", "--port", "0", "--workers", "2"]]


def list_commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from list_commands(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = list(list_commands(listings))


def get_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_migrate_creates_a_private_database(cli: Cli) -> None:
    cli.run_ok("migrate")
    folder = cli.folder / "data"
    assert get_mode(folder) == 0o700
    assert {file.name: get_mode(file) for file in folder.iterdir()} == {
        "listings.db": 0o600,
        "listings.db.lock": 0o600,
    }


def test_migrate_does_not_change_an_existing_folder(cli: Cli) -> None:
    folder = cli.folder / "data"
    folder.mkdir(mode=0o755)
    cli.run_ok("migrate")
    assert (get_mode(folder), get_mode(folder / "listings.db")) == (0o755, 0o600)


def test_migrate_prints_the_path_and_the_applied_migrations(cli: Cli) -> None:
    first, second = cli.data("migrate"), cli.data("migrate")
    assert first["database"] == second["database"] == str(cli.folder / "data/listings.db")
    assert first["applied"][0].startswith("0001_")
    assert second["applied"] == []


def test_migrating_twice_changes_no_data(cli: Cli, alice: Data) -> None:
    assert "none" in cli.run_ok("migrate").err
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


def test_migrate_prints_the_path_without_json(cli: Cli) -> None:
    path = cli.folder / "data/listings.db"
    planned = cli.run_ok("migrate", "--dry-run").err.splitlines()
    assert planned[0].startswith(f"Pending migrations of {path}: 0001_listings, ")
    assert planned[1:] == ["This was a dry run: nothing was written"]
    count = planned[0].count(",") + 1
    assert cli.run_ok("migrate").err == f"Created {path} ({count} migrations)\n"
    assert cli.run_ok("migrate").err == f"{path} is up to date; applied migrations: none\n"


@pytest.mark.parametrize("text", ["0", "x", str(2**63)])
def test_ids_are_positive_integers(cli: Cli, text: str) -> None:
    assert f"'{text}' is not an id" in cli.get_usage_error("show", text)
    assert "<=x<=" not in cli.run_ok("account", "undo", "--help").out


@pytest.mark.parametrize("command", NEED_A_DATABASE)
def test_a_missing_database_is_named_and_not_created(cli: Cli, command: list[str]) -> None:
    error = cli.get_error(*command)
    assert str(cli.folder / "data/listings.db") in error
    assert "`listings migrate`" in error
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("command", [ADD_ACCOUNT, *CREATE_A_DATABASE, ["migrate", "--dry-run"], ["backup", "b"]])
@pytest.mark.parametrize("state", ["missing", "empty"])
def test_the_wal_of_a_missing_database_is_named_and_preserved(
    cli: Cli, database: Path, command: list[str], state: str
) -> None:
    database.unlink()
    journal = database.with_name("listings.db-wal")
    journal.write_text("acknowledged writes")
    if state == "empty":
        database.touch()
    before = read_files(database.parent)
    error = cli.get_error(*command)
    assert f"The database {database} is missing or empty, but {journal} still contains writes to it: put" in error
    assert read_files(database.parent) == before


def test_a_database_without_schema_is_rejected(cli: Cli) -> None:
    (cli.folder / "data").mkdir()
    (cli.folder / "data/listings.db").touch()
    assert "`listings migrate`" in cli.get_error(*ADD_ACCOUNT)


@pytest.mark.parametrize("command", [ADD_ACCOUNT, ["migrate"]])
def test_a_database_of_a_newer_version_is_rejected(cli: Cli, database: Path, command: list[str]) -> None:
    newer = apsw.Connection(str(database))
    newer.execute("INSERT INTO schema_migrations VALUES (9999, 'newer', 'checksum', 0)")
    newer.close()
    assert "newer" in cli.get_error(*command)


@pytest.mark.parametrize("command", [ADD_ACCOUNT, ["migrate"]])
def test_a_file_that_is_not_a_database_is_rejected_and_preserved(cli: Cli, command: list[str]) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    path.write_text("Dear diary, " * 100)
    assert "listings.db" in cli.get_error(*command)
    assert path.read_text().startswith("Dear diary, ")


@pytest.mark.parametrize("command", [*CREATE_A_DATABASE, ["migrate", "--dry-run"]])
def test_no_file_is_created_next_to_a_file_that_is_not_a_database(cli: Cli, command: list[str]) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    path.write_text("Dear diary, " * 100)
    before = read_files(path.parent)
    assert "data/listings.db can't be used: file is not a database" in cli.get_error(*command)
    assert read_files(path.parent) == before


@pytest.mark.parametrize("command", [*CREATE_A_DATABASE, ["migrate", "--dry-run"]])
def test_no_file_is_created_next_to_a_pipe(cli: Cli, command: list[str]) -> None:
    os.mkfifo(cli.folder / "fifo")
    assert "fifo can't be used: it is not a regular file" in cli.get_error("--database-url", "sqlite:///fifo", *command)
    assert [path.name for path in cli.folder.iterdir()] == ["fifo"]


@pytest.mark.parametrize(
    "command", [ADD_ACCOUNT, *CREATE_A_DATABASE, ["migrate", "--dry-run"], ["backup", "backup.db"]]
)
@pytest.mark.parametrize(
    ("tables", "mode"),
    [
        ("CREATE TABLE notes (text)", "WAL"),
        ("CREATE TABLE schema_migrations (version INTEGER, dirty INTEGER)", "DELETE"),
    ],
)
def test_another_programs_database_is_rejected_and_preserved(
    cli: Cli, command: list[str], tables: str, mode: str
) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as other:
        other.execute(f"PRAGMA journal_mode = {mode}; {tables}").fetchall()
    before = read_files(path.parent)
    error = cli.get_error(*command)
    assert error == f"{path} is not a Listings database: check that LISTINGS_DATABASE_URL names the right file"
    after = read_files(path.parent)
    assert {name: after[name] for name in before} == before
    if command not in NEED_A_DATABASE:
        assert after == before


def test_another_programs_database_is_rejected_while_in_use(cli: Cli) -> None:
    path = cli.folder / "data/listings.db"
    path.parent.mkdir()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("PRAGMA journal_mode = WAL; CREATE TABLE notes (text)").fetchall()
        wal = path.with_name("listings.db-wal").read_bytes()
        assert "is not a Listings database" in cli.get_error("migrate")
        after = read_files(path.parent)
    assert sorted(after) == ["listings.db", "listings.db-shm", "listings.db-wal"]
    assert after["listings.db-wal"] == wal


@pytest.mark.parametrize("command", [ADD_ACCOUNT, ["migrate"]])
@pytest.mark.parametrize("url", ["sqlite:///folder", "sqlite:///file/listings.db", "sqlite:///" + "a" * 300])
def test_an_invalid_database_path_is_rejected(cli: Cli, command: list[str], url: str) -> None:
    (cli.folder / "folder").mkdir()
    (cli.folder / "file").touch()
    cli.get_error("--database-url", url, *command)
    assert sorted(path.name for path in cli.folder.iterdir()) == ["file", "folder"]


def test_flags_override_the_environment_and_defaults(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def database(*flags: str) -> str:
        return str(Path(cli.data(*flags, "migrate")["database"]).relative_to(cli.folder))

    assert database() == "data/listings.db"
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "sqlite:///environment.db")
    assert database() == "environment.db"
    assert database("--database-url", "sqlite:///flag.db") == "flag.db"
    monkeypatch.setenv("LISTINGS_DATABASE_URL", "")
    assert database() == "data/listings.db"


def test_every_command_uses_the_configured_database(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_DATABASE_URL", f"sqlite:///{cli.folder}/other%20folder/the.db")
    cli.run_ok("migrate")
    alice = cli.account("alice", "--months", "1")
    cli.run_ok("key", "revoke", str(cli.key(alice)["id"]))
    cli.run_ok("account", "plan", str(alice["id"]), "--expire")
    assert [path.name for path in cli.folder.iterdir()] == ["other folder"]


# tests/settings/test_settings.py rejects invalid values of every setting.
@pytest.mark.parametrize("command", [["migrate"], ["serve"], *NEED_A_DATABASE])
def test_an_invalid_value_is_reported_with_its_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str, command: list[str]
) -> None:
    monkeypatch.setenv("LISTINGS_PORT", taken_port)  # so that it cannot start
    monkeypatch.setenv("LISTINGS_RATE_WINDOW", "an hour")
    error = cli.get_error(*command)
    assert error.startswith("LISTINGS_RATE_WINDOW must be ")
    assert "an hour" in error
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
def test_an_invalid_flag_is_a_usage_error(cli: Cli, arguments: list[str]) -> None:
    cli.get_usage_error(*arguments)
    assert list(cli.folder.iterdir()) == []


# tests/settings/test_settings.py tests the order of the variables.
@pytest.mark.parametrize(("variable", "flags"), [("TAKEN", []), ("two", ["--port", "TAKEN"])])
def test_the_port_comes_from_the_flag_or_the_environment(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, taken_port: str, variable: str, flags: list[str]
) -> None:
    monkeypatch.setenv("LISTINGS_PORT", variable.replace("TAKEN", taken_port))
    error = cli.get_error("serve", *(flag.replace("TAKEN", taken_port) for flag in flags))
    assert f"port {taken_port}" in error
    assert list(cli.folder.iterdir()) == []


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "192.0.2.1", "2001:db8::1"])
def test_a_host_of_another_machine_is_a_one_line_error(cli: Cli, host: str) -> None:
    assert host in cli.get_error("serve", "--host", host, "--port", "0")
    assert list(cli.folder.iterdir()) == []


def test_every_command_has_help_with_an_example(cli: Cli) -> None:
    for names, command in COMMANDS:
        example = re.search(f"Example: (listings {' '.join(names)}.*)", command.help or "")
        assert example is not None, names
        outcome = cli.run_ok(*names, "--help")
        assert outcome.out.startswith(f"Usage: listings {' '.join(names)} ")
        assert example[1] in outcome.out
        assert all(option.help for option in command.params if isinstance(option, click.Option)), names


def prepare(cli: Cli, database: Path) -> None:
    """Create the account alice with the key 7 and the listing 1025."""
    alice = cli.account("alice", "--months", "12")
    cli.key(alice)
    asyncio.run(create_listing(cli.folder, alice["id"]))
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE api_keys SET id = 7")
    connection.close()
    cli.run_ok("export", "alice@example.com", "exported.csv")


async def create_listing(folder: Path, account_id: int) -> None:
    async with wiring.open_services(load_test_settings(folder / "data")) as services:
        caller = Caller(1, account_id, account_id, None, None, None, None, "write")
        added = await services.listings.create(caller, NewListing(title="Bicycle", content="Two wheels."))
        assert added.listing_id == 1025


NOT_RUN = {
    ("serve",),
    ("copy",),
    ("reload",),
    ("restored",),
}  # serve does not end, the others need a server
EXAMPLES = [(names, command) for names, command in COMMANDS if names not in NOT_RUN]


@pytest.mark.parametrize(("names", "command"), EXAMPLES, ids=[" ".join(names) for names, _ in EXAMPLES])
def test_every_example_works(
    cli: Cli, database: Path, names: tuple[str, ...], command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    if names != ("account", "create"):
        prepare(cli, database)
    example = re.search(r"Example:\s+listings (.+)", command.help or "")
    assert example is not None
    if names == ("restore",):
        cli.run_ok("backup", "listings-backup.db")
    if names == ("undelete",):
        cli.run_ok("delete", "1025")
    if names == ("picture", "delete"):
        name = re.search("[0-9a-f]{32}", example[1])
        assert name is not None
        values = f"'{name[0]}', 1, zeroblob(32), 1, 1, 1, 1, NULL, '', '', NULL"
        change(database, f"INSERT INTO pictures VALUES ({values})")  # noqa: S608 - the name in the example
    if names == ("takedown", "lift"):
        cli.run_ok("takedown", "add", "1025", "--reason", "A copy")
    if names == ("operator", "remove"):
        cli.run_ok("operator", "add", "alice@example.com")
    if names == ("import",):
        (cli.folder / "exported.csv").rename(cli.folder / "alice.csv")
    with responding(200, b'{"status": "ready"}') as port:  # as a service does, for doctor
        monkeypatch.setenv("LISTINGS_PORT", port)
        cli.run_ok(*shlex.split(example[1]))


def test_the_version_is_printed(cli: Cli) -> None:
    assert __version__ in cli.run_ok("--version").out


@pytest.mark.parametrize("arguments", [[], ["account"], ["key"], ["surprise"], ["--surprise"], ["migrate", "surprise"]])
def test_an_unknown_command_is_a_usage_error(cli: Cli, arguments: list[str]) -> None:
    cli.get_usage_error(*arguments)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["init"], "migrate"),
        (["acc0unt"], "account"),
        (["account", "delete"], "erase"),
        (["key", "delete"], "revoke"),
        (["close"], "delete"),
        (["reopen"], "undelete"),
        (["restart"], "reload"),
        (["account", "reopen"], "enable"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(cli: Cli, arguments: list[str], suggestion: str) -> None:
    assert f"Did you mean '{suggestion}'?" in cli.get_usage_error(*arguments)


@pytest.mark.parametrize("name", ["store", "resume", "rest", "remove", "retire"])
def test_no_other_word_suggests_to_replace_the_database(cli: Cli, name: str) -> None:
    assert "restore" not in cli.get_usage_error(name)


def test_the_program_uses_the_three_exit_codes(program: Program) -> None:
    assert program.run(*ADD_ACCOUNT).code == 1
    create_database(program.folder / "data/listings.db")
    created = program.run(*ADD_ACCOUNT, "--json")
    assert created.code == 0
    assert created.out.startswith('{"id":1,"name":"alice",')
    assert program.run(*ADD_ACCOUNT, "--months", "one").code == 2


@pytest.mark.usefixtures("database")
def test_names_in_any_script_are_printed(program: Program) -> None:
    outcome = program.run("account", "create", "--name", "株式会社 ☃", "--email", "a@example.com")
    assert outcome.code == 0
    assert "株式会社 ☃" in outcome.out


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_causes_no_traceback(program: Program, options: list[str]) -> None:
    outcome = program.run_with_closed_pipe(*ADD_ACCOUNT, *options)
    assert (outcome.code, outcome.err) == (1, "")


def test_a_demo_with_a_closed_pipe_causes_no_traceback(program: Program) -> None:
    outcome = program.run_with_closed_pipe("serve", "--demo", "--port", "0")
    assert outcome.code == 1
    assert "Traceback" not in outcome.err


def test_an_unexpected_error_is_a_one_line_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(maintenance, "list_pending_migrations", fail)
    outcome = cli("migrate", "--dry-run")
    message = "Unexpected error, please report it: OSError: [Errno 5] Input/output error"
    assert (outcome.code, outcome.err) == (1, f"listings: {message}\n")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    "arguments",
    [["account", "list"], ["settings", "--json"], ["--help"], ["completion", "bash"]],
)
def test_unwritable_output_is_a_one_line_error(program: Program, arguments: list[str]) -> None:
    for unbuffered in ("", "1"):
        program.environment["PYTHONUNBUFFERED"] = unbuffered
        with Path("/dev/full").open("wb") as full:
            outcome = program.run_into(full, *arguments)
        assert (outcome.code, outcome.err) == (1, "listings: Can't write the output: No space left on device\n")


@pytest.mark.usefixtures("database")
def test_a_closed_output_is_a_one_line_error(program: Program) -> None:
    outcome = run_with(">&-", program.folder, "account", "list")
    assert (outcome.code, outcome.err) == (1, "listings: Can't write the output: Bad file descriptor\n")


@pytest.mark.usefixtures("alice")
def test_a_key_that_could_not_be_printed_is_named(program: Program) -> None:
    lost = "was created but could not be printed: run `listings key revoke"
    for number, arguments in enumerate((["create", "1", "--name", "warehouse"], ["rotate", "1"]), start=1):
        with Path("/dev/full").open("wb") as full:
            outcome = program.run_into(full, "key", *arguments)
        assert outcome.code == 1
        assert outcome.err.splitlines()[-1] == (
            f"listings: Can't write the output: No space left on device; key {number} {lost} {number}`"
        )
    outcome = program.run_with_closed_pipe("key", "create", "1", "--name", "warehouse", "--json")
    assert outcome.err.splitlines()[-1] == f"listings: Can't write the output: Broken pipe; key 3 {lost} 3`"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_command_with_closed_streams_ends_normally(database: Path, closed: str) -> None:
    outcome = run_with(closed, database.parent.parent, "migrate")
    assert (outcome.code, "Traceback" in outcome.err) == (int("full" in closed), False)
    assert database.is_file()


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_wrong_usage_with_closed_stderr_has_its_exit_code(program: Program, closed: str) -> None:
    assert run_with(closed, program.folder, "unknown").code == 2


@pytest.mark.usefixtures("alice")
def test_a_command_with_closed_stderr_prints_its_data(program: Program) -> None:
    outcome = run_with("2>&-", program.folder, "account", "list", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["name"] == "alice"


def run_with(redirection: str, folder: Path, *arguments: str) -> Outcome:
    command = f"{shlex.join([str(PROGRAM), *arguments])} {redirection}"
    process = run_program(["sh", "-c", command], cwd=folder, env=clean_environment())
    return Outcome(process.returncode, process.stdout, process.stderr)


def test_a_write_error_is_a_one_line_error(program: Program, database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("INSERT INTO accounts (bucket, name, email, created_at) VALUES (1, 'bob', 'bob@example.com', 1)")
    connection.execute("CREATE UNIQUE INDEX only_one ON accounts ((1))")
    connection.close()
    assert "rejected" in program.run(*ADD_ACCOUNT).error_message


def imported_by(folder: Path, *arguments: str) -> set[str]:
    code = (
        "import sys; from listings.cli import main\n"
        f"assert main({list(arguments)!r}) == 0\n"
        "print(*{name for name in sys.modules if name.count('.') <= 1}, file=sys.stderr)"
    )
    outcome = run_program([sys.executable, "-c", code], cwd=folder, env=clean_environment(), check=True)
    return set(outcome.stderr.splitlines()[-1].split())


def test_a_command_imports_only_the_modules_it_needs(tmp_path: Path) -> None:
    for arguments in (["migrate"], ["account", "list"]):
        modules = imported_by(tmp_path, *arguments)
        assert modules >= {"listings.store", "apsw"}
        assert not modules & {"listings.api", "listings.telemetry.metrics"}
        assert not modules & {"listings.site.lazy", "listings.site"}
        assert not modules & {"uvicorn", "httptools", "prometheus_client", "starlette", "jinja2"}
        assert ("rich" in modules) == (arguments == ["account", "list"])  # only for tables and progress bars
    assert not imported_by(tmp_path, "settings") & {"listings.service", "listings.store", "apsw"}
