"""Parameter types of commands, and their settings."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from listings.domain import timestamps
from listings.domain.fields import parse_id
from listings.settings import COPY_TARGET, SETTINGS, ResolvedSetting, Settings, load, mask_password, resolve_all

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Parsed(click.ParamType[T]):
    """A string that a function parses. The message of its ValueError is the error message."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DATE = Parsed("date", timestamps.parse_timestamp)
"""`YYYY-MM-DD` or `YYYY-MM-DD HH:MM:SS` in UTC, converted to a Unix timestamp."""


class Integer(click.IntRange):
    """An integer within bounds. click's own type calls itself "integer range" in error messages."""

    name = "integer"


def _parse_id(text: str) -> int:
    number = parse_id(text)
    if number is None:
        raise ValueError(f"{text!r} is not an id: ids are integers from 1 on")
    return number


ID = Parsed("id", _parse_id)


def setting_option(attribute: str, **options: Any) -> Callable[[F], F]:
    """Return the option of a setting, with the setting's description unless `options` have another `help`."""
    setting = next(setting for setting in (*SETTINGS, COPY_TARGET) if setting.attribute == attribute)
    help_text = f"{setting.help} Default: {setting.default}" if setting.default else setting.help

    def validate(text: str) -> str:
        try:
            setting.parse(text)
        except ValueError as error:
            shown = mask_password(text) if setting.secret else text
            raise ValueError(f"{error}, got {shown!r}") from None
        return text

    return click.option(setting.flag, attribute, type=Parsed("text", validate), **{"help": help_text, **options})


def load_settings(**flags: str | None) -> Settings:
    """Return the settings of the command that runs. Raises Problem("invalid_setting")."""
    return load(os.environ, {**click.get_current_context().obj, **flags})


def survey_settings() -> list[ResolvedSetting]:
    """Return the value and source of each setting for the command that runs, invalid ones included."""
    return resolve_all(os.environ, click.get_current_context().obj)
