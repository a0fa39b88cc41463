"""Create, rotate and revoke API keys in the console (hardening line 28)."""

import html
import re
from pathlib import Path

import pytest

import listings_client
from listings.site.console.keys import PYTHON_SAMPLE
from tests.harness import Harness, RunningService
from tests.site.tab import PASSWORD, Tab, open_console

MINUTE, HOUR = 60, 3600


def create_key(tab: Tab, **fields: str) -> str:
    tab.get("/console/keys").post("/console/keys", **{"name": "Warehouse", "expires": "", **fields})
    assert tab.reply.status == 201, tab.text
    (secret,) = tab.page.values("input", "value", id="secret")
    return secret or ""


def get_form_id(tab: Tab) -> str:
    return tab.page.values("input", "value", name="form_id")[0] or ""


def selected_options(tab: Tab) -> list[str | None]:
    return [one.attributes["value"] for one in tab.page.all("option") if "selected" in one.attributes]


def status_of(harness: Harness, secret: str) -> int:
    return harness.fetch("GET", "/api/v1/listings", key=secret).status


def test_a_new_key_comes_with_a_login_and_a_python_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunningService(tmp_path) as service:
        alice = service.cast().alice
        program = PYTHON_SAMPLE.format(key=alice.key, base_url=service.base_url)
        with listings_client.Client(alice.key, service.base_url) as client:
            client.create(title="Lamp", content="Brass.", price=5)
        exec(program, {})  # noqa: S102 - the sample
        assert capsys.readouterr().out == "Lamp 5.00\n"


def test_a_new_key_page_shows_the_login_and_the_program(harness: Harness) -> None:
    tab = open_console(harness)
    secret = create_key(tab)
    shown = html.unescape(tab.reply.body.decode())
    assert "pip install listings-client\nlst login --url http://localhost:8000\nlst list</textarea>" in shown
    assert PYTHON_SAMPLE.format(key=secret, base_url="http://localhost:8000") in shown


def test_a_new_key_is_shown_once_with_a_working_command(harness: Harness) -> None:
    tab = open_console(harness)
    secret = create_key(tab)
    assert f"curl http://localhost:8000/api/v1/listings -H 'X-API-Key: {secret}'" in tab.text
    assert tab.reply.headers["cache-control"] == "no-store"
    assert status_of(harness, secret) == 200
    tab.get("/console/keys")
    assert secret not in tab.reply.body.decode()
    assert f"{secret[:4]}…{secret[-4:]}" in tab.text
    assert "Warehouse" in tab.text


def test_a_key_expires_at_midnight_in_new_zealand(harness: Harness) -> None:
    tab = open_console(harness)
    secret = create_key(tab, expires="2026-09-30")
    assert "1 Oct 2026, 12:00 am" in tab.text
    harness.clock.now = 1_790_765_999.0  # 2026-09-30 23:59:59 in Auckland, UTC+13
    assert status_of(harness, secret) == 200
    harness.clock.advance(1)
    assert status_of(harness, secret) == 401


@pytest.mark.parametrize(
    ("name", "expires", "message"),
    [
        ("", "", "A name must have 1 to 200 printable characters"),
        ("Till", "tomorrow", "Enter the date as year-month-day"),
        ("Till", "9999-12-31", "Enter the date as year-month-day"),
        ("Till", "2020-01-01", "The expiry of a key must be in the future"),
    ],
)
def test_an_invalid_key_form_keeps_its_values_and_shows_the_error(
    harness: Harness, name: str, expires: str, message: str
) -> None:
    tab = open_console(harness).get("/console/keys").post("/console/keys", name=name, expires=expires)
    assert (tab.reply.status, message in tab.text) == (400, True)
    assert tab.page.values("input", "value", id="name") == [name]


