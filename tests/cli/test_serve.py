"""`listings serve`: the demo, the port, the operator beside a running service, and its end."""

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import httpx
import pytest

from listings import wiring
from listings.domain import api_keys
from listings.domain.model import Listing
from tests.cli import terminal
from tests.cli.commands import DEADLINE, PROGRAM, Cli, Data, Program, Serving, demo_environment
from tests.harness import load_test_settings
from tests.store import databases

PAGE = {"Accept": "text/html"}
VARIABLES = ["API_KEY", "OTHER_API_KEY", "EXPIRED_API_KEY"]


def curl_lines(serving: Serving) -> list[str]:
    return [line for line in serving.lines if line.startswith("curl ")]


def bash(command: str, folder: Path) -> str:
    """What a command prints that is pasted into a shell."""
    pasted = ["/bin/bash", "-c", command]
    return subprocess.run(pasted, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout


def listings_of(folder: Path, key: str) -> list[Listing]:
    """All listings of a key's account, whatever its plan is."""
    return asyncio.run(_listings_of(folder, key))


async def _listings_of(folder: Path, key: str) -> list[Listing]:
    async with wiring.open_service(load_test_settings(folder / "data")) as service:
        caller = await service.find_key(key)
        assert caller is not None
        return await service.list_listings(caller)


def titles_in(database: Path, listing_id: int) -> list[object]:
    """The titles that a file has for a listing."""
    connection = apsw.Connection(str(database))
    try:
        return [row[0] for row in connection.execute("SELECT title FROM listings WHERE id = ?", (listing_id,))]
    finally:
        connection.close()


# The demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A demo, for tests that leave it as it is but for listings of its first account."""
    with Program(tmp_path_factory.mktemp("demo")).serve("--demo") as serving:
        yield serving


def test_the_demo_tells_its_address_its_data_and_its_keys(demo: Serving) -> None:
    banner = "\n".join(demo.lines)
    environment = demo_environment(demo.folder)
    assert demo.base_url in banner
    assert str(demo.folder / "data/listings.db") in banner
    for variable in VARIABLES:
        assert re.search(rf"^{variable} +{environment[variable]}\b", banner, re.MULTILINE)


def test_the_demos_accounts_get_into_the_console(demo: Serving) -> None:
    password = demo_environment(demo.folder)["CONSOLE_PASSWORD"]
    assert f"CONSOLE_PASSWORD {password}" in "\n".join(demo.lines)
    for name in ("alice", "bob", "charlie"):
        with httpx.Client(base_url=demo.base_url, timeout=DEADLINE) as browser:
            token = re.search(r'name="token" value="(\w+)"', browser.get("/sign-in", headers=PAGE).text)
            assert token is not None
            entry = {"token": token[1], "email": f"{name}@demo.example", "password": password}
            entered = browser.post("/sign-in", data=entry, headers=PAGE | {"Sec-Fetch-Site": "same-origin"})
            assert (entered.status_code, entered.headers["location"]) == (303, "/console")
            assert f"{name}@demo.example" in browser.get("/console").text


def test_the_demos_keys_are_three_of_our_making(demo: Serving) -> None:
    environment = demo_environment(demo.folder)
    assert len({environment[variable] for variable in VARIABLES}) == 3
    assert all(api_keys.is_well_formed(environment[variable]) for variable in VARIABLES)
    assert [demo.status(environment[variable]) for variable in VARIABLES] == [200, 200, 403]


def test_the_curl_lines_work_as_pasted_in_their_order(demo: Serving) -> None:
    answers = [bash(line, demo.folder) for line in curl_lines(demo)]
    assert [answer.splitlines()[-1] for answer in answers] == ["200", "201", "200"]


def test_each_curl_line_stands_below_what_it_answers(demo: Serving) -> None:
    above = [demo.lines[demo.lines.index(line) - 1] for line in curl_lines(demo)]
    assert [line[-3:] for line in above] == ["200", "201", "200"]


def test_on_a_terminal_the_demo_prints_its_banner_and_logs_nothing(tmp_path: Path) -> None:
    with terminal.demo(tmp_path) as (url, lines):
        assert httpx.get(f"{url}/api/v1/listings", timeout=DEADLINE).status_code == 401
    assert lines[0].startswith("Listings answers at ")
    assert lines[-1].startswith("Stop: ")


def test_a_verbose_demo_logs_every_request(tmp_path: Path) -> None:
    with terminal.demo(tmp_path, "--verbose") as (url, lines):
        httpx.get(f"{url}/healthz", timeout=DEADLINE)
    after = lines[next(number for number, line in enumerate(lines) if line.startswith("Stop: ")) :]
    assert any("/healthz" in line for line in after)


def test_demo_env_is_for_its_owner_alone_and_for_a_shell(demo: Serving) -> None:
    path = demo.folder / "data/demo.env"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(demo_environment(demo.folder)) == ["BASE_URL", *VARIABLES, "CONSOLE_PASSWORD"]
    assert demo_environment(demo.folder)["BASE_URL"] == demo.base_url
    url = '"$BASE_URL/api/v1/listings"'
    asked = [f"curl -so /dev/null -w '%{{http_code}} ' {url} -H \"X-API-Key: ${variable}\"" for variable in VARIABLES]
    assert bash("; ".join([". data/demo.env", *asked]), demo.folder) == "200 200 403 "


def test_all_of_the_data_is_for_its_owner_alone(demo: Serving) -> None:
    folder = demo.folder / "data"
    assert folder.stat().st_mode & 0o077 == 0
    assert [file.name for file in folder.iterdir() if file.stat().st_mode & 0o077] == []


def test_the_demo_has_a_dozen_listings_of_all_types_over_all_accounts(program: Program) -> None:
    with program.serve("--demo") as serving:
        serving.stop()
    environment = demo_environment(program.folder)
    listings = {variable: listings_of(program.folder, environment[variable]) for variable in VARIABLES}
    types = Counter(listing.type for of_one in listings.values() for listing in of_one)
    assert all(listings.values())
    assert types.total() == 12
    assert types.keys() == {"product", "service", "rental", "job"}


def test_a_second_demo_keeps_data_and_keys_and_prints_the_same(program: Program) -> None:
    with program.serve("--demo") as first:
        key = demo_environment(program.folder)["API_KEY"]
        created = first.create(key, "Kept")
        listed = first.http.get("/api/v1/listings", headers={"X-API-Key": key}).json()
        first.stop()
    with program.serve("--demo") as second:
        assert second.read(key, created).json()["title"] == "Kept"
        assert second.http.get("/api/v1/listings", headers={"X-API-Key": key}).json() == listed
        printed = [line.replace(second.base_url, first.base_url) for line in second.lines]
        assert printed == first.lines
        assert demo_environment(program.folder)["BASE_URL"] == second.base_url


def test_a_demo_without_its_demo_env_makes_new_keys_and_no_new_listings(program: Program) -> None:
    with program.serve("--demo") as first:
        first.stop()
    before = demo_environment(program.folder)
    (program.folder / "data/demo.env").unlink()
    with program.serve("--demo") as second:
        after = demo_environment(program.folder)
        assert all(after[variable] != before[variable] for variable in VARIABLES)
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]
        assert second.status(before["API_KEY"]) == 200
        listed = second.http.get("/api/v1/listings", headers={"X-API-Key": after["API_KEY"]}).json()
    assert len(listed["listings"]) == len(listings_of(program.folder, before["API_KEY"])) == 7


