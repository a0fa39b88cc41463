"""Where the key comes from, and that test and live keys are never mistaken for each other."""

import pytest

from listings_client import Client, ConfigurationError, credentials
from listings_client.credentials import Credentials

TEST, LIVE = Credentials("lst_test_a", "https://a.example"), Credentials("lst_b", "https://a.example")


def test_an_argument_comes_before_the_environment_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials.save(TEST)
    assert credentials.find() == TEST
    monkeypatch.setenv("LISTINGS_API_KEY", "lst_c")
    monkeypatch.setenv("LISTINGS_URL", "https://c.example/")
    assert credentials.find() == Credentials("lst_c", "https://c.example")
    assert credentials.find("lst_d", "https://d.example") == Credentials("lst_d", "https://d.example")


def test_a_saved_key_is_private() -> None:
    path = credentials.save(TEST)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_rejected(mode: int) -> None:
    path = credentials.save(TEST)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        credentials.find()


def test_a_damaged_file_is_named() -> None:
    path = credentials.save(TEST)
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=f"{path} can't be read"):
        credentials.find()


def test_with_both_keys_the_mode_must_be_chosen() -> None:
    credentials.save(TEST)
    credentials.save(LIVE)
    with pytest.raises(ConfigurationError, match="choose --test or --live"):
        credentials.find()
    assert credentials.find(mode="test") == TEST
    assert credentials.find(mode="live") == LIVE


@pytest.mark.parametrize(("key", "mode"), [("lst_test_a", "live"), ("lst_b", "test")])
def test_a_key_of_the_other_mode_is_rejected(key: str, mode: credentials.Mode) -> None:
    with pytest.raises(ConfigurationError, match=f"A {mode} key is needed"):
        Client(key, "https://a.example", mode=mode)


def test_a_missing_key_or_url_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="run lst login"):
        Client()
    monkeypatch.setenv("LISTINGS_API_KEY", "lst_c")
    with pytest.raises(ConfigurationError, match="set LISTINGS_URL"):
        Client()


@pytest.mark.parametrize("url", ["market.example", "ftp://market.example", "//market.example"])
def test_a_url_without_its_scheme_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must begin with https://"):
        Client("lst_a", url)


def test_a_saved_key_is_not_sent_to_another_service() -> None:
    credentials.save(LIVE)
    with pytest.raises(ConfigurationError, match="The saved key is of"):
        Client(base_url="https://b.example")


def test_a_missing_mode_is_named() -> None:
    credentials.save(LIVE)
    with pytest.raises(ConfigurationError, match="There is no test key"):
        credentials.find(mode="test")