@pytest.mark.decision("G44")
def test_a_read_only_key_is_marked_wherever_it_is_shown(harness: Harness) -> None:
    tab = open_console(harness).get("/console/keys")
    assert selected_options(tab) == ["write"]
    secret = create_key(tab, access="read")
    assert "It is read-only" in tab.text
    assert status_of(harness, secret) == 200
    assert harness.fetch("DELETE", "/api/v1/listings/1", key=secret).headers["x-error-code"] == "key_not_allowed"
    tab.get("/console/keys/1").post("/console/keys/1/rotate", grace="3600")
    assert "It is read-only" in tab.text
    for path, count in (("/console/keys", 2), ("/console/keys/1", 1), ("/console/keys/2", 1), ("/console/usage", 3)):
        assert tab.get(path).text.count("Read only") - ("Create a key" in tab.text) == count
    assert ", read-only) to replace an older one" in tab.get("/console/activity").text
    text = tab.get("/console/usage").text
    assert re.search(r"DELETE /api/v1/listings/1 1 [^/]+ Warehouse Read only ", text)
    assert text.count(", read-only)") == 2  # the keys that the filter offers


@pytest.mark.decision("G44")
def test_a_key_form_keeps_its_access_and_an_unknown_access_is_rejected(harness: Harness) -> None:
    tab = open_console(harness).get("/console/keys").post("/console/keys", name="", access="read")
    assert (tab.reply.status, selected_options(tab)) == (400, ["read"])
    assert "Choose what the key may do" in tab.post("/console/keys", name="Till", access="admin").text
    assert "No active keys" in tab.get("/console/keys").text


def test_a_new_key_with_the_name_of_another_active_one_says_so(harness: Harness) -> None:
    tab = open_console(harness)
    for name, has_note in (("Till", False), ("Shop", False), ("Till", True)):
        create_key(tab, name=name)
        assert ("Another active key has the same name." in tab.text) == has_note
    tab.get("/console/keys/2").post("/console/keys/2/revoke")
    create_key(tab, name="Shop")
    assert "Another active key" not in tab.text


def test_creating_a_key_needs_an_active_plan(harness: Harness) -> None:
    tab = open_console(harness, months=0).get("/console/keys")
    assert "API keys need the Business plan" in tab.text
    assert tab.post("/console/keys", name="Till").reply.status == 403


@pytest.mark.decision("G25")
def test_creating_a_key_asks_for_the_password_after_15_minutes(harness: Harness) -> None:
    tab = open_console(harness)
    harness.clock.advance(15 * MINUTE - 1)
    create_key(tab)
    harness.clock.advance(1)
    tab.get("/console/keys")
    assert tab.page.values("input", "autocomplete", id="password") == ["current-password"]
    assert tab.post("/console/keys", name="Till").reply.status == 403
    assert "Enter your password again" in tab.text
    assert tab.post("/console/keys", name="Till", password="wrong password").reply.status == 403
    assert tab.post("/console/keys/1/rotate", grace="0").reply.status == 403
    old = tab.cookies["listings_session"]
    create_key(tab, password=PASSWORD)
    assert tab.cookies["listings_session"] != old
    create_key(tab)


def test_the_password_is_confirmed_even_if_the_name_is_invalid(harness: Harness) -> None:
    tab = open_console(harness)
    harness.clock.advance(HOUR)
    tab.get("/console/keys").post("/console/keys", name="", password=PASSWORD)
    assert tab.reply.status == 400
    assert tab.page.all("input", id="password") == []
    assert tab.post("/console/keys", name="Till").reply.status == 201


def test_a_confirmation_before_an_error_page_keeps_the_session(harness: Harness) -> None:
    tab = open_console(harness)
    harness.clock.advance(HOUR)
    tab.get("/console/keys").post("/console/keys/999999/rotate", grace="0", password=PASSWORD)
    assert tab.reply.status == 404
    assert tab.get("/console/keys").reply.status == 200
    assert tab.page.all("input", id="password") == []


def test_a_rotated_key_that_expires_earlier_is_described_with_that_time(harness: Harness) -> None:
    tab = open_console(harness)
    create_key(tab, expires="2026-09-24")
    tab.get("/console/keys/1").post("/console/keys/1/rotate", grace="604800")
    assert "The old key stops working on 25 Sep 2026, 12:00 am, when it expires." in tab.text
    assert "in 7 days" not in tab.text


def test_a_key_rotated_without_grace_stops_immediately(harness: Harness) -> None:
    tab = open_console(harness)
    create_key(tab)
    tab.get("/console/keys/1").post("/console/keys/1/rotate", grace="0")
    assert "The old key no longer works." in tab.text