def test_a_demo_without_its_database_makes_it_again_with_the_same_keys(program: Program) -> None:
    with program.serve("--demo") as first:
        first.stop()
    before = demo_environment(program.folder)
    for file in (program.folder / "data").glob("listings.db*"):
        file.unlink()
    with program.serve("--demo") as second:
        after = demo_environment(program.folder)
        assert [after[variable] for variable in VARIABLES] == [before[variable] for variable in VARIABLES]
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]


def test_a_revoked_or_damaged_key_of_the_demo_is_replaced(program: Program, cli: Cli) -> None:
    with program.serve("--demo") as first:
        first.stop()
    before = demo_environment(program.folder)
    cli.done("key", "revoke", "1")
    path = program.folder / "data/demo.env"
    path.write_text(path.read_text("utf-8").replace(before["OTHER_API_KEY"], "lst_damaged"), "utf-8")
    with program.serve("--demo") as second:
        after = demo_environment(program.folder)
        assert after["API_KEY"] != before["API_KEY"]
        assert after["OTHER_API_KEY"] not in {before["OTHER_API_KEY"], "lst_damaged"}
        assert after["EXPIRED_API_KEY"] == before["EXPIRED_API_KEY"]
        assert second.status(before["API_KEY"]) == 401
        assert [second.status(after[variable]) for variable in VARIABLES] == [200, 200, 403]
        answers = [bash(line, program.folder) for line in curl_lines(second)]
        assert [answer.splitlines()[-1] for answer in answers] == ["200", "201", "200"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"API_KEY\n=\nOTHER_API_KEY=\x00\n"])
