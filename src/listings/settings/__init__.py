"""Read the settings from flags, environment variables and defaults.

A flag takes precedence over the environment, and the environment over the default. An invalid value prevents the start.
A secret can also be read from a file that `NAME_FILE` names, and is never shown.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from listings.domain.errors import Problem
from listings.settings.table import COPY_TARGET, REMOVED, SETTINGS, Setting, Settings
from listings.settings.values import BucketUrl, RedisAddress

__all__ = (
    "COPY_TARGET",
    "REMOVED",
    "SETTINGS",
    "BucketUrl",
    "RedisAddress",
    "Setting",
    "Settings",
)  # for other modules

MASK = "***"
_FILE_SUFFIX = "_FILE"
_PREFIX = "LISTINGS_"
_OTHER_PREFIX = "LISTINGS_TEST_"  # of the tests
_MAX_FILE_LENGTH = 64 * 1024  # characters
_PASSWORD = re.compile(r"(?i)((?:pass(?:word|wd|phrase)?|pwd|secret|token)\s*=\s*)('[^']*'|[^&\s]*)")


class ResolvedSetting(NamedTuple):
    """The text of a setting and its source: a flag, a variable, a variable that names a file, or "default"."""

    setting: Setting
    source: str
    text: str
    error: str = ""  # a sentence, if the text is invalid

    @property
    def redacted(self) -> str:
        """The text without secrets. An invalid text from a file is hidden completely."""
        if not self.setting.secret:
            return self.text
        if self.setting.is_password:
            return MASK if self.text else ""
        return MASK if self.error and self.source.endswith(_FILE_SUFFIX) else mask_password(self.text)


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """Return the settings. `flags` are by attribute; None means not given. Raises Problem("invalid_setting")."""
    resolved = resolve_all(environment, flags)
    for error in (*find_removed_variables(environment), *(each.error for each in resolved)):
        if error:
            raise Problem("invalid_setting", error)
    settings = build_settings(resolved)
    if settings.conflict:
        raise Problem("invalid_setting", settings.conflict)
    return settings


def resolve_all(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> list[ResolvedSetting]:
    """Return every setting in the order of the table, including invalid ones."""
    return [resolve_setting(setting, environment, flags.get(setting.attribute)) for setting in SETTINGS]


def find_unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables with our prefix that are not settings, such as misspelt ones."""
    rows = (*SETTINGS, COPY_TARGET)
    known = {*REMOVED, *(name for row in rows for name in row.variables)}
    known |= {name + _FILE_SUFFIX for row in rows if row.secret for name in row.variables}
    candidates = (name for name in environment if name.startswith(_PREFIX) and not name.startswith(_OTHER_PREFIX))
    return sorted(name for name in candidates if name not in known)


def find_removed_variables(environment: Mapping[str, str]) -> list[str]:
    """Return an error for each variable of a removed setting that has another value than the fixed one."""
    return [
        f"{name} is no longer a setting, and its value is always {fixed}: unset it"
        for name, fixed in REMOVED.items()
        if environment.get(name, "") not in {"", fixed}
    ]


def build_settings(resolved: Iterable[ResolvedSetting]) -> Settings:
    """Return the values. Invalid ones are replaced by their default."""
    return Settings(
        **{
            each.setting.attribute: each.setting.parse(each.setting.default if each.error else each.text)
            for each in resolved
        }
    )


def mask_password(text: str) -> str:
    """Return a URL without its password. The text may be an invalid URL."""
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "", text
    user, at, location = rest.rpartition("@")
    if at and not (rest.startswith("/") and scheme in {"sqlite", "unix"}):  # whose URLs have a path instead of a host
        name, colon, _ = user.partition(":")
        rest = (f"{name}:{MASK}@" if colon else f"{name}@") + location if slashes else f"{MASK}@{location}"
    return scheme + slashes + _PASSWORD.sub(rf"\1{MASK}", rest)


def resolve_setting(setting: Setting, environment: Mapping[str, str], flag: str | None) -> ResolvedSetting:
    """Return the text and source of a setting. `flag` is None if it is not given."""
    if flag is not None:
        return _validate(ResolvedSetting(setting, setting.flag, flag))
    variables = [name for name in setting.variables if environment.get(name)]
    files = [
        name + _FILE_SUFFIX for name in setting.variables if setting.secret and environment.get(name + _FILE_SUFFIX)
    ]
    if variables and files:
        error = f"{variables[0]} and {files[0]} are both set: unset one of them"
        return ResolvedSetting(setting, variables[0], environment[variables[0]], error)
    if files:
        return _read_file(setting, files[0], environment[files[0]])
    if variables:
        return _validate(ResolvedSetting(setting, variables[0], environment[variables[0]]))
    return _validate(ResolvedSetting(setting, "default", setting.default))


def _read_file(setting: Setting, source: str, path: str) -> ResolvedSetting:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MAX_FILE_LENGTH).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        return ResolvedSetting(setting, source, "", f"{source} names {path[:200]}, which can't be read: {reason}")
    return _validate(ResolvedSetting(setting, source, text))


def _validate(resolved: ResolvedSetting) -> ResolvedSetting:
    try:
        resolved.setting.parse(resolved.text)
    except ValueError as error:
        invalid = resolved._replace(error=str(error))  # `redacted` hides an invalid text only if there is an error
        return resolved._replace(error=f"{resolved.source} {error}, got {invalid.redacted[:60]!r}")
    return resolved
