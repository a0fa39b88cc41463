"""`listings serve`: the demo, the address, commands during the run, and the stop."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import httpx2
import pytest

from listings import maintenance, wiring
from listings.domain.errors import Unavailable
from listings.domain.model import Listing, ListingQuery
from listings.store.sqlite.maintenance import inspection
from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving, demo_environment
from tests.harness import load_test_settings
from tests.processes import run_program
from tests.store import databases

PAGE = {"Accept": "text/html"}
VARIABLES = ["API_KEY", "OTHER_API_KEY", "EXPIRED_API_KEY"]


def find_curl_commands(serving: Serving) -> list[str]:
    return [line for line in serving.lines if line.startswith("curl ")]


def bash(command: str, folder: Path) -> str:
    arguments = ["/bin/bash", "-c", command]
    return run_program(arguments, cwd=folder, check=True).stdout


def list_listings(folder: Path, key: str) -> list[Listing]:
    """Return all listings of a key's account, even if its plan has expired."""
    return asyncio.run(_list_listings(folder, key))


async def _list_listings(folder: Path, key: str) -> list[Listing]:
    async with wiring.open_services(load_test_settings(folder / "data")) as services:
        caller = await services.keys.find(key)
        assert caller is not None
        page = await services.listings.find_page_of_any_size(caller, ListingQuery())  # also on a busy machine
        return page.listings


