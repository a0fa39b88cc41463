"""The tests that store and read are run on each engine; those of the wire alone are run once."""

import pytest

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On PostgreSQL the answers go one way only: the other is no matter of the store's."""
    both = metafunc.module.__name__.rpartition(".")[2] in ON_BOTH and not any(
        mark.name == "sqlite" for mark in metafunc.definition.iter_markers()
    )
    engines = ["sqlite", "postgres"] if both else ["sqlite"]
    if "running" in metafunc.fixturenames:
        cases = [(engine, way) for engine in engines for way in WAYS if (engine, way) != ("postgres", WAYS[1])]
        metafunc.parametrize(("engine", "running"), cases, indirect=True)
    elif both:
        metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture(autouse=True)
def _on_engine(engine: str) -> None:
    """Every test here, also one that makes its own houses, has an engine."""
    assert engine
