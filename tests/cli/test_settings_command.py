"""`listings settings` and `listings completion`; secrets, which are read from files and never shown."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from listings.settings import SETTINGS
from tests.cli.commands import PROGRAM, Cli, Program, clean_environment

SECRET = "hunter2"
URL = "LISTINGS_DATABASE_URL"


def shown(text: str) -> dict[str, dict[str, Any]]:
    return {row["setting"]: row for row in map(json.loads, text.splitlines())}


def settings(cli: Cli, *flags: str) -> dict[str, dict[str, Any]]:
    return shown(cli.done(*flags, "settings", "--json").out)


def test_every_setting_is_shown_with_its_default(cli: Cli) -> None:
    rows = settings(cli)
    assert list(rows) == [setting.variables[0] for setting in SETTINGS]
    for setting in SETTINGS:
        assert rows[setting.variables[0]] == {
            "setting": setting.variables[0],
            "value": setting.default or None,
            "from": "default",
            "fault": None,
        }
    assert list(cli.folder.iterdir()) == []


def test_where_a_value_came_from_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "8080")
    monkeypatch.setenv("LISTINGS_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
    monkeypatch.setenv(URL, "sqlite:///a.db")
    rows = settings(cli, "--database-url", "sqlite:///b.db")
    assert (rows["LISTINGS_PORT"]["value"], rows["LISTINGS_PORT"]["from"]) == ("8080", "PORT")
    assert (rows["LISTINGS_HOST"]["value"], rows["LISTINGS_HOST"]["from"]) == ("0.0.0.0", "LISTINGS_HOST")  # noqa: S104
    assert (rows[URL]["value"], rows[URL]["from"]) == ("sqlite:///b.db", "--database-url")
    assert (settings(cli)[URL]["value"], settings(cli)[URL]["from"]) == ("sqlite:///a.db", URL)


def test_people_get_a_table(cli: Cli) -> None:
    lines = cli.done("settings").out.splitlines()
    assert lines[0].split() == ["setting", "value", "from"]
    assert lines[1].split() == [URL, "sqlite:///data/listings.db", "default"]
    assert len(lines) == 1 + len(SETTINGS)


def test_a_wrong_value_is_named_and_the_others_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_PORT", "eighty")
    monkeypatch.setenv("LISTINGS_RATE_LIMIT", "7")
    outcome = cli("settings", "--json")
    rows = shown(outcome.out)
    assert outcome.code == 1
    assert outcome.err == "listings: LISTINGS_PORT must be an integer from 0 to 65535, got 'eighty'\n"
    assert rows["LISTINGS_PORT"]["value"] == "eighty"
    assert "must be an integer" in rows["LISTINGS_PORT"]["fault"]
    assert rows["LISTINGS_RATE_LIMIT"]["value"] == "7"


def test_names_that_are_no_settings_are_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    known = (
        "LISTINGS_CONFORM_KEY",
        "LISTINGS_TEST_COMPILED",
        "LISTINGS_COPY_TO",
        "LISTINGS_COPY_TO_FILE",
        f"{URL}_FILE",
    )
    for name in (*known, "LISTINGS_RATELIMIT", "LISTINGS_HOST_FILE", "RATE_LIMIT"):
        monkeypatch.setenv(name, "")
    told = cli.done("settings").err.splitlines()
    assert told == [f"{name} is not a setting; it is ignored" for name in ("LISTINGS_HOST_FILE", "LISTINGS_RATELIMIT")]


# Secrets


def test_a_secret_is_read_from_a_file_without_the_space_around_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "url").write_text("  sqlite:///from-a-file.db\n")
    monkeypatch.setenv(f"{URL}_FILE", "url")
    row = settings(cli)[URL]
    assert (row["value"], row["from"]) == ("sqlite:///from-a-file.db", f"{URL}_FILE")
    assert cli.data("migrate")["database"] == str(cli.folder / "from-a-file.db")
    assert settings(cli, "--database-url", "sqlite:///flag.db")[URL]["value"] == "sqlite:///flag.db"


def test_a_variable_and_its_file_together_are_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "url").write_text("sqlite:///file.db")
    monkeypatch.setenv(f"{URL}_FILE", "url")
    monkeypatch.setenv(URL, "sqlite:///variable.db")
    assert cli.refused("migrate") == f"{URL} and {URL}_FILE are both set: unset one of them"
    monkeypatch.setenv(URL, "")
    cli.done("migrate")


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_a_file_that_cannot_be_read_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place = cli.folder / kind
    if kind == "folder":
        place.mkdir()
    if kind == "binary":
        place.write_bytes(b"\xff\xfe")
    monkeypatch.setenv(f"{URL}_FILE", str(place))
    said = cli.refused("migrate")
    assert said.startswith(f"{URL}_FILE names {place}, which can't be read: ")
    assert settings_of_wrong(cli)[URL]["from"] == f"{URL}_FILE"


def settings_of_wrong(cli: Cli) -> dict[str, dict[str, Any]]:
    outcome = cli("settings", "--json")
    assert outcome.code == 1
    return shown(outcome.out)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"postgresql://listings:{SECRET}@host/db", "postgresql://listings:***@host/db"),
        (f"postgresql://listings:{SECRET}@a.b:5432/db?sslmode=on", "postgresql://listings:***@a.b:5432/db?sslmode=on"),
        (f"postgresql://listings:{SECRET}/@:@host/db", "postgresql://listings:***@host/db"),
        (f"postgresql://host/db?user=alice&password={SECRET}", "postgresql://host/db?user=alice&password=***"),
        (f"postgresql://host/db?PassWord={SECRET}&a=b", "postgresql://host/db?PassWord=***&a=b"),
        (f"postgresql:///db?sslpassword={SECRET}", "postgresql:///db?sslpassword=***"),
        (f"host=h password={SECRET} user=u", "host=h password=*** user=u"),
        (f"host=h password = '{SECRET} {SECRET}' user=u", "host=h password = *** user=u"),
        (f"alice:{SECRET}@host/db", "***@host/db"),
        (f"postgres:alice:{SECRET}@host", "***@host"),
        ("postgresql://alice@host/db", "postgresql://alice@host/db"),
    ],
)
def test_no_password_is_ever_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, kept: str) -> None:
    monkeypatch.setenv(URL, url)
    for arguments in (["settings"], ["settings", "--json"], ["migrate"], ["doctor"], ["doctor", "--json"]):
        outcome = cli(*arguments)
        assert SECRET not in outcome.out + outcome.err
    assert shown(cli("settings", "--json").out)[URL]["value"] == kept
    monkeypatch.delenv(URL)
    outcome = cli("--database-url", url, "settings")
    assert SECRET not in outcome.out + outcome.err


@pytest.mark.parametrize("content", [SECRET, f"mysql://a:{SECRET}@host/db", f"sqlite://{SECRET}"])
def test_nothing_of_a_wrong_file_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (cli.folder / "url").write_text(content)
    monkeypatch.setenv(f"{URL}_FILE", "url")
    for arguments in (["settings"], ["settings", "--json"], ["migrate"], ["doctor"]):
        outcome = cli(*arguments)
        assert outcome.code == 1
        assert SECRET not in outcome.out + outcome.err
        assert f"{URL}_FILE must be like" in outcome.out + outcome.err


def test_a_path_with_an_at_sign_is_no_password(cli: Cli) -> None:
    assert settings(cli, "--database-url", "sqlite:////srv/a:b@c.db")[URL]["value"] == "sqlite:////srv/a:b@c.db"


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(program: Program, shell: str) -> None:
    outcome = program.run("completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"_LISTINGS_COMPLETE={shell}_complete" in outcome.out


def test_another_shell_is_wrong_usage(cli: Cli) -> None:
    assert "'bash', 'zsh', 'fish'" in cli.misused("completion", "tcsh")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["listings", "acc"], ["account"]),
        (["listings", "account", "pl"], ["plan"]),
        (["listings", "backup", "--fo"], ["--force"]),
        (["listings", "completion", "f"], ["fish"]),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], completed: list[str]) -> None:
    script = """
        eval "$(listings completion bash)"
        complete -p listings | grep -q -- '-F _listings_completion'
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _listings_completion listings
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = clean_environment()
    environment["PATH"] = f"{PROGRAM.parent}:{environment['PATH']}"
    outcome = subprocess.run(
        ["bash", "--norc", "-ec", script, "bash", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.stdout.split(), outcome.stderr) == (completed, "")
