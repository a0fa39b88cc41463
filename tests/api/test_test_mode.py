"""Test mode: an account of its own next to the live one, which buyers never see (decision G25)."""

from pathlib import Path
from typing import Any

import pytest

from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.model import Account
from listings.service.test_mode import IDLE_DAYS, LIMITS
from tests.api.batches import LAMP
from tests.api.helpers import LISTINGS
from tests.harness import MONTH, Harness, Person, Reply

DAY = 86_400
CHANGES = "/api/v1/changes"
TRIAL = 14 * DAY

pytestmark = [pytest.mark.every_engine, pytest.mark.decision("G25")]


class Shop:
    """A seller with a live key and, once it is created, a test key."""

    def __init__(self, harness: Harness, person: Person) -> None:
        self.harness = harness
        self.live = person

    def create_key(self, **options: Any) -> str:
        services = self.harness.services
        account = self.harness.run(services.accounts.find(str(self.live.account.id)))
        return self.harness.run(services.test_mode.create_key(account, "try", **options)).secret

    def get_account(self) -> Account:
        test = self.harness.run(self.harness.services.test_mode.find(self.live.account))
        assert test is not None
        return test

    def fetch(self, method: str, path: str, key: str, json: Any = None) -> Reply:
        return self.harness.fetch(method, path, key=key, json=json)

    def create(self, key: str, **fields: Any) -> int:
        reply = self.fetch("POST", LISTINGS, key, LAMP | fields)
        assert reply.status == 201, reply.body
        return int(reply.json()["id"])


@pytest.fixture
def shop(harness: Harness) -> Shop:
    return Shop(harness, harness.person("alice"))


def confirm_email(harness: Harness, account: Account) -> None:
    now = int(harness.clock.now)
    mail = NewMail("m" * 32, "confirm_email", account.email, account.id, "{}", now)
    harness.run(harness.store.add_mail(mail))
    harness.run(harness.store.add_email_token(account.id, mail, b"t" * 32, now, now + DAY))
    assert harness.run(harness.store.confirm_email(b"t" * 32, now)) is not None


def test_a_test_key_has_listings_of_its_own(shop: Shop) -> None:
    key = shop.create_key()
    own, live = shop.create(key, external_id="a"), shop.create(shop.live.key, external_id="a")
    assert [one["id"] for one in shop.fetch("GET", LISTINGS, key).json()["listings"]] == [own]
    assert shop.fetch("GET", f"{LISTINGS}/{live}", key).status == 403
    assert shop.fetch("GET", f"{LISTINGS}/{own}", shop.live.key).status == 403
    assert shop.fetch("PATCH", f"{LISTINGS}/{own}", key, {"price": 5}).status == 200
    feed = shop.fetch("GET", CHANGES, key).json()
    assert [one["id"] for one in feed["change_sets"]] == [1, 2]
    assert shop.fetch("POST", f"{CHANGES}/revert", key, {"change": 2}).json()["counts"]["reverted"] == 1
    another = shop.create_key(access="read")
    assert shop.fetch("GET", f"{LISTINGS}/{own}", another).status == 200
    assert shop.fetch("DELETE", f"{LISTINGS}/{own}", another).status == 403


def test_responses_say_that_they_are_of_test_mode(shop: Shop) -> None:
    key = shop.create_key()
    replies = [
        shop.fetch("GET", path, key) for path in (LISTINGS, f"{LISTINGS}/1", "/api/v1/key", f"{LISTINGS}?limit=x")
    ]
    assert [reply.headers["x-test-mode"] for reply in replies] == ["true"] * 4
    assert replies[2].json()["mode"] == "test"
    assert replies[2].json()["limits"]["listings"] == LIMITS.listings == 1_000
    assert "x-test-mode" not in shop.fetch("GET", LISTINGS, shop.live.key).headers
    remaining = [shop.fetch("GET", LISTINGS, one).headers["x-ratelimit-remaining"] for one in (shop.live.key, key)]
    assert remaining == ["998", "995"]


