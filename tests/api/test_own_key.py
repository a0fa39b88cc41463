"""GET /api/v1/key: a program reads the properties of its own key."""

from pathlib import Path

import pytest

from tests.api.described import check_response, get_operation
from tests.api.helpers import STRICT
from tests.conftest import Client
from tests.harness import Harness, RunningService

PATH = "/api/v1/key"


@pytest.mark.every_engine
def test_a_key_describes_itself_and_its_account(alice: Client, bob: Client) -> None:
    bob.create()
    alice.create(title="x" * 10)
    paused = alice.create(is_active=False)
    alice.delete(f"/{alice.create()}")
    response = alice.get("/../key", headers=STRICT)
    check_response(get_operation(PATH, "GET"), response)
    assert response.headers["Cache-Control"] == "no-store"
    body = response.json()
    assert (body["name"], body["access"], body["mode"], body["expires_at"]) == ("test", "write", "live", None)
    assert body["listings"] == {"active": 1, "inactive": 1, "deleted": 1}
    assert body["stored_bytes"] > body["text_bytes"] > 30
    assert body["limits"]["listings"] == 100_000
    assert alice.person.account.email not in response.text
    assert alice.person.account.name not in response.text
    alice.delete(f"/{paused}")
    assert alice.get("/../key").json()["listings"]["inactive"] == 0


def test_a_read_only_key_can_read_it(alice: Client, running: RunningService) -> None:
    account = str(alice.person.account.id)
    issued = running.run(lambda services: services.keys.create(account, "reader", access="read"))
    body = alice.get("/../key", headers={"X-API-Key": issued.secret}).json()
    assert (body["id"], body["name"], body["access"]) == (issued.key.id, "reader", "read")


def test_limits_that_are_off_are_null(tmp_path: Path) -> None:
    with Harness(tmp_path, max_account_listings="0") as harness:
        key = harness.person("alice").key
        assert harness.fetch("GET", PATH, key=key).json()["limits"]["listings"] is None
