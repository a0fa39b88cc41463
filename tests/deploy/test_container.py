"""Check the Dockerfile and the Compose files without running Docker."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its type hints are a separate package

from listings.domain.postgres_url import PostgresUrl
from listings.http import server
from listings.settings import SETTINGS, load
from tests.cli.commands import DEADLINE, Program, clean_environment

pytestmark = pytest.mark.uncovered

HOME = Path(__file__).parent.parent.parent
DOCKERFILE = (HOME / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((HOME / "compose.yaml").read_text("utf-8"))
SCALED = yaml.safe_load((HOME / "compose.scaled.yaml").read_text("utf-8"))


def find_instructions(name: str) -> list[str]:
    """Return the arguments of each instruction with this name, with continued lines joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", DOCKERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.fixture
def service() -> Any:
    return COMPOSE["services"]["listings"]


def test_only_packages_with_pinned_hashes_are_installed() -> None:
    installs = [line for line in re.sub(r"\s*\\\n\s*", " ", DOCKERFILE).split("&&") if " install " in line]
    from_an_index = [line for line in installs if "pip" in line and "--no-index" not in line]
    assert len(from_an_index) == 2
    assert all("--require-hashes" in line for line in from_an_index)


def test_every_copied_file_exists_and_is_not_ignored() -> None:
    allowed = {line[1:] for line in (HOME / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = [path for line in find_instructions("COPY") if "--from" not in line for path in line.split()[:-1]]
    found = {str(file.relative_to(HOME)) for path in copied for file in HOME.glob(path)}
    assert allowed <= found | set(copied)
    assert all(list(HOME.glob(path)) for path in copied)


def test_the_process_is_unprivileged_and_receives_signals() -> None:
    assert find_instructions("USER") == ["10001:10001"]
    assert "--uid 10001" in DOCKERFILE
    assert find_instructions("ENTRYPOINT") == ['["listings"]']
    assert find_instructions("CMD") == ['["serve"]']


def run_health_check(**environment: str) -> int:
    (text,) = re.findall(r"CMD (\[.*\])", find_instructions("HEALTHCHECK")[0])
    _, *arguments = yaml.safe_load(text)
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=clean_environment() | environment, capture_output=True, check=False, timeout=DEADLINE
    ).returncode


@pytest.mark.parametrize("variable", ["LISTINGS_PORT", "PORT"])
def test_the_health_check_detects_a_stopped_service(tmp_path: Path, variable: str) -> None:
    with Program(tmp_path).serve() as serving:
        port = {variable: serving.base_url.rpartition(":")[2]}
        assert run_health_check(**port) == 0
        serving.stop()
    assert run_health_check(**port) == 1


def test_the_health_check_detects_a_service_that_is_not_ready(tmp_path: Path) -> None:
    with Program(tmp_path).serve() as serving:
        port = serving.base_url.rpartition(":")[2]
        (tmp_path / "data" / "listings.db").unlink()
        assert serving.http.get("/readyz").status_code == 503
        assert run_health_check(LISTINGS_PORT=port) == 1


def test_the_port_is_published_only_on_this_machine(service: Any) -> None:
    assert service["ports"] == ["127.0.0.1:8000:8000"]


def test_the_container_has_minimal_privileges(service: Any) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]  # noqa: S108 - inside the container
    assert "privileged" not in service


def test_the_stop_timeout_exceeds_a_graceful_stop(service: Any) -> None:
    assert seconds(service["stop_grace_period"]) > server._DRAIN_SECONDS  # noqa: SLF001 - the limit itself
    assert service["restart"] == "unless-stopped"


def test_the_file_limit_covers_the_default_connections(service: Any) -> None:
    (default,) = (setting.default for setting in SETTINGS if setting.attribute == "max_connections")
    assert service["ulimits"]["nofile"] > int(default) + 64


def scaled_environment(password: str) -> dict[str, str]:
    variables = SCALED["services"]["listings"]["environment"]
    return {name: re.sub(r"\$\{POSTGRES_PASSWORD:\?[^}]+\}", password, value) for name, value in variables.items()}


def test_the_scaled_service_has_the_urls_of_postgresql_and_valkey() -> None:
    settings = load(scaled_environment("50c1a7"), {})
    assert isinstance(settings.database, PostgresUrl)
    assert settings.database == "postgresql://listings:50c1a7@postgres/listings"
    assert settings.redis is not None
    assert settings.redis.host == "valkey"
    assert SCALED["services"].keys() == {"listings", "postgres", "valkey"}


def test_postgresql_has_the_user_and_password_of_the_service() -> None:
    environment = SCALED["services"]["postgres"]["environment"]
    assert environment["POSTGRES_USER"] == "listings"
    assert environment["POSTGRES_PASSWORD"] in SCALED["services"]["listings"]["environment"]["LISTINGS_DATABASE_URL"]


def test_the_password_is_required_and_not_in_the_file() -> None:
    passwords = re.findall(r"\$\{(\w+)(:\?|:-|)", (HOME / "compose.scaled.yaml").read_text("utf-8"))
    assert set(passwords) == {("POSTGRES_PASSWORD", ":?")}


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_servers_are_private_persistent_and_started_first(name: str) -> None:
    server = SCALED["services"][name]
    assert SCALED["services"]["listings"]["depends_on"][name] == {"condition": "service_healthy"}
    assert server["healthcheck"]["test"]
    assert "ports" not in server
    assert server["volumes"][0].partition(":")[0] in SCALED["volumes"]
    assert server["security_opt"] == ["no-new-privileges:true"]


def test_valkey_does_not_evict_the_counts_of_the_rate_limit() -> None:
    command = SCALED["services"]["valkey"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendonly") + 1] == "yes"