def test_a_demo_env_of_any_content_is_written_anew(program: Program, content: bytes) -> None:
    (program.folder / "data").mkdir()
    (program.folder / "data/demo.env").write_bytes(content)
    with program.serve("--demo") as serving:
        environment = demo_environment(program.folder)
        assert [serving.status(environment[variable]) for variable in VARIABLES] == [200, 200, 403]


def test_a_demo_beside_other_accounts_leaves_them_alone(program: Program, cli: Cli, alice: Data) -> None:
    key = cli.key(alice)["key"]
    with program.serve("--demo") as serving:
        assert serving.http.get("/api/v1/listings", headers={"X-API-Key": key}).json()["listings"] == []
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


# The port


def test_the_default_is_this_machine_alone(service: Serving) -> None:
    assert service.http.base_url.host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", service.http.base_url.port or 0), timeout=DEADLINE)


@pytest.mark.parametrize(("environment", "flags"), [("127.0.0.2", []), ("127.0.0.3", ["--host", "127.0.0.2"])])
def test_another_address_can_be_set(tmp_path: Path, environment: str, flags: list[str]) -> None:
    with Program(tmp_path, LISTINGS_HOST=environment).serve(*flags) as serving:
        assert serving.http.base_url.host == "127.0.0.2"
        assert serving.http.get("/healthz").status_code == 200


def test_a_service_on_all_addresses_tells_one_to_use(program: Program) -> None:
    with program.serve("--demo", "--host", "0.0.0.0") as serving:  # noqa: S104 - what is tested
        assert serving.base_url.startswith("http://127.0.0.1:")
        assert demo_environment(program.folder)["BASE_URL"] == serving.base_url


def test_an_announcement_goes_to_standard_error_and_names_the_data(service: Serving) -> None:
    assert str(service.folder / "data/listings.db") in service.lines[-1]
    assert service.stop().out == ""


def test_health_needs_no_key(service: Serving) -> None:
    assert service.http.get("/healthz").status_code == 200


