"""`listings account`: create, show and disable accounts, and set their plans."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from listings.domain import timestamps
from tests.cli.commands import Cli, Data, Program, Serving
from tests.store.databases import change

pytestmark = pytest.mark.usefixtures("database")

ACCOUNT_FIELDS = ["id", "name", "email", "plan", "plan_expires_at", "created_at"]

INVALID_DATES = ["tomorrow", "2031-02-29", "2031-05-06 07:08"]  # others are tested in tests/domain


def time_call(act: Callable[[], Data]) -> tuple[Data, range]:
    """Return the data that a command prints, and the range of Unix timestamps during which it ran."""
    start = int(time.time())
    data = act()
    return data, range(start, int(time.time()) + 1)


def add_months(start: range, months: int) -> list[str]:
    return [timestamps.format_timestamp(timestamps.add_months(moment, months)) for moment in start]


def test_a_new_account_is_printed_with_six_fields(cli: Cli) -> None:
    account, now = time_call(lambda: cli.account("alice"))
    assert list(account) == ACCOUNT_FIELDS
    assert account.pop("created_at") in [timestamps.format_timestamp(moment) for moment in now]
    assert account == {
        "id": 1,
        "name": "alice",
        "email": "alice@example.com",
        "plan": "none",
        "plan_expires_at": None,
    }


@pytest.mark.parametrize("months", [1, 12, 12_000])
def test_months_count_from_now(cli: Cli, months: int) -> None:
    account, now = time_call(lambda: cli.account("alice", "--months", str(months)))
    assert account["plan"] == "business"
    assert account["plan_expires_at"] in add_months(now, months)


@pytest.mark.parametrize(("date", "shown"), [("2031-05-06", "2031-05-06 00:00:00"), ("0999-01-01 07:08:09",) * 2])
def test_a_plan_can_end_on_any_date(cli: Cli, date: str, shown: str) -> None:
    account = cli.account("alice", "--until", date)
    assert (account["plan"], account["plan_expires_at"]) == ("business", shown)


@pytest.mark.parametrize("date", INVALID_DATES)
def test_an_invalid_date_is_a_usage_error(cli: Cli, alice: Data, date: str) -> None:
    error = cli.get_usage_error("account", "create", "--name", "x", "--email", "x@example.com", "--until", date)
    assert "is not a date" in error
    assert "is not a date" in cli.get_usage_error("account", "plan", str(alice["id"]), "--until", date)


@pytest.mark.parametrize("months", ["0", "-1", "1.5", "one", "", "12001", "1e2"])
def test_invalid_months_are_a_usage_error(cli: Cli, alice: Data, months: str) -> None:
    assert "--months" in cli.get_usage_error(
        "account", "create", "--name", "x", "--email", "x@example.com", "--months", months
    )
    assert "--months" in cli.get_usage_error("account", "plan", str(alice["id"]), "--months", months)


def test_months_with_until_is_a_usage_error(cli: Cli) -> None:
    both = ["--months", "1", "--until", "2031-01-01"]
    assert "not both" in cli.get_usage_error(
        "account", "create", "--name", "alice", "--email", "alice@example.com", *both
    )
    assert cli.account("alice")["id"] == 1


@pytest.mark.parametrize("name", ["", "  ", "a" * 201, "two\nlines", "nul\0", "\x1b[2J", "\udcff"])
def test_an_invalid_name_is_rejected(cli: Cli, name: str) -> None:
    assert "name" in cli.get_error("account", "create", "--name", name, "--email", "alice@example.com")
    assert cli.account("alice")["id"] == 1


@pytest.mark.parametrize(
    ("email", "stored"),
    [
        ("Alice@Example.COM", "alice@example.com"),
        (" alice@example.com ", "alice@example.com"),
        ("a+b.c@sub.example.com", "a+b.c@sub.example.com"),
        ("a" * 242 + "@example.com", "a" * 242 + "@example.com"),
    ],
)
def test_an_email_is_stored_in_lower_case(cli: Cli, email: str, stored: str) -> None:
    assert cli.data("account", "create", "--name", "alice", "--email", email)["email"] == stored


@pytest.mark.parametrize(
    "email",
    [
        "",
        "alice",
        "@",
        "alice@",
        "@example.com",
        "al ice@example.com",
        "alice@exam ple.com",
        "alice@example.com\nbob@example.com",
        "alice\0@example.com",
        "\udcff@example.com",
        "a" * 243 + "@example.com",
        "alice@=?utf-8?q?a=2ecom=2c_bob=40b=2ecom?=",
    ],
)
def test_an_invalid_email_is_rejected(cli: Cli, email: str) -> None:
    assert "email address" in cli.get_error("account", "create", "--name", "alice", "--email", email)
    assert cli.account("alice")["id"] == 1


@pytest.mark.parametrize("reference", ["id", "email"])
def test_an_account_is_found_by_id_and_by_email(cli: Cli, alice: Data, bob: Data, reference: str) -> None:
    changed = cli.data("account", "plan", str(bob[reference]), "--until", "2031-05-06")
    assert changed == bob | {"plan_expires_at": "2031-05-06 00:00:00"}
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


def test_an_account_is_found_by_email_in_any_case(cli: Cli, alice: Data) -> None:
    assert cli.data("account", "plan", "ALICE@Example.Com", "--until", alice["plan_expires_at"]) == alice


@pytest.mark.parametrize(
    "reference",
    [
        "2",
        "alice",
        "bob@example.com",
        "9223372036854775808",
    ],
)
def test_an_unknown_account_is_rejected(cli: Cli, alice: Data, reference: str) -> None:
    assert "There is no account" in cli.get_error("account", "plan", reference, "--expire")
    assert "There is no account" in cli.get_error("key", "create", reference, "--name", "warehouse")
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


@pytest.mark.parametrize("reference", ["\udcff", "\udcff@example.com"])
def test_arguments_that_are_not_utf8_match_no_account(program: Program, reference: str) -> None:
    assert "There is no account" in program.run("account", "plan", reference, "--expire").error_message


@pytest.mark.parametrize(
    ("end", "months", "new_end"),
    [
        ("2031-01-31 10:11:12", "1", "2031-02-28 10:11:12"),
        ("2031-11-30", "27", "2034-02-28 00:00:00"),
    ],
)
def test_months_extend_an_active_plan(cli: Cli, alice: Data, end: str, months: str, new_end: str) -> None:
    cli.run_ok("account", "plan", str(alice["id"]), "--until", end)
    changed = cli.data("account", "plan", str(alice["id"]), "--months", months)
    assert changed == alice | {"plan_expires_at": new_end}


@pytest.mark.parametrize("options", [[], ["--until", "2020-01-01"]])
def test_months_start_now_without_an_active_plan(cli: Cli, options: list[str]) -> None:
    account = cli.account("charlie", *options)
    changed, now = time_call(lambda: cli.data("account", "plan", str(account["id"]), "--months", "3"))
    assert changed["plan"] == "business"
    assert changed["plan_expires_at"] in add_months(now, 3)


def test_expire_ends_a_plan_and_is_idempotent(cli: Cli, alice: Data) -> None:
    expired, now = time_call(lambda: cli.data("account", "plan", str(alice["id"]), "--expire"))
    assert expired["plan_expires_at"] in [timestamps.format_timestamp(moment) for moment in now]
    assert expired == alice | {"plan_expires_at": expired["plan_expires_at"]}
    assert cli.data("account", "plan", str(alice["id"]), "--expire") == expired


def test_expire_does_not_change_an_account_without_an_active_plan(cli: Cli, charlie: Data) -> None:
    dora = cli.account("dora")
    assert cli.data("account", "plan", str(charlie["id"]), "--expire") == charlie
    assert cli.data("account", "plan", str(dora["id"]), "--expire") == dora


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--months", "1", "--until", "2031-01-01"],
        ["--months", "1", "--expire"],
        ["--until", "2031-01-01", "--expire"],
        ["--months", "1", "--until", "2031-01-01", "--expire"],
    ],
)
def test_a_plan_takes_exactly_one_of_its_options(cli: Cli, alice: Data, options: list[str]) -> None:
    assert "--expire" in cli.get_usage_error("account", "plan", str(alice["id"]), *options)
    assert cli.data("account", "plan", str(alice["id"]), "--until", alice["plan_expires_at"]) == alice


def test_without_json_each_field_is_a_line(cli: Cli) -> None:
    outcome = cli.run_ok("account", "create", "--name", "Alice's Attic", "--email", "alice@example.com")
    fields = [line.split(maxsplit=1) for line in outcome.out.splitlines()]
    assert [name for name, _ in fields] == ACCOUNT_FIELDS
    assert [value for _, value in fields][:5] == ["1", "Alice's Attic", "alice@example.com", "none", "-"]
    assert outcome.err == ""


def test_accounts_are_listed_by_id(cli: Cli, alice: Data, bob: Data, charlie: Data) -> None:
    rows = [json.loads(line) for line in cli.run_ok("account", "list", "--json").out.splitlines()]
    assert rows == [{**account, "disabled_at": None} for account in (alice, bob, charlie)]


def test_the_table_of_accounts_truncates_no_email(cli: Cli, alice: Data, bob: Data) -> None:
    header, *rows = cli.run_ok("account", "list").out.splitlines()
    assert header.split()[:3] == ["id", "name", "email"]
    assert [row.split()[:3] for row in rows] == [["1", "alice", alice["email"]], ["2", "bob", bob["email"]]]


def test_more_than_one_page_of_accounts_is_listed(cli: Cli, database: Path) -> None:
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 501)"
    accounts = "INSERT INTO accounts (id, bucket, name, email, created_at) SELECT n, n, 'N', 'n' || n, 0 FROM numbers"
    change(database, f"{numbers} {accounts}")
    assert len(cli.run_ok("account", "list", "--json").out.splitlines()) == 501


def test_show_counts_keys_and_listings(cli: Cli, alice: Data, service: Serving) -> None:
    key, other = cli.key(alice)["key"], cli.key(alice)
    cli.run_ok("key", "revoke", str(other["id"]))
    ids = [service.create(key) for _ in range(3)]
    cli.run_ok("delete", str(ids[0]))
    shown = cli.data("account", "show", alice["email"])
    assert shown.pop("requests") <= len(ids)  # the service may not have stored them yet
    assert shown == {
        **alice,
        "disabled_at": None,
        "plan_requested_at": None,
        "public_contact": "",
        "usable_keys": 1,
        "rejected_requests": 0,
        "active_listings": 2,
        "inactive_listings": 0,
        "deleted_listings": 1,
        "max_listings": 100_000,
        "text_bytes": 2 * len("BicycleTwo wheels.[]"),
        "max_text_bytes": 2**30,
        "stored_bytes": 3 * len("BicycleTwo wheels.[]") + 600 + 100 + len("[[null,1795255200],[true,false]]"),
        "max_stored_bytes": 256 * 2**20,
        "picture_bytes": 0,
        "max_picture_bytes": 10 * 2**30,
    }


def test_show_has_an_open_request_and_the_requests_of_a_day(cli: Cli, database: Path, alice: Data) -> None:
    hour = int(time.time()) // 3600
    change(
        database,
        f"INSERT INTO plan_requests (account_id, requested_at) VALUES ({alice['id']}, 1790000000)",  # noqa: S608 - a number
        *(
            f"INSERT INTO usage_hours SELECT bucket, account_id, {moment}, 1, {status}, {count} FROM account_state"  # noqa: S608 - numbers
            for moment, status, count in ((hour - 30, 200, 1000), (hour - 20, 200, 5), (hour, 200, 2), (hour, 429, 3))
        ),
    )
    shown = cli.data("account", "show", alice["email"])
    assert shown["plan_requested_at"] == "2026-09-21 14:13:20"
    assert (shown["requests"], shown["rejected_requests"]) == (10, 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--search", "ALI"), ["alice"]),
        (("--search", "@example"), ["alice", "bob"]),
        (("--search", "nobody"), []),
        (("--expired",), ["bob"]),
        (("--expired", "--search", "alice"), []),
    ],
)
def test_accounts_are_found_by_text_and_ended_plan(
    cli: Cli, alice: Data, bob: Data, options: tuple[str, ...], expected: list[str]
) -> None:
    cli.run_ok("account", "plan", bob["email"], "--until", "2026-01-01")
    assert alice["plan_expires_at"] != bob["plan_expires_at"] or alice["plan_expires_at"] is None
    found = cli.run_ok("account", "list", "--json", *options).out.splitlines()
    assert [json.loads(line)["name"] for line in found] == expected


def test_the_largest_accounts_are_listed_with_their_bytes(cli: Cli, alice: Data, bob: Data, service: Serving) -> None:
    for account, count in ((alice, 1), (bob, 2)):
        key = cli.key(account)["key"]
        for _ in range(count):
            service.create(key)
    rows = [json.loads(line) for line in cli.run_ok("account", "list", "--largest", "--json").out.splitlines()]
    assert [row["name"] for row in rows] == ["bob", "alice"]
    assert rows[0]["stored_bytes"] > rows[1]["stored_bytes"] > 0


@pytest.mark.parametrize("other", [("--requests",), ("--search", "alice"), ("--expired",)])
def test_the_largest_accounts_cannot_be_filtered(cli: Cli, other: tuple[str, ...]) -> None:
    assert "Give --largest" in cli.get_usage_error("account", "list", "--largest", *other)


def test_the_inbox_has_requests_and_mail_that_could_not_be_sent(cli: Cli, database: Path, alice: Data) -> None:
    assert cli.run_ok("inbox", "--json").out == ""
    add = "INSERT INTO mails VALUES ('{}', '{}', 'a@example.com', {}, '{{}}', 1790000000, {}, 9)"
    change(
        database,
        f"INSERT INTO plan_requests (account_id, requested_at) VALUES ({alice['id']}, 1790000000)",  # noqa: S608 - a number
        add.format("given up", "buyer_message", alice["id"], "NULL"),
        add.format("queued", "password_reset", "NULL", 1790000000),
    )
    rows = [json.loads(line) for line in cli.run_ok("inbox", "--json").out.splitlines()]
    since, account = "2026-09-21 14:13:20", str(alice["id"])
    assert rows == [
        {"kind": "plan request", "since": since, "account": account, "email": alice["email"], "subject": ""},
        {
            "kind": "unsent mail",
            "since": since,
            "account": account,
            "email": "a@example.com",
            "subject": "buyer message",
        },
    ]


def test_reports_of_listings_are_listed_until_they_are_closed(cli: Cli, database: Path, alice: Data) -> None:
    change(
        database,
        f"INSERT INTO listing_reports VALUES ('0a', {alice['id']}, 1025, 'fraud', 'Asks for money', 1790000000)",  # noqa: S608 - a number
    )
    (row,) = (json.loads(line) for line in cli.run_ok("inbox", "--json").out.splitlines())
    assert row["kind"] == "report"
    assert row["subject"] == "0a listing 1025: fraud (Asks for money)"
    cli.run_ok("inbox", "--close", "0a")
    assert cli.run_ok("inbox", "--json").out == ""
    assert cli.get_error("inbox", "--close", "0a") == "There is no report 0a"


def test_an_account_can_have_limits_of_its_own(cli: Cli, alice: Data) -> None:
    names = ("max_listings", "max_text_bytes", "max_stored_bytes")
    for options, expected in (
        (("--listings", "500000", "--bytes", "100"), (500_000, 100, 400)),
        (("--stored", "7"), (100_000, 2**30, 7)),
        (("--listings", "0", "--bytes", "0"), (None, None, 256 * 2**20)),
        ((), (100_000, 2**30, 256 * 2**20)),
    ):
        data = cli.data("account", "limits", alice["email"], *options)
        assert data["id"] == alice["id"]
        assert tuple(data[name] for name in names) == expected
        shown = cli.data("account", "show", alice["email"])
        assert tuple(shown[name] for name in names) == expected


def test_disabling_twice_keeps_the_first_timestamp(cli: Cli, alice: Data) -> None:
    once = cli.data("account", "disable", str(alice["id"]))
    assert cli.data("account", "disable", str(alice["id"])) == once


def test_requests_for_the_plan_are_listed_and_answered(cli: Cli, database: Path, alice: Data, bob: Data) -> None:
    change(database, "INSERT INTO plan_requests (account_id, requested_at) SELECT id, 1790000000 + id FROM accounts")
    listed = [json.loads(line) for line in cli.run_ok("account", "list", "--requests", "--json").out.splitlines()]
    assert [row["id"] for row in listed] == [alice["id"], bob["id"]]
    assert listed[1]["requested_at"] == "2026-09-21 14:13:22"
    cli.run_ok("account", "plan", str(alice["id"]), "--months", "1")
    cli.run_ok("account", "plan", str(bob["id"]), "--expire")
    cli.run_ok("account", "plan", str(bob["id"]), "--decline", "We only list boats.")
    assert "Account 2 has no open request" in cli.get_error("account", "plan", str(bob["id"]), "--decline", "Again")
    assert cli.run_ok("account", "list", "--requests", "--json").out == ""
