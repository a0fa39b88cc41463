"""Run the tests marked `every_engine` on each database engine, and all others on SQLite."""

from collections.abc import Iterator

import pytest

from tests.citus_cluster import ADDRESS, CitusCluster, hold_background_work

ENGINES = ["sqlite", "postgres", *(["citus"] if ADDRESS else [])]
ASKS_ALL_SHARDS = {
    "test_a_key_is_stored_for_24_hours",  # runs the purge, which no request runs
    "test_a_response_waits_for_the_first_change",  # one query for all accounts runs next to the requests
    "test_a_removed_listing_is_as_if_it_had_never_existed",  # runs the search for large accounts, which no request runs
    "test_a_replayed_create_of_a_removed_listing_has_its_id",  # too
    "test_buyers_never_see_them",  # the market belongs to all accounts
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("every_engine"):
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture(autouse=True)
def _one_shard_per_request(
    request: pytest.FixtureRequest, engine: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if engine != "citus":
        yield
        return
    hold_background_work(monkeypatch)  # of services that this test starts
    cluster: CitusCluster = request.getfixturevalue("citus")
    before = cluster.count_multi_shard()
    yield
    if request.node.originalname not in ASKS_ALL_SHARDS:
        assert cluster.count_multi_shard() == before
