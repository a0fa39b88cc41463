"""Test the comparison with peers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.data import add_expired_account, fill
from bench.http_client import Response
from bench.machine import choose_cores
from bench.peers import candidates, contract
from bench.peers.candidates import Candidate, StartOptions
from bench.servers import Server

pytestmark = pytest.mark.uncovered


# Checks of responses


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Candidate:
    filled = fill(tmp_path_factory.mktemp("filled") / "listings.db")
    return candidates.build_service(filled, add_expired_account(filled.database))


@pytest.fixture(scope="module")
def records(service: Candidate, tmp_path_factory: pytest.TempPathFactory) -> contract.Records:
    return contract.fetch_records(service, tmp_path_factory.mktemp("records"), choose_cores()[0])


@pytest.fixture(scope="module")
def server(service: Candidate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service. Its limit suffices for all wrong peers, most of which are rejected before the last check."""
    start = StartOptions(tmp_path_factory.mktemp("server"), choose_cores()[0], Response(b"", b""), contract.WINDOW)
    with service.run(start) as server:
        yield server


def test_the_service_passes_the_checks(service: Candidate, records: contract.Records, tmp_path: Path) -> None:
    contract.require_contract(service, records, tmp_path, choose_cores()[0])