def test_the_rate_limit_is_a_setting(tmp_path: Path) -> None:
    with Program(tmp_path, LISTINGS_RATE_LIMIT="2", LISTINGS_RATE_WINDOW="60").serve("--demo") as serving:
        key = demo_environment(tmp_path)["API_KEY"]
        answers = [serving.http.get("/api/v1/listings", headers={"X-API-Key": key}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["X-RateLimit-Limit"] == "2"


def test_a_rate_limit_of_0_is_none(tmp_path: Path) -> None:
    with Program(tmp_path, LISTINGS_RATE_LIMIT="0").serve("--demo") as serving:
        answer = serving.http.get("/api/v1/listings", headers={"X-API-Key": demo_environment(tmp_path)["API_KEY"]})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if "ratelimit" in name]


def test_a_taken_port_is_told_in_a_sentence_and_changes_nothing(program: Program, service: Serving) -> None:
    port = str(service.http.base_url.port)
    before = sorted(service.folder.rglob("*"))
    for database in ("sqlite:///data/listings.db", "sqlite:///other/other.db"):
        said = program.run("--database-url", database, "serve", "--port", port, "--demo").sentence
        assert f"port {port}" in said
        assert "--port" in said
    assert sorted(service.folder.rglob("*")) == before
    assert service.http.get("/healthz").status_code == 200


# The operator beside the running service


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_damaged_database_is_named_and_not_served(cli: Cli, workers: str) -> None:
    cli.done("migrate")
    database = cli.folder / "data" / "listings.db"
    databases.damage(databases.make(database, listings=200, size=2000))
    before = database.read_bytes()
    sentence = cli.refused("serve", "--port", "0", "--workers", workers)
    assert sentence.startswith(f"The database {database} is damaged: ")
    assert "listings restore FILE --force" in sentence
    assert database.read_bytes() == before


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_that_finds_damage_behind_its_start_stops_and_names_it(
    program: Program, cli: Cli, workers: str
) -> None:
    cli.done("migrate")
    database = cli.folder / "data" / "listings.db"
    databases.damage(databases.make(database, listings=200, size=2000))
    program.command = (sys.executable, Path(__file__).with_name("late_look.py"))
    with program.serve("--workers", workers) as service:
        assert service.process.wait(DEADLINE) == 1
        assert service.process.stderr is not None
        said = service.process.stderr.read()
    assert f"listings: The database {database} is damaged: " in said
    assert "Traceback" not in said


def test_a_new_key_is_good_at_once(service: Serving, cli: Cli) -> None:
    for name in ("alice", "bob"):
        key = cli.key(cli.account(name, "--months", "1"))["key"]
        assert service.status(key) == 200
        service.create(key)


def test_a_revoked_key_is_401_at_once(service: Serving, cli: Cli) -> None:
    alice = cli.account("alice", "--months", "1")
    revoked, kept = cli.key(alice), cli.key(alice)
    assert [service.status(key["key"]) for key in (revoked, kept)] == [200, 200]
    cli.done("key", "revoke", str(revoked["id"]))
    assert [service.status(key["key"]) for key in (revoked, kept)] == [401, 200]


def test_a_plan_ends_and_begins_at_once(service: Serving, cli: Cli) -> None:
    alice = cli.account("alice", "--months", "1")
    key = cli.key(alice)["key"]
    listing = service.create(key)
    for options, status in (
        (["--expire"], 403),
        (["--months", "1"], 200),
        (["--until", "2020-01-01"], 403),
        (["--until", "2099-12-31"], 200),
    ):
        cli.done("account", "plan", str(alice["id"]), *options)
        assert service.status(key) == status
    assert service.read(key, listing).status_code == 200


def test_migrating_beside_a_running_service_changes_nothing(service: Serving, cli: Cli) -> None:
    assert cli.data("migrate")["applied"] == []
    assert service.http.get("/healthz").status_code == 200


# The end


def test_acknowledged_writes_survive_a_kill(program: Program, cli: Cli) -> None:
    with program.serve() as killed:
        key = cli.key(cli.account("alice", "--months", "1"))["key"]
        created = [killed.create(key, f"Bicycle {number}") for number in range(20)]
        path = f"/api/v1/listings/{created[0]}"
        killed.http.patch(path, headers={"X-API-Key": key}, json={"title": "Tandem"})
        killed.http.delete(f"/api/v1/listings/{created[1]}", headers={"X-API-Key": key})
        assert killed.stop(signal.SIGKILL).code == -signal.SIGKILL
    with program.serve() as again:
        assert [again.read(key, listing).status_code for listing in created] == [200, 404, *[200] * 18]
        assert again.read(key, created[0]).json()["title"] == "Tandem"
        assert again.create(key) > max(created)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_folds_the_wal_in_and_ends_with_0(
    program: Program, cli: Cli, tmp_path: Path, number: signal.Signals
) -> None:
    with program.serve() as serving:
        key = cli.key(cli.account("alice", "--months", "1"))["key"]
        listing = serving.create(key, "Folded in")
        outcome = serving.stop(number)
    assert (outcome.code, outcome.out) == (0, ""), outcome
    assert "Traceback" not in outcome.err
    assert not [file for file in (tmp_path / "data").glob("*-wal") if file.stat().st_size]
    alone = shutil.copy(tmp_path / "data/listings.db", tmp_path / "alone.db")
    assert titles_in(Path(alone), listing) == ["Folded in"]


def test_a_service_that_nothing_was_asked_of_ends_with_0(service: Serving) -> None:
    outcome = service.stop()
    assert (outcome.code, outcome.out) == (0, "")
    assert not list((service.folder / "data").glob("*-wal"))


def test_a_stopped_service_refuses_connections(program: Program) -> None:
    with program.serve("--host", "127.0.0.4") as service:  # where no other program takes the port meanwhile
        service.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.base_url}/healthz", timeout=DEADLINE)


def test_a_port_is_free_again_at_once(program: Program) -> None:
    address = ("--host", "127.0.0.4")  # where no other program takes the port meanwhile
    with program.serve(*address) as first:
        port = str(first.http.base_url.port)
        assert first.http.get("/healthz").status_code == 200
        first.stop()
    with program.serve(*address, "--port", port) as second:
        assert second.base_url == first.base_url


def test_with_few_open_files_allowed_connections_are_refused_and_not_left_waiting(program: Program) -> None:
    few = 96
    limited = f"ulimit -n {few} && exec {PROGRAM} serve --port 0"
    with subprocess.Popen(["bash", "-c", limited], cwd=program.folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = re.findall(r"http://([\d.]+):(\d+)", process.stderr.readline())[0]
            connections = [
                socket.create_connection((address[0], int(address[1])), timeout=DEADLINE) for _ in range(few)
            ]
            assert b"503 Service Unavailable" in connections[-1].recv(1000)
            for connection in connections:
                connection.close()
        finally:
            process.kill()