def read_titles(database: Path, listing_id: int) -> list[object]:
    connection = apsw.Connection(str(database))
    try:
        return [row[0] for row in connection.execute("SELECT title FROM listings WHERE id = ?", (listing_id,))]
    finally:
        connection.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A demo, for tests that change nothing except listings of the first account."""
    with Program(tmp_path_factory.mktemp("demo")).serve("--demo") as serving:
        yield serving


def test_the_demo_prints_its_url_database_and_keys(demo: Serving) -> None:
    banner = "\n".join(demo.lines)
    environment = demo_environment(demo.folder)
    assert demo.base_url in banner
    assert f"delete {demo.folder}/data/demo.env and the files {demo.folder}/data/listings.db*" in banner
    for variable in VARIABLES:
        assert re.search(rf"^{variable} +{environment[variable]}\b", banner, re.MULTILINE)


def test_the_demos_accounts_can_sign_in(demo: Serving) -> None:
    password = demo_environment(demo.folder)["CONSOLE_PASSWORD"]
    assert f"CONSOLE_PASSWORD {password}" in "\n".join(demo.lines)
    for name in ("alice", "bob", "charlie"):
        with httpx2.Client(base_url=demo.base_url, timeout=DEADLINE) as browser:
            token = re.search(r'name="token" value="(\w+)"', browser.get("/sign-in", headers=PAGE).text)
            assert token is not None
            entry = {"token": token[1], "email": f"{name}@demo.example", "password": password}
            entered = browser.post("/sign-in", data=entry, headers=PAGE | {"Sec-Fetch-Site": "same-origin"})
            assert (entered.status_code, entered.headers["location"]) == (303, "/console")
            assert f"{name}@demo.example" in browser.get("/console").text


def test_the_demos_market_and_sellers_can_be_contacted(demo: Serving) -> None:
    with httpx2.Client(base_url=demo.base_url, timeout=DEADLINE) as browser:
        assert "mailto:help@demo.example" in browser.get("/").text
        assert "mailto:alice@demo.example" in browser.get("/sellers/1").text


def test_nothing_in_the_demo_is_older_than_its_account(demo: Serving) -> None:
    with closing(apsw.Connection(str(demo.folder / "data" / "listings.db"))) as database:
        older = (
            "SELECT listings.id FROM listings JOIN accounts ON accounts.id = account_id"
            " WHERE unixepoch(listings.created_at) < accounts.created_at"
        )
        assert database.execute(older).fetchall() == []
        assert database.execute("SELECT COUNT(*) > 50 FROM listings").fetchone() == (1,)


def test_the_curl_commands_work_as_pasted(demo: Serving) -> None:
    outputs = [bash(line, demo.folder) for line in find_curl_commands(demo)]
    assert [output.splitlines()[-1] for output in outputs] == ["200", "201", "200"]
    above = [demo.lines[demo.lines.index(line) - 1] for line in find_curl_commands(demo)]
    assert [line[-3:] for line in above] == ["200", "201", "200"]


@pytest.mark.covers_programs
def test_on_a_terminal_the_demo_logs_nothing(tmp_path: Path) -> None:
    with terminal.demo(tmp_path) as (url, lines):
        assert httpx2.get(f"{url}/api/v1/listings", timeout=DEADLINE).status_code == 401
    assert lines[0].startswith("Listings is running at ")
    assert lines[-1].startswith("Stop: ")


def test_a_verbose_demo_logs_every_request(tmp_path: Path) -> None:
    with terminal.demo(tmp_path, "--verbose") as (url, lines):
        httpx2.get(f"{url}/healthz", timeout=DEADLINE)
    after = lines[next(number for number, line in enumerate(lines) if line.startswith("Stop: ")) :]
    assert any("/healthz" in line for line in after)


def test_a_rehearsing_demo_prints_a_curl_command_that_fails_once(demo_program: Program) -> None:
    with demo_program.serve("--demo", "--rehearse") as serving:
        command = find_curl_commands(serving)[-1]
        assert [bash(command, demo_program.folder).split()[-1] for _ in range(2)] == ["503", "200"]


def test_a_plain_demo_does_not_rehearse(demo: Serving) -> None:
    headers = {"X-API-Key": demo_environment(demo.folder)["API_KEY"], "X-Rehearse": "503;first"}
    assert demo.http.get("/api/v1/listings", headers=headers).status_code == 200


def test_faults_are_rehearsed_only_in_a_demo_of_one_process(cli: Cli) -> None:
    assert "--rehearse needs --demo" in cli.get_usage_error("serve", "--rehearse")
    message = cli.get_usage_error("serve", "--demo", "--rehearse", "--workers", "2")
    assert "--rehearse needs a single process" in message


def test_demo_env_is_private_and_can_be_sourced(demo: Serving) -> None:
    path = demo.folder / "data/demo.env"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(demo_environment(demo.folder)) == ["BASE_URL", *VARIABLES, "CONSOLE_PASSWORD"]
    assert demo_environment(demo.folder)["BASE_URL"] == demo.base_url
    url = '"$BASE_URL/api/v1/listings"'
    options = "-so /dev/null -w '%{http_code} '"
    requests = [f'curl {options} {url} -H "X-API-Key: ${variable}"' for variable in VARIABLES]
    assert bash("; ".join([". data/demo.env", *requests]), demo.folder) == "200 200 403 "


def test_all_files_of_the_demo_are_private(demo: Serving) -> None:
    folder = demo.folder / "data"
    assert folder.stat().st_mode & 0o077 == 0
    assert [file.name for file in folder.iterdir() if file.stat().st_mode & 0o077] == []


class StoppedDemo(NamedTuple):
    """The folder and the URL of a demo that has run, and its output."""

    folder: Path
    base_url: str
    output: str


@pytest.fixture(scope="module")
def stopped_demo(tmp_path_factory: pytest.TempPathFactory) -> StoppedDemo:
    folder = tmp_path_factory.mktemp("stopped-demo")
    with Program(folder).serve("--demo") as serving:
        serving.stop()
    return StoppedDemo(folder, serving.base_url, "\n".join(serving.lines))


@pytest.fixture
def demo_program(program: Program, stopped_demo: StoppedDemo) -> Program:
    shutil.copytree(stopped_demo.folder / "data", program.folder / "data")
    return program


def test_the_demo_has_twelve_listings_of_all_types(demo_program: Program) -> None:
    environment = demo_environment(demo_program.folder)
    listings = {variable: list_listings(demo_program.folder, environment[variable]) for variable in VARIABLES}
    types = Counter(listing.type for of_account in listings.values() for listing in of_account)
    assert all(listings.values())
    assert types.total() == 12
    assert types.keys() == {"product", "service", "rental", "job"}


def test_a_second_demo_has_the_same_data_and_output(stopped_demo: StoppedDemo, demo_program: Program) -> None:
    key = demo_environment(demo_program.folder)["API_KEY"]
    listed = list_listings(demo_program.folder, key)
    with demo_program.serve("--demo") as second:
        printed = "\n".join(second.lines).replace(second.base_url, stopped_demo.base_url)
        assert printed.replace(str(demo_program.folder), str(stopped_demo.folder)) == stopped_demo.output
        assert demo_environment(demo_program.folder)["BASE_URL"] == second.base_url
    assert list_listings(demo_program.folder, key) == listed


def test_a_demo_does_not_create_paused_and_deleted_listings_again(demo_program: Program) -> None:
    headers = {"X-API-Key": demo_environment(demo_program.folder)["API_KEY"]}
    with demo_program.serve("--demo") as first:
        ids = [listing["id"] for listing in first.http.get("/api/v1/listings", headers=headers).json()["listings"]]
        for listing_id in ids[1:]:
            first.http.delete(f"/api/v1/listings/{listing_id}", headers=headers)
        first.http.patch(f"/api/v1/listings/{ids[0]}", headers=headers, json={"is_active": False})
    with demo_program.serve("--demo") as second:
        assert f"/listings/{ids[0]}'" in find_curl_commands(second)[2]
        assert second.http.get("/api/v1/listings", headers=headers).json()["listings"] == []
        second.http.delete(f"/api/v1/listings/{ids[0]}", headers=headers)
    with demo_program.serve("--demo") as third:
        assert len(find_curl_commands(third)) == 2
        assert third.http.get("/api/v1/listings", headers=headers).json()["listings"] == []


def test_a_demo_without_demo_env_creates_keys_and_no_listings(demo_program: Program) -> None:
    before = demo_environment(demo_program.folder)
    (demo_program.folder / "data/demo.env").unlink()
    with demo_program.serve("--demo") as second:
        after = demo_environment(demo_program.folder)
        assert all(after[variable] != before[variable] for variable in VARIABLES)
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]
        assert second.status(before["API_KEY"]) == 200
        listed = second.http.get("/api/v1/listings", headers={"X-API-Key": after["API_KEY"]}).json()
    assert len(listed["listings"]) == len(list_listings(demo_program.folder, before["API_KEY"])) == 7


def test_a_demo_without_a_database_creates_it_with_the_same_keys(demo_program: Program) -> None:
    before = demo_environment(demo_program.folder)
    for file in (demo_program.folder / "data").glob("listings.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    with demo_program.serve("--demo") as second:
        after = demo_environment(demo_program.folder)
        assert [after[variable] for variable in VARIABLES] == [before[variable] for variable in VARIABLES]
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]


def test_a_revoked_or_damaged_key_of_the_demo_is_replaced(demo_program: Program, cli: Cli) -> None:
    before = demo_environment(demo_program.folder)
    cli.run_ok("key", "revoke", "1")
    path = demo_program.folder / "data/demo.env"
    path.write_text(path.read_text("utf-8").replace(before["OTHER_API_KEY"], "lst_damaged"), "utf-8")
    with demo_program.serve("--demo") as second:
        after = demo_environment(demo_program.folder)
        assert after["API_KEY"] != before["API_KEY"]
        assert after["OTHER_API_KEY"] not in {before["OTHER_API_KEY"], "lst_damaged"}
        assert after["EXPIRED_API_KEY"] == before["EXPIRED_API_KEY"]
        assert second.status(before["API_KEY"]) == 401
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]
        outputs = [bash(line, demo_program.folder) for line in find_curl_commands(second)]
        assert [output.splitlines()[-1] for output in outputs] == ["200", "201", "200"]


def test_an_invalid_demo_env_is_replaced(program: Program) -> None:
    (program.folder / "data").mkdir()
    (program.folder / "data/demo.env").write_bytes(b"\xff\xfe\x00\n\nAPI_KEY\n=\nOTHER_API_KEY=\x00\n")
    with program.serve("--demo") as serving:
        environment = demo_environment(program.folder)
        assert [serving.status(environment[variable]) for variable in VARIABLES] == [200, 200, 403]


def test_a_demo_does_not_change_other_accounts(program: Program, cli: Cli, alice: Data) -> None:
    key = cli.key(alice)["key"]
    with program.serve("--demo") as serving:
        assert serving.http.get("/api/v1/listings", headers={"X-API-Key": key}).json()["listings"] == []
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


def test_the_service_listens_only_on_this_machine_by_default(service: Serving) -> None:
    assert service.http.base_url.host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", service.http.base_url.port or 0), timeout=DEADLINE)


@pytest.mark.parametrize(("environment", "flags"), [("127.0.0.2", []), ("127.0.0.3", ["--host", "127.0.0.2"])])
def test_the_address_can_be_set(tmp_path: Path, environment: str, flags: list[str]) -> None:
    with Program(tmp_path, LISTINGS_HOST=environment).serve(*flags) as serving:
        assert serving.http.base_url.host == "127.0.0.2"
        assert serving.http.get("/healthz").status_code == 200


def test_the_announced_url_is_usable_and_has_the_path_of_the_base_url(demo_program: Program) -> None:
    demo_program.environment["LISTINGS_BASE_URL"] = "https://example.com/shop"
    with demo_program.serve("--demo", "--host", "0.0.0.0") as serving:  # noqa: S104 - tested here
        assert re.fullmatch("http://127.0.0.1:[0-9]+/shop", serving.base_url)
        assert demo_environment(demo_program.folder)["BASE_URL"] == serving.base_url
        outputs = [bash(line, demo_program.folder) for line in find_curl_commands(serving)]
        assert [output.splitlines()[-1] for output in outputs] == ["200", "201", "200"]


def test_a_port_in_use_is_a_one_line_error(program: Program, service: Serving) -> None:
    port = str(service.http.base_url.port)

    def list_files() -> list[Path]:
        return sorted(path for path in service.folder.rglob("*") if ".search" not in str(path))

    before = list_files()
    for database in ("sqlite:///data/listings.db", "sqlite:///other/other.db"):
        error = program.run("--database-url", database, "serve", "--port", port, "--demo").error_message
        assert f"port {port}" in error
        assert "--port" in error
    assert list_files() == before
    assert service.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_damaged_database_prevents_the_start(cli: Cli, workers: str) -> None:
    cli.run_ok("migrate")
    database = cli.folder / "data" / "listings.db"
    databases.damage(databases.make(database, listings=200, size=2000))
    before = database.read_bytes()
    error = cli.get_error("serve", "--port", "0", "--workers", workers)
    assert error.startswith(f"The database {database} is damaged: ")
    assert "listings restore FILE --force" in error
    assert database.read_bytes() == before


@pytest.mark.parametrize("workers", ["1", "2"])
def test_damage_found_after_the_start_stops_the_service(program: Program, cli: Cli, workers: str) -> None:
    cli.run_ok("migrate")
    database = cli.folder / "data" / "listings.db"
    databases.damage(databases.make(database, listings=200, size=2000))
    program.command = (sys.executable, Path(__file__).with_name("late_damage.py"))
    with program.serve("--workers", workers) as service:
        assert service.process.wait(DEADLINE) == 1
        assert service.process.stderr is not None
        output = service.process.stderr.read()
    assert f"listings: The database {database} is damaged: " in output
    # A background task may find the damage first, and logs it.
    assert "Traceback" not in "".join(line for line in output.splitlines() if not line.startswith("{"))


def test_damage_is_reported_although_another_error_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_test_settings(tmp_path, database=f"sqlite:///{tmp_path}/listings.db")
    databases.damage(databases.make(tmp_path / "listings.db", listings=200, size=2000))
    is_serving, is_scanned, find_damage = threading.Event(), threading.Event(), inspection.find_damage

    def find_damage_late(*arguments: Any) -> str:
        is_serving.wait(DEADLINE)
        damage = find_damage(*arguments)
        is_scanned.set()
        return damage

    def serve_until_the_disk_fails() -> None:
        with maintenance.watch_for_damage(settings):
            is_serving.set()
            assert is_scanned.wait(DEADLINE)
            raise OSError("the disk fails")

    monkeypatch.setattr(inspection, "find_damage", find_damage_late)
    with pytest.raises(Unavailable, match="is damaged: ") as failure:
        serve_until_the_disk_fails()
    assert isinstance(failure.value.__context__, OSError)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_checkpoints_the_wal_and_exits_with_0(
    program: Program, cli: Cli, tmp_path: Path, number: signal.Signals
) -> None:
    with program.serve() as serving:
        key = cli.key(cli.account("alice", "--months", "1"))["key"]
        listing = serving.create(key, "Checkpointed")
        outcome = serving.stop(number)
    assert (outcome.code, outcome.out) == (0, ""), outcome
    assert "Traceback" not in outcome.err
    assert not [file for file in (tmp_path / "data").glob("*-wal") if file.stat().st_size]
    copy = shutil.copy(tmp_path / "data/listings.db", tmp_path / "copy.db")
    assert read_titles(Path(copy), listing) == ["Checkpointed"]


def test_a_port_is_closed_by_a_stop_and_can_be_reused_immediately(program: Program) -> None:
    address = ("--host", "127.0.0.4")  # an address on which no other program opens the port
    with program.serve(*address) as first:
        port = str(first.http.base_url.port)
        assert first.http.get("/healthz").status_code == 200
        first.stop()
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{first.base_url}/healthz", timeout=DEADLINE)
    with program.serve(*address, "--port", port) as second:
        assert second.base_url == first.base_url


_TABLE_SIZE_SCRIPT = """
from listings.cli.serve import RESERVED_FILES, limit_connections
from listings.settings import load
limit = limit_connections(load({}, {})).max_connections + RESERVED_FILES
allocated = next(line for line in open("/proc/self/status") if line.startswith("FDSize"))
assert int(allocated.split()[1]) >= limit, (allocated, limit)
"""


def test_the_table_of_open_files_is_allocated_at_start() -> None:
    subprocess.run([sys.executable, "-c", _TABLE_SIZE_SCRIPT], check=True)


def test_connections_beyond_the_file_limit_get_503(program: Program) -> None:
    file_limit = 256
    limited = f"ulimit -n {file_limit} && exec {PROGRAM} serve --port 0"
    with subprocess.Popen(["bash", "-c", limited], cwd=program.folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = re.findall(r"http://([\d.]+):(\d+)", process.stderr.readline())[0]
            connections = [
                socket.create_connection((address[0], int(address[1])), timeout=DEADLINE) for _ in range(file_limit)
            ]
            assert b"503 Service Unavailable" in connections[-1].recv(1000)
            for connection in connections:
                connection.close()
        finally:
            process.kill()


def test_a_hangup_during_the_start_does_not_end_the_service(program: Program) -> None:
    pipe = program.folder / "seed.json"
    os.mkfifo(pipe)
    with program.start_command(("serve", "--port", "0", "--seed", str(pipe)), subprocess.PIPE) as process:
        try:
            with pipe.open("w") as seed:  # once the program reads it
                process.send_signal(signal.SIGHUP)
                seed.write('{"accounts": []}')
            assert process.stderr is not None
            assert any(line.startswith("Listings is running at") for line in process.stderr)
        finally:
            process.kill()