def test_a_wrong_password_keeps_the_selected_grace_period(harness: Harness) -> None:
    tab = open_console(harness)
    create_key(tab)
    harness.clock.advance(HOUR)
    tab.get("/console/keys/1")
    assert selected_options(tab) == ["86400"]
    tab.post("/console/keys/1/rotate", grace="0", password="wrong password")
    assert (tab.reply.status, selected_options(tab)) == (403, ["0"])
    assert "The password is wrong." in tab.text
    assert "email" not in tab.text


def test_a_form_submitted_twice_creates_one_key(harness: Harness) -> None:
    tab = open_console(harness).get("/console/keys")
    form = {"name": "Till", "form_id": get_form_id(tab)}
    assert tab.post("/console/keys", **form).reply.status == 201
    assert tab.post("/console/keys", **form).reply.status == 409
    assert "This form was already sent" in tab.text
    assert tab.page.values("input", "value", id="name") == [""]
    assert len(harness.run(harness.services.keys.list_of(harness.run(harness.services.accounts.find("1"))))) == 1
    assert tab.post("/console/keys", name="Till", form_id=get_form_id(tab)).reply.status == 201


def test_a_corrected_form_creates_its_key(harness: Harness) -> None:
    tab = open_console(harness).get("/console/keys")
    form = {"form_id": get_form_id(tab)}
    assert tab.post("/console/keys", name="", **form).reply.status == 400
    assert tab.post("/console/keys", name="Till", **form).reply.status == 201


def test_a_rotation_submitted_twice_creates_one_key(harness: Harness) -> None:
    tab = open_console(harness)
    create_key(tab)
    form = {"grace": "0", "form_id": get_form_id(tab.get("/console/keys/1"))}
    assert tab.post("/console/keys/1/rotate", **form).reply.status == 201
    assert tab.post("/console/keys/1/rotate", **form).reply.status == 409
    assert "This form was already sent" in tab.text
    assert tab.page.values("a", "href", href="/console/keys")
    assert len(harness.run(harness.services.keys.list_of(harness.run(harness.services.accounts.find("1"))))) == 2


@pytest.mark.parametrize("form", [{"grace": "99999999"}, {}])
def test_an_unknown_or_missing_grace_period_is_rejected(harness: Harness, form: dict[str, str]) -> None:
    tab = open_console(harness)
    old = create_key(tab)
    key_id = harness.run(harness.services.keys.find(old)).key_id  # type: ignore[union-attr]
    tab.get("/console/keys").post(f"/console/keys/{key_id}/rotate", **form)
    assert (tab.reply.status, status_of(harness, old)) == (400, 200)
    assert "Choose when the old key stops working" in tab.text


@pytest.mark.parametrize("path", ["/console/keys/{}", "/console/keys/x", "/console/keys/9999999999999999"])
def test_a_key_of_another_account_is_not_found(harness: Harness, path: str) -> None:
    bob = open_console(harness, "bob@example.com")
    secret = create_key(bob)
    key_id = harness.run(harness.services.keys.find(secret)).key_id  # type: ignore[union-attr]
    path = path.format(key_id)
    alice = open_console(harness)
    assert alice.get(path).reply.status == 404
    assert alice.post(f"{path}/revoke").reply.status == 404
    assert alice.post(f"{path}/rotate", grace="0").reply.status == 404
    assert status_of(harness, secret) == 200


def test_key_pages_show_the_requests_of_the_last_24_hours(harness: Harness) -> None:
    tab = open_console(harness)
    secret = create_key(tab)
    for _ in range(3):
        status_of(harness, secret)
    text = tab.get("/console/keys").reply.body.decode()
    assert 'data-label="Last 24 hours">3</td>' in text
    assert "3 requests" in tab.get("/console/keys/1").text


def test_a_single_request_is_shown_in_the_singular(harness: Harness) -> None:
    tab = open_console(harness)
    status_of(harness, create_key(tab))
    text = tab.get("/console/keys/1").text
    assert "1 request " in text
    assert "The key was used once in" in text
