"""The tests that store and read are run on each engine; those of the wire alone are run once."""

from collections.abc import Iterator

import pytest

from listings import service
from tests.citus_cluster import ADDRESS, CitusCluster

ON_BOTH = {
    "test_authentication",
    "test_batch",
    "test_conditional_requests",
    "test_create_listing",
    "test_decision_by_decision",
    "test_delete_listing",
    "test_dry_run",
    "test_errors",
    "test_get_listing",
    "test_idempotency",
    "test_list_listings",
    "test_list_parameters",
    "test_model_of_the_specification",
    "test_rate_limit",
    "test_restore_listing",
    "test_update_listing",
}
WAYS = ("one write", "plain ASGI")
STORES = ["postgres", *(["citus"] if ADDRESS else [])]  # beside SQLite
TO_ALL_SHARDS = {"test_a_key_is_kept_for_24_hours"}  # it calls for the purge, which no request does


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On PostgreSQL the answers go one way only: the other is no matter of the store's. Citus is one more of these."""
    both = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH and not any(
        mark.name == "sqlite" for mark in metafunc.definition.iter_markers()
    )
    engines = ["sqlite", *STORES] if both else ["sqlite"]
    if "running" in metafunc.fixturenames:
        cases = [(engine, way) for engine in engines for way in WAYS if engine == "sqlite" or way == WAYS[0]]
        metafunc.parametrize(("engine", "running"), cases, indirect=True)
    elif both:
        metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture(autouse=True)
def _on_engine(engine: str) -> None:
    """Every test here, also one that makes its own houses, has an engine."""
    assert engine


@pytest.fixture(autouse=True)
def _on_one_shard(
    request: pytest.FixtureRequest, engine: str, monkeypatch: pytest.MonkeyPatch, _on_engine: None
) -> Iterator[None]:
    """On Citus nothing that a request asks of the database goes to more than one shard."""
    if engine != "citus":
        yield
        return
    monkeypatch.setattr(service, "_MAINTENANCE_SECONDS", 24 * 3600)  # the purge is no request's
    monkeypatch.setattr(service, "_MARKET_SECONDS", 24 * 3600)  # nor is the market
    monkeypatch.setattr(service, "_USAGE_SECONDS", 24 * 3600)  # nor what is stored of all accounts together
    cluster: CitusCluster = request.getfixturevalue("citus")
    before = cluster.count_multi_shard()
    yield
    if request.node.originalname not in TO_ALL_SHARDS:
        assert cluster.count_multi_shard() == before
