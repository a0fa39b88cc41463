"""Parameter types of commands, and helpers to load the settings and open the service."""

import asyncio
import os
import pwd
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from listings import wiring
from listings.domain import timestamps
from listings.domain.fields import parse_id
from listings.service import Services
from listings.settings import (
    COPY_TARGET,
    SETTINGS,
    ResolvedSetting,
    Settings,
    load,
    mask_password,
    resolve_all,
)
from listings.telemetry import logs

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


def with_service(use: Callable[[Services], Awaitable[T]], *, logger_name: str = Services.__module__) -> T:
    """Run `use` with a service on the existing database. Log events name the system user as the operator.

    The background tasks are left to the running service, because its settings may be different.
    """
    settings = load_settings()
    configure_logs(settings, logger_name)

    async def run() -> T:
        async with wiring.open_services(settings, background=False) as services:
            return await use(services)

    with logs.bind_operator(_user()):
        return asyncio.run(run())


def configure_logs(settings: Settings, logger_name: str = "", pid: int | None = None) -> bool:
    """Log all events, or only those of one logger, to standard error. Return whether they are JSON.

    For `pid` see `listings.telemetry.logs.configure`.
    """
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(logs.open_stderr(), settings.log_level, as_json=as_json, logger=logger_name, pid=pid)
    return as_json


def _user() -> str:
    """Return the name of the system user, or its id if it has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