def test_buyers_never_see_them(shop: Shop) -> None:
    key = shop.create_key()
    own = shop.create(key, title="Zeppelin")
    live = shop.create(shop.live.key, title="Balloon")
    market = shop.harness.services.market
    for _ in range(3):
        shop.harness.index_market()
        entries = shop.harness.run(market.page_sitemap(0, 10))
        assert [entry.listing_id for entry in entries] == [live]
        shop.fetch("PATCH", f"{LISTINGS}/{own}", key, {"price": 5})
    for read in (market.get_listing(own), market.get_seller(shop.get_account().id)):
        with pytest.raises(Problem) as rejected:
            shop.harness.run(read)
        assert rejected.value.code in {"listing_not_found", "path_not_found"}
    shop.fetch("DELETE", f"{LISTINGS}/{own}", key)
    with pytest.raises(Problem, match="There is no such listing"):
        shop.harness.run(market.get_listing(own))


def test_a_trial_begins_with_the_confirmation_of_the_email(harness: Harness) -> None:
    shop = Shop(harness, harness.person("alice", plan_ends_in=-MONTH))
    with pytest.raises(Problem, match="Test keys need the Business plan or a trial"):
        shop.create_key()
    confirm_email(harness, shop.live.account)
    harness.clock.advance(DAY)
    key = shop.create_key()
    assert shop.create(key)
    assert shop.fetch("GET", LISTINGS, shop.live.key).status == 403
    harness.clock.advance(TRIAL - DAY - 1)
    assert shop.fetch("GET", LISTINGS, key).status == 200
    harness.clock.advance(1)
    assert shop.fetch("GET", LISTINGS, key).headers["x-error-code"] == "plan_expired"
    harness.run(harness.services.accounts.extend_plan(str(shop.live.account.id), 1))
    assert shop.fetch("GET", LISTINGS, key).status == 200


def test_the_operator_starts_a_trial(harness: Harness) -> None:
    shop = Shop(harness, harness.person("alice", plan_ends_in=-MONTH))
    test = harness.run(harness.services.test_mode.start_trial(shop.live.account))
    assert test.plan_expires_at == int(harness.clock.now) + TRIAL
    assert shop.fetch("GET", LISTINGS, shop.create_key()).status == 200


def test_without_trial_days_there_is_no_trial(tmp_path: Path) -> None:
    with Harness(tmp_path, trial_days="0") as harness:
        shop = Shop(harness, harness.person("alice", plan_ends_in=-MONTH))
        confirm_email(harness, shop.live.account)
        for action in (shop.create_key, lambda: harness.run(harness.services.test_mode.start_trial(shop.live.account))):
            with pytest.raises(Problem):
                action()


def test_it_is_disabled_enabled_and_erased_with_its_live_account(shop: Shop) -> None:
    key, accounts = shop.create_key(), shop.harness.services.accounts
    own, reference = shop.create(key, title="Secret"), str(shop.live.account.id)
    shop.harness.run(accounts.disable(reference))
    assert shop.fetch("GET", LISTINGS, key).headers["x-error-code"] == "account_disabled"
    shop.harness.run(accounts.enable(reference))
    assert shop.fetch("GET", LISTINGS, key).status == 200
    shop.harness.run(accounts.erase(reference))
    assert shop.fetch("GET", LISTINGS, key).status == 401
    listing = shop.harness.run(shop.harness.store.get_listing(own))
    assert listing is None or listing.title == ""


def test_it_is_closed_with_its_live_account(shop: Shop) -> None:
    key = shop.create_key()
    shop.harness.run(shop.harness.store.close_account(shop.live.account.id, int(shop.harness.clock.now)))
    assert shop.fetch("GET", LISTINGS, key).headers["x-error-code"] == "account_disabled"
    shop.harness.run(shop.harness.services.own_account.erase_closed())
    assert shop.fetch("GET", LISTINGS, key).status == 401


def test_it_has_small_limits(shop: Shop) -> None:
    key = shop.create_key()
    for _ in range(10):
        body = {"operations": [{"op": "create", "listing": LAMP}] * 100}
        assert shop.fetch("POST", f"{LISTINGS}/batch", key, body).status == 200
    assert shop.fetch("POST", LISTINGS, key, LAMP).headers["x-error-code"] == "account_full"
    assert shop.create(shop.live.key)


