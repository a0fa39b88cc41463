"""Test keys on the key page: create, list, revoke, empty."""

from tests.harness import Harness
from tests.site.console.test_keys import create_key, status_of
from tests.site.tab import open_console

KEYS = "/console/keys"
LISTINGS = "/api/v1/listings"
LAMP = {"title": "Lamp", "content": "Brass."}


def count_listings(harness: Harness, key: str) -> int:
    return len(harness.fetch("GET", LISTINGS, key=key).json()["listings"])


def test_a_test_key_is_created_listed_and_revoked(harness: Harness) -> None:
    tab = open_console(harness)
    assert "Test mode" not in tab.get(KEYS).text
    secret = create_key(tab, mode="test", name="Rehearsal")
    assert secret.startswith("lst_test_")
    assert harness.fetch("POST", LISTINGS, key=secret, json=LAMP).status == 201
    text = tab.get(KEYS).text
    assert "Listings: 1. Deleted: 0." in text
    assert f"lst_test_…{secret[-4:]}" in text
    assert "Rehearsal" not in tab.get("/console").text
    tab.get(KEYS)
    (action,) = [form for form in tab.page.values("form", "action") if form and form.endswith("/revoke")]
    tab.post(action or "")
    assert status_of(harness, secret) == 401


def test_emptying_deletes_the_listings_of_test_mode_alone(harness: Harness) -> None:
    tab = open_console(harness)
    test, live = create_key(tab, mode="test"), create_key(tab)
    for key in (test, live):
        assert harness.fetch("POST", LISTINGS, key=key, json=LAMP).status == 201
    assert "Listings: 1. Deleted: 0." in tab.get(KEYS).text
    tab.post("/console/test-mode")
    assert tab.reply.status == 303
    assert "Listings: 0. Deleted: 0." in tab.get(KEYS).text
    assert (count_listings(harness, test), count_listings(harness, live)) == (0, 1)


def test_without_a_plan_a_trial_offers_test_keys_alone(harness: Harness) -> None:
    tab = open_console(harness, months=0)
    assert "Create a key" not in tab.get(KEYS).text
    (account, *_) = harness.run(harness.store.page_accounts(0, 9))
    harness.run(harness.services.test_mode.start_trial(account))
    assert "You can try the API now, with a test key" in tab.get(KEYS).text
    secret = create_key(tab, mode="test")
    assert status_of(harness, secret) == 200
    tab.get(KEYS).post(KEYS, name="Live", expires="", mode="live")
    assert tab.reply.status == 403


def test_test_keys_count_as_new_keys(harness: Harness) -> None:
    tab = open_console(harness)
    for number in range(20):
        create_key(tab, mode="test" if number % 2 else "live")
    tab.get(KEYS).post(KEYS, name="More", expires="", mode="test")
    assert tab.reply.status == 429
