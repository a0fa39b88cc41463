"""`listings report`: key figures of the last 24 hours."""

import pytest

from tests.cli.commands import Cli, Data, Serving
from tests.waiting import until


@pytest.mark.usefixtures("charlie")
def test_the_report_counts_what_a_service_stores(cli: Cli, alice: Data, service: Serving) -> None:
    key = cli.key(alice)["key"]
    service.create(key)
    assert service.read(key, 77_777).status_code == 404
    report = until(lambda: (data := cli.data("report"))["requests"] == data["market_listings"] + 1 == 2 and data)
    assert report["since"].endswith(":00:00")
    assert report["free_disk_mib"] > 0
    assert report == {
        "since": report["since"],
        "accounts": 2,
        "new_accounts": 2,
        "disabled_accounts": 0,
        "active_plans": 1,
        "plans_ending_soon": 0,
        "expired_plans": 1,
        "requests": 2,
        "rejected_requests": 1,
        "rejections": {"listing_not_found": 1},
        "new_listings": 1,
        "market_listings": 1,
        "plan_requests": 0,
        "queued_mails": 0,
        "given_up_mails": 0,
        "stored_bytes": len("BicycleTwo wheels.[]"),
        "picture_bytes": 0,
        "largest_accounts": {str(alice["id"]): len("BicycleTwo wheels.[]")},
        "database_mib": 1,
        "free_disk_mib": report["free_disk_mib"],
    }
    lines = [line.split(maxsplit=1) for line in cli.run_ok("report").out.splitlines()]
    assert [name for name, _ in lines] == list(report)
    assert ["rejections", "listing_not_found 1"] in lines


@pytest.mark.usefixtures("database")
def test_a_closed_market_has_no_listings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_SITE", "off")
    report = cli.data("report")
    assert (report["new_listings"], report["market_listings"]) == (None, None)
