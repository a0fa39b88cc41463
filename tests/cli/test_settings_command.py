"""`listings settings` and `listings completion`, and secrets, which are read from files and never shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from listings.settings import SETTINGS
from tests.cli.commands import PROGRAM, Cli, Program, clean_environment
from tests.processes import run_program

SECRET = "hunter2"
URL = "LISTINGS_DATABASE_URL"


def parse_rows(text: str) -> dict[str, dict[str, Any]]:
    return {row["setting"]: row for row in map(json.loads, text.splitlines())}


def get_settings(cli: Cli, *flags: str) -> dict[str, dict[str, Any]]:
    return parse_rows(cli.run_ok(*flags, "settings", "--json").out)


def test_every_setting_is_shown_with_its_default_value(cli: Cli) -> None:
    rows = get_settings(cli)
    assert list(rows) == [setting.variables[0] for setting in SETTINGS]
    for setting in SETTINGS:
        assert rows[setting.variables[0]] == {
            "setting": setting.variables[0],
            "value": setting.default or None,
            "from": "default",
            "fault": None,
        }
    assert list(cli.folder.iterdir()) == []


def test_the_source_of_a_value_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "8080")
    monkeypatch.setenv("LISTINGS_HOST", "0.0.0.0")  # noqa: S104 - nothing listens
    monkeypatch.setenv(URL, "sqlite:///a.db")
    rows = get_settings(cli, "--database-url", "sqlite:///b.db")
    assert (rows["LISTINGS_PORT"]["value"], rows["LISTINGS_PORT"]["from"]) == ("8080", "PORT")
    assert (rows["LISTINGS_HOST"]["value"], rows["LISTINGS_HOST"]["from"]) == ("0.0.0.0", "LISTINGS_HOST")  # noqa: S104
    assert (rows[URL]["value"], rows[URL]["from"]) == ("sqlite:///b.db", "--database-url")
    assert (get_settings(cli)[URL]["value"], get_settings(cli)[URL]["from"]) == ("sqlite:///a.db", URL)


def test_the_settings_are_a_table_without_json(cli: Cli) -> None:
    lines = cli.run_ok("settings").out.splitlines()
    assert lines[0].split() == ["setting", "value", "from"]
    assert lines[1].split() == [URL, "sqlite:///data/listings.db", "default"]
    assert len(lines) == 1 + len(SETTINGS)


def test_an_invalid_value_is_reported_and_the_others_are_parse_rows(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTINGS_PORT", "eighty")
    monkeypatch.setenv("LISTINGS_RATE_LIMIT", "7")
    outcome = cli("settings", "--json")
    rows = parse_rows(outcome.out)
    assert outcome.code == 1
    assert outcome.err == "listings: LISTINGS_PORT must be an integer from 0 to 65535, got 'eighty'\n"
    assert rows["LISTINGS_PORT"]["value"] == "eighty"
    assert "must be an integer" in rows["LISTINGS_PORT"]["fault"]
    assert rows["LISTINGS_RATE_LIMIT"]["value"] == "7"


def test_unknown_variables_are_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    known = (
        "LISTINGS_TEST_COMPILED",
        "LISTINGS_COPY_TO",
        "LISTINGS_COPY_TO_FILE",
        f"{URL}_FILE",
    )
    for name in (*known, "LISTINGS_RATELIMIT", "LISTINGS_HOST_FILE", "RATE_LIMIT"):
        monkeypatch.setenv(name, "")
    lines = cli.run_ok("settings").err.splitlines()
    assert lines == [f"{name} is not a setting and is ignored" for name in ("LISTINGS_HOST_FILE", "LISTINGS_RATELIMIT")]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("LISTINGS_DATA_FOLDER", "elsewhere", "with SQLite: all files are next to the database"),
        ("LISTINGS_MEDIA_BASE_URL", "https://cdn.example", "without s3:// in LISTINGS_MEDIA_URL"),
    ],
)
def test_a_setting_without_effect_is_reported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(name, value)
    warning = f"{name} has no effect {reason}"
    assert cli.run_ok("settings").err == f"{warning}\n"
    assert warning in cli("doctor").out
    assert warning in cli("serve", "--seed", "missing.json").err


@pytest.mark.decision("G37")
def test_a_removed_setting_is_reported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    error = "LISTINGS_MAX_HEADERS is no longer a setting, and its value is always 100: unset it"
    monkeypatch.setenv("LISTINGS_MAX_HEADERS", "200")
    assert cli.get_error("serve") == error
    assert cli("settings").err == f"listings: {error}\n"
    assert error in cli("doctor").out
    monkeypatch.setenv("LISTINGS_MAX_HEADERS", "100")
    assert cli.run_ok("settings").err == ""


def test_a_secret_is_read_from_a_file_without_white_space(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "url").write_text("  sqlite:///from-a-file.db\n")
    monkeypatch.setenv(f"{URL}_FILE", "url")
    row = get_settings(cli)[URL]
    assert (row["value"], row["from"]) == ("sqlite:///from-a-file.db", f"{URL}_FILE")
    assert cli.data("migrate")["database"] == str(cli.folder / "from-a-file.db")
    assert get_settings(cli, "--database-url", "sqlite:///flag.db")[URL]["value"] == "sqlite:///flag.db"


def test_a_variable_and_its_file_together_are_rejected(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "url").write_text("sqlite:///file.db")
    monkeypatch.setenv(f"{URL}_FILE", "url")
    monkeypatch.setenv(URL, "sqlite:///variable.db")
    assert cli.get_error("migrate") == f"{URL} and {URL}_FILE are both set: unset one of them"
    monkeypatch.setenv(URL, "")
    cli.run_ok("migrate")


@pytest.mark.parametrize("kind", ["missing", "folder", "binary"])
def test_an_unreadable_file_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = cli.folder / kind
    if kind == "folder":
        path.mkdir()
    if kind == "binary":
        path.write_bytes(b"\xff\xfe")
    monkeypatch.setenv(f"{URL}_FILE", str(path))
    error = cli.get_error("migrate")
    assert error.startswith(f"{URL}_FILE names {path}, which can't be read: ")
    assert get_invalid_settings(cli)[URL]["from"] == f"{URL}_FILE"


def get_invalid_settings(cli: Cli) -> dict[str, dict[str, Any]]:
    outcome = cli("settings", "--json")
    assert outcome.code == 1
    return parse_rows(outcome.out)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        (f"postgresql://listings:{SECRET}@host/db", "postgresql://listings:***@host/db"),
        (f"postgresql://listings:{SECRET}@a.b:5432/db?sslmode=on", "postgresql://listings:***@a.b:5432/db?sslmode=on"),
        (f"postgresql://listings:{SECRET}/@:@host/db", "postgresql://listings:***@host/db"),
        (f"postgresql:///listings:{SECRET}@host/db", "postgresql:///listings:***@host/db"),
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
def test_no_password_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, masked: str) -> None:
    monkeypatch.setenv(URL, url)
    for arguments in (["settings"], ["settings", "--json"], ["migrate"], ["doctor"], ["doctor", "--json"]):
        outcome = cli(*arguments)
        assert SECRET not in outcome.out + outcome.err
    assert parse_rows(cli("settings", "--json").out)[URL]["value"] == masked
    monkeypatch.delenv(URL)
    outcome = cli("--database-url", url, "settings")
    assert SECRET not in outcome.out + outcome.err


@pytest.mark.parametrize("content", [SECRET, f"mysql://a:{SECRET}@host/db", f"sqlite://{SECRET}"])
def test_the_content_of_an_invalid_file_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (cli.folder / "url").write_text(content)
    monkeypatch.setenv(f"{URL}_FILE", "url")
    for arguments in (["settings"], ["settings", "--json"], ["migrate"], ["doctor"]):
        outcome = cli(*arguments)
        assert outcome.code == 1
        assert SECRET not in outcome.out + outcome.err
        assert f"{URL}_FILE must be like" in outcome.out + outcome.err


def test_a_path_with_an_at_sign_is_not_masked(cli: Cli) -> None:
    assert get_settings(cli, "--database-url", "sqlite:////srv/a:b@c.db")[URL]["value"] == "sqlite:////srv/a:b@c.db"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_completion_script(program: Program, shell: str) -> None:
    outcome = program.run("completion", shell)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"_LISTINGS_COMPLETE={shell}_complete" in outcome.out


def test_another_shell_is_a_usage_error(cli: Cli) -> None:
    assert "'bash', 'zsh', 'fish'" in cli.get_usage_error("completion", "tcsh")


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
    outcome = run_program(["bash", "--norc", "-ec", script, "bash", *words], cwd=tmp_path, env=environment)
    assert (outcome.stdout.split(), outcome.stderr) == (completed, "")
