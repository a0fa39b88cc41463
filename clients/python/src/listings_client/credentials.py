"""The key and the URL of the service: from arguments, the environment, or the file that `lst login` writes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from listings_client.errors import ConfigurationError

Mode: TypeAlias = Literal["test", "live"]

TEST_PREFIX = "lst_test_"
KEY_VARIABLE, URL_VARIABLE = "LISTINGS_API_KEY", "LISTINGS_URL"


class Credentials(NamedTuple):
    """A key and the URL of the service that issued it."""

    key: str
    base_url: str

    @property
    def mode(self) -> Mode:
        """Test for a key whose listings buyers never see, otherwise live."""
        return "test" if self.key.startswith(TEST_PREFIX) else "live"


def get_path() -> Path:
    """Return the path of the file with the keys."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "listings" / "credentials.json"


def read_saved() -> Mapping[Mode, Credentials]:
    """Return the saved keys by mode. Raises ConfigurationError if others can read the file."""
    path = get_path()
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ConfigurationError(f"{path} has keys that other users can read: run chmod 600 {path}")
            saved = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from None
    return {mode: Credentials(one["key"], one["base_url"]) for mode, one in saved.items()}


def save(credentials: Credentials) -> Path:
    """Save a key, readable by its owner only; it replaces that of the same mode. Return the path."""
    path = get_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    saved = {**read_saved(), credentials.mode: credentials}
    write_privately(path, json.dumps({mode: one._asdict() for mode, one in saved.items()}, indent=2))
    return path


def write_privately(path: Path, text: str) -> None:
    """Replace a file atomically and durably by one that only its owner can read."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def find(key: str | None = None, base_url: str | None = None, mode: Mode | None = None) -> Credentials:
    """Return the key to use: the argument, LISTINGS_API_KEY, or a saved one.

    Raises ConfigurationError if there is none, if its mode is not `mode`, or if both modes are saved and none is given.
    """
    key = key or os.environ.get(KEY_VARIABLE)
    url = base_url or os.environ.get(URL_VARIABLE)
    if key:
        if not url:
            raise ConfigurationError(f"The URL of the service is missing: set {URL_VARIABLE}")
        found = Credentials(key, url)
    else:
        found = _choose(read_saved(), mode)
        if url and url.rstrip("/") != found.base_url.rstrip("/"):
            raise ConfigurationError(f"The saved key is of {found.base_url}, not of {url}: run lst login")
    if not found.base_url.startswith(("https://", "http://")):
        raise ConfigurationError(f"The URL of the service must begin with https://, got {found.base_url}")
    if mode is not None and found.mode != mode:
        raise ConfigurationError(f"A {mode} key is needed, but this is a {found.mode} key")
    return found._replace(base_url=found.base_url.rstrip("/"))


def _choose(saved: Mapping[Mode, Credentials], mode: Mode | None) -> Credentials:
    if not saved:
        raise ConfigurationError(f"There is no key: run lst login, or set {KEY_VARIABLE} and {URL_VARIABLE}")
    if mode is None and len(saved) > 1:
        raise ConfigurationError("A test key and a live key are saved: choose --test or --live")
    chosen: Mode = next(iter(saved)) if mode is None else mode
    if chosen not in saved:
        raise ConfigurationError(f"There is no {chosen} key: run lst login")
    return saved[chosen]
