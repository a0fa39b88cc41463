"""What the settings are set to, and by what.

A flag wins over the environment, the environment over the default. A wrong value stops the start. A secret one can
also be read from a file that `NAME_FILE` names, and is never shown.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from listings.domain.errors import Problem
from listings.settings.table import COPY_TARGET, SETTINGS, Setting, Settings
from listings.settings.values import RedisAddress

__all__ = [
    "COPY_TARGET",
    "MASK",
    "SETTINGS",
    "Given",
    "RedisAddress",
    "Setting",
    "Settings",
    "load",
    "mask",
    "resolve",
    "settings_of",
    "survey",
    "unknown",
]

MASK = "***"
_FILE = "_FILE"
_PREFIX = "LISTINGS_"
_NO_SETTINGS = ("LISTINGS_CONFORM_", "LISTINGS_TEST_")  # keys of `listings conform`; what tests are told
_LONGEST_FILE = 64 * 1024
_PASSWORD = re.compile(r"(?i)((?:pass(?:word|wd|phrase)?|pwd|secret|token)\s*=\s*)('[^']*'|[^&\s]*)")


class Given(NamedTuple):
    """What a setting is set to, and by what: a flag, a variable, a file that a variable names, or "default"."""

    setting: Setting
    source: str
    text: str
    fault: str = ""  # the sentence about a value that is not good

    @property
    def shown(self) -> str:
        """The text, for eyes: without a password, and nothing of a file that doesn't hold what it should."""
        if not self.setting.secret:
            return self.text
        if self.setting.is_password:
            return MASK if self.text else ""
        return MASK if self.fault and self.source.endswith(_FILE) else mask(self.text)


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """The settings in force. `flags` are by attribute; None: not given. Raises Problem("invalid_setting")."""
    given = survey(environment, flags)
    for one in given:
        if one.fault:
            raise Problem("invalid_setting", one.fault)
    return settings_of(given)


def survey(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> list[Given]:
    """What each setting is set to, in the table's order, faults included."""
    return [resolve(setting, environment, flags.get(setting.attribute)) for setting in SETTINGS]


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Names in the environment that are like those of settings and are none, as a mistyped one is."""
    known = {name for setting in (*SETTINGS, COPY_TARGET) for name in setting.variables}
    known |= {name + _FILE for setting in (*SETTINGS, COPY_TARGET) if setting.secret for name in setting.variables}
    ours = (name for name in environment if name.startswith(_PREFIX) and not name.startswith(_NO_SETTINGS))
    return sorted(name for name in ours if name not in known)


def settings_of(given: Iterable[Given]) -> Settings:
    """The values, with the default in the place of a faulty one."""
    return Settings(
        **{one.setting.attribute: one.setting.parse(one.setting.default if one.fault else one.text) for one in given}
    )


def mask(text: str) -> str:
    """A URL, or what should have been one, without its password."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "", text
    user, at, place = rest.rpartition("@")
    if at and not rest.startswith("/"):  # else it is a path
        name, colon, _ = user.partition(":")
        rest = (f"{name}:{MASK}@" if colon else f"{name}@") + place if slashes else f"{MASK}@{place}"
    return scheme + slashes + _PASSWORD.sub(rf"\1{MASK}", rest)


def resolve(setting: Setting, environment: Mapping[str, str], flag: str | None) -> Given:
    """What one setting is set to; `flag` None: not given."""
    if flag is not None:
        return _judged(Given(setting, setting.flag_name, flag))
    candidates = [name for name in setting.variables if environment.get(name)]
    files = [name + _FILE for name in setting.variables if setting.secret and environment.get(name + _FILE)]
    if candidates and files:
        fault = f"{candidates[0]} and {files[0]} are both set: leave one of them"
        return Given(setting, candidates[0], environment[candidates[0]], fault)
    if files:
        return _read(setting, files[0], environment[files[0]])
    if candidates:
        return _judged(Given(setting, candidates[0], environment[candidates[0]]))
    return _judged(Given(setting, "default", setting.default))


def _read(setting: Setting, source: str, path: str) -> Given:
    """The value in a file, without the space around it."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        return Given(setting, source, "", f"{source} names {path[:200]}, which can't be read: {reason}")
    return _judged(Given(setting, source, text))


def _judged(given: Given) -> Given:
    try:
        given.setting.parse(given.text)
    except ValueError as error:
        wrong = given._replace(fault=str(error))
        return given._replace(fault=f"{given.source} {error}, got {wrong.shown[:60]!r}")
    return given
