"""The server and the keys, which environment variables name, and the end of a run, which deletes its listings."""

import os
import secrets
from collections.abc import Generator

import pytest

from tests.specification.client import Account, Server

SERVER = pytest.StashKey[Server]()
EXPIRED = "for an account whose Business plan has expired"
LIMITED = "whose requests of one hour this run may use up"


def pytest_configure(config: pytest.Config) -> None:
    base_url = os.environ.get("BASE_URL", "")
    if not base_url.startswith(("http://", "https://")):
        raise pytest.UsageError("Set BASE_URL, such as http://127.0.0.1:8000, and API_KEY (docs/conformance.md)")
    config.stash[SERVER] = Server(base_url)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Delete the listings of the run, also after Ctrl+C."""
    if remaining := config.stash[SERVER].delete_created():
        terminalreporter.write_line(f"These listings could not be deleted: {', '.join(remaining)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the sentences next to a failure."""
    report = yield
    report.sections += [("specification", str(mark.args[0])) for mark in item.iter_markers("sentence")]
    return report


def _find_account(server: Server, variable: str, description: str) -> Account:
    key = os.environ.get(variable)
    if not key:
        pytest.skip(f"needs {variable}, a key {description}")
    return Account(server, variable, {"X-API-Key": key})


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Server:
    return pytestconfig.stash[SERVER]


@pytest.fixture(scope="session")
def own(server: Server) -> Account:
    """The account that the cases create listings with."""
    return _find_account(server, "API_KEY", "for an account with an active Business plan")


@pytest.fixture(scope="session")
def bearer(server: Server, own: Account) -> Account:
    return Account(server, "API_KEY as a bearer token", {"Authorization": f"Bearer {own.headers['X-API-Key']}"})


@pytest.fixture(scope="session")
def other(server: Server) -> Account:
    return _find_account(server, "OTHER_API_KEY", "for another account")


@pytest.fixture(scope="session")
def expired(server: Server) -> Account:
    return _find_account(server, "EXPIRED_API_KEY", EXPIRED)


@pytest.fixture(scope="session")
def limited(server: Server) -> Account:
    return _find_account(server, "LIMITED_API_KEY", LIMITED)


@pytest.fixture(scope="session")
def nobody(server: Server) -> Account:
    return Account(server, "no key", {})


@pytest.fixture(scope="session")
def strangers(server: Server) -> list[Account]:
    """A key that was never issued, in both headers."""
    key = secrets.token_hex(16)
    return [
        Account(server, "an unknown key", {"X-API-Key": key}),
        Account(server, "an unknown bearer token", {"Authorization": f"Bearer {key}"}),
    ]
