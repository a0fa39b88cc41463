"""The Dockerfile and compose.yaml, as far as that can be told without a Docker to run them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a package of their own

from listings.domain.postgres_url import PostgresUrl
from listings.http import server
from listings.settings import SETTINGS, load
from tests.cli.commands import DEADLINE, Program, clean_environment

HOME = Path(__file__).parent.parent.parent
DOCKERFILE = (HOME / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((HOME / "compose.yaml").read_text("utf-8"))
SCALED = yaml.safe_load((HOME / "compose.scaled.yaml").read_text("utf-8"))
LINT = Path(sys.executable).with_name("hadolint")


def instructions(name: str) -> list[str]:
    """What stands behind each instruction of this name, its continued lines joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", DOCKERFILE)
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.fixture
def service() -> Any:
    return COMPOSE["services"]["listings"]


@pytest.mark.skipif(not LINT.exists(), reason="hadolint is not made for this system")
def test_the_dockerfile_is_without_a_fault_that_its_linter_knows() -> None:
    outcome = subprocess.run([LINT, HOME / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "")


def test_nothing_is_installed_but_what_is_pinned_with_its_hash() -> None:
    installs = [line for line in re.sub(r"\s*\\\n\s*", " ", DOCKERFILE).split("&&") if " install " in line]
    from_an_index = [line for line in installs if "pip" in line and "--no-index" not in line]
    assert len(from_an_index) == 2
    assert all("--require-hashes" in line for line in from_an_index)


def test_every_file_that_is_copied_is_there_and_not_ignored() -> None:
    allowed = {line[1:] for line in (HOME / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    copied = [path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]]
    assert set(copied) == allowed
    assert all((HOME / path).exists() for path in copied)


def test_the_process_is_an_ordinary_user_and_gets_the_signals_itself() -> None:
    assert instructions("USER") == ["10001:10001"]
    assert "--uid 10001" in DOCKERFILE
    assert instructions("ENTRYPOINT") == ['["listings"]']
    assert instructions("CMD") == ['["serve"]']


def test_the_settings_of_the_image_are_settings() -> None:
    ours = dict(word.split("=", 1) for word in shlex.split(instructions("ENV")[-1]) if word.startswith("LISTINGS_"))
    assert ours == {"LISTINGS_DATABASE_URL": "sqlite:////data/listings.db", "LISTINGS_HOST": "0.0.0.0"}  # noqa: S104
    assert ours.keys() <= {name for setting in SETTINGS for name in setting.variables}
    assert instructions("VOLUME") == ["/data"]
    (default,) = (setting.default for setting in SETTINGS if setting.attribute == "port")
    assert instructions("EXPOSE") == [default]


def health(**environment: str) -> int:
    """The exit code of the health check."""
    (text,) = re.findall(r"CMD (\[.*\])", instructions("HEALTHCHECK")[0])
    _, *arguments = yaml.safe_load(text)
    process = [sys.executable, *arguments]
    return subprocess.run(
        process, env=clean_environment() | environment, capture_output=True, check=False, timeout=DEADLINE
    ).returncode


@pytest.mark.parametrize("variable", ["LISTINGS_PORT", "PORT"])
def test_the_health_check_tells_a_service_that_is_ready_from_one_that_is_away(tmp_path: Path, variable: str) -> None:
    with Program(tmp_path).serve() as serving:
        port = {variable: serving.base_url.rpartition(":")[2]}
        assert health(**port) == 0
        serving.stop()
    assert health(**port) == 1


def test_the_health_check_fails_where_something_answers_that_is_not_ready(tmp_path: Path) -> None:
    with Program(tmp_path).serve() as serving:
        port = serving.base_url.rpartition(":")[2]
        (tmp_path / "data" / "listings.db").unlink()
        assert serving.http.get("/readyz").status_code == 503
        assert health(LISTINGS_PORT=port) == 1


def test_only_this_machine_reaches_the_container(service: Any) -> None:
    assert service["ports"] == ["127.0.0.1:8000:8000"]


def test_the_container_can_do_nothing_but_serve(service: Any) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]  # noqa: S108 - the container's own
    assert "privileged" not in service


def test_the_data_is_in_a_named_volume(service: Any) -> None:
    (mount,) = service["volumes"]
    volume, _, place = mount.partition(":")
    assert volume in COMPOSE["volumes"]
    assert [place] == instructions("VOLUME")


def test_a_stop_is_given_more_time_than_an_orderly_one_takes(service: Any) -> None:
    assert seconds(service["stop_grace_period"]) > server._DRAIN_SECONDS  # noqa: SLF001 - the bound itself
    assert service["restart"] == "unless-stopped"


def test_the_connections_of_the_default_have_their_open_files(service: Any) -> None:
    (most,) = (setting.default for setting in SETTINGS if setting.attribute == "max_connections")
    assert service["ulimits"]["nofile"] > int(most) + 64


def test_compose_asks_as_often_as_the_image_with_the_images_command(service: Any) -> None:
    check = service["healthcheck"]
    (options,) = re.findall(r"^(.*) CMD ", instructions("HEALTHCHECK")[0])
    told = dict(option.removeprefix("--").split("=") for option in options.split())
    assert told == {name.replace("_", "-"): str(value) for name, value in check.items()}


def scaled_environment(password: str) -> dict[str, str]:
    """What the service is given over PostgreSQL and Redis."""
    told = SCALED["services"]["listings"]["environment"]
    return {name: re.sub(r"\$\{POSTGRES_PASSWORD:\?[^}]+\}", password, value) for name, value in told.items()}


def test_over_postgresql_and_redis_the_service_is_told_where_they_are() -> None:
    settings = load(scaled_environment("50c1a7"), {})
    assert isinstance(settings.database, PostgresUrl)
    assert settings.database == "postgresql://listings:50c1a7@postgres/listings"
    assert settings.redis is not None
    assert settings.redis.host == "redis"
    assert SCALED["services"].keys() == {"listings", "postgres", "redis"}


def test_the_database_server_is_made_for_the_user_and_the_password_of_the_service() -> None:
    environment = SCALED["services"]["postgres"]["environment"]
    assert environment["POSTGRES_USER"] == "listings"
    assert environment["POSTGRES_PASSWORD"] in SCALED["services"]["listings"]["environment"]["LISTINGS_DATABASE_URL"]


def test_no_password_is_in_the_file_and_none_is_assumed() -> None:
    passwords = re.findall(r"\$\{(\w+)(:\?|:-|)", (HOME / "compose.scaled.yaml").read_text("utf-8"))
    assert set(passwords) == {("POSTGRES_PASSWORD", ":?")}


@pytest.mark.parametrize("name", ["postgres", "redis"])
def test_a_server_beside_the_service_is_waited_for_kept_and_reached_by_nobody_else(name: str) -> None:
    server = SCALED["services"][name]
    assert SCALED["services"]["listings"]["depends_on"][name] == {"condition": "service_healthy"}
    assert server["healthcheck"]["test"]
    assert "ports" not in server
    assert server["volumes"][0].partition(":")[0] in SCALED["volumes"]
    assert server["security_opt"] == ["no-new-privileges:true"]


def test_redis_never_throws_away_what_counts_requests() -> None:
    command = SCALED["services"]["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendonly") + 1] == "yes"