def test_emptying_continues_ids_and_change_sets(shop: Shop) -> None:
    key = shop.create_key()
    first = shop.create(key, external_id="a")
    gone = shop.create(key)
    shop.fetch("PATCH", f"{LISTINGS}/{first}", key, {"price": 5})
    shop.fetch("DELETE", f"{LISTINGS}/{gone}", key)
    shop.fetch("POST", f"{CHANGES}/revert", key, {"change": 3})
    live = shop.create(shop.live.key)
    last = shop.fetch("GET", f"{CHANGES}?limit=0", key).json()["last"]
    shop.harness.run(shop.harness.services.test_mode.empty(shop.get_account()))
    assert shop.fetch("GET", f"{LISTINGS}?status=all", key).json() == {"listings": []}
    assert shop.fetch("GET", f"{LISTINGS}/{first}", key).status == 404
    counts = shop.fetch("GET", "/api/v1/key", key).json()
    assert (counts["listings"], counts["stored_bytes"]) == ({"active": 0, "inactive": 0, "deleted": 0}, 0)
    for after in range(last):
        assert shop.fetch("GET", f"{CHANGES}?after={after}", key).headers["x-error-code"] == "changes_gone"
    assert shop.fetch("GET", f"{CHANGES}?after={last}", key).json()["change_sets"] == []
    again = shop.create(key, external_id="a")
    assert again > gone > first
    (created,) = shop.fetch("GET", f"{CHANGES}?after={last}", key).json()["change_sets"]
    assert (created["id"], created["changes"][0]["id"]) == (last + 1, again)
    assert shop.fetch("GET", f"{LISTINGS}/{live}", shop.live.key).status == 200


def test_an_idle_test_account_is_emptied(shop: Shop) -> None:
    services, key = shop.harness.services, shop.create_key()
    shop.create(key)
    live = shop.create(shop.live.key)
    shop.harness.run(services.access.write_key_uses())
    shop.harness.clock.advance((IDLE_DAYS - 1) * DAY)
    shop.harness.run(services.test_mode.empty_idle())
    assert len(shop.fetch("GET", LISTINGS, key).json()["listings"]) == 1
    shop.harness.run(services.access.write_key_uses())
    shop.harness.clock.advance((IDLE_DAYS + 1) * DAY)
    shop.harness.run(services.test_mode.empty_idle())
    assert shop.fetch("GET", LISTINGS, key).json()["listings"] == []
    assert shop.fetch("GET", f"{LISTINGS}/{live}", shop.live.key).status == 200


def test_it_is_not_one_of_the_accounts(shop: Shop) -> None:
    shop.create_key()
    services = shop.harness.services
    test = shop.get_account()
    assert (test.test_of, test.public_contact) == (shop.live.account.id, "")

    async def list_accounts() -> list[int]:
        return [account.id async for account in services.accounts.iterate()]

    assert test.id not in shop.harness.run(list_accounts())
    _, report = shop.harness.run(services.reports.build())
    assert (report.accounts, report.new_accounts, report.active_plans) == (1, 1, 1)
    shop.harness.run(services.test_mode.start_trial(shop.live.account))
    shop.harness.clock.advance(TRIAL - 2 * DAY)
    now = int(shop.harness.clock.now)
    assert shop.harness.run(shop.harness.store.list_accounts_to_remind(7, now, now + 7 * DAY, 9)) == []
    with pytest.raises(Problem, match="is reserved for a test account"):
        shop.harness.run(services.accounts.add("x", test.email, None))


def test_test_keys_are_masked_and_belong_to_test_accounts() -> None:
    key = api_keys.generate(is_test=True)
    assert api_keys.is_well_formed(key)
    assert not api_keys.is_well_formed(key.replace("lst_test_", "lst_"))
    assert api_keys.mask_keys(f"/{key}/") == f"/lst_test_…{key[-4:]}/"
    assert api_keys.describe_defect(key[:-1]).endswith("lst_test_ has 47 characters")


def test_a_test_key_is_not_rotated_and_not_imported(shop: Shop) -> None:
    shop.create_key()
    keys = shop.harness.services.keys
    (key,) = shop.harness.run(keys.list_of(shop.get_account()))
    assert key.hint.startswith("lst_test_…")
    with pytest.raises(Problem, match="is a test key"):
        shop.harness.run(keys.rotate(key.id, 0))
    with pytest.raises(Problem, match="those of test mode only"):
        shop.harness.run(keys.add(shop.live.account, "x", api_keys.generate(is_test=True)))
