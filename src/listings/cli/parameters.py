"""Parameter types of commands, and access from a command to settings and service."""

import asyncio
import os
import pwd
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from listings import wiring
from listings.domain import timestamps
from listings.service import Service
from listings.settings import COPY_TARGET, SETTINGS, ResolvedSetting, Settings, load, mask_password, resolve_all
from listings.telemetry import logs

T = TypeVar("T")


class Date(click.ParamType[int]):
    """`YYYY-MM-DD` or `YYYY-MM-DD HH:MM:SS` in UTC, converted to a Unix timestamp."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's signature
        try:
            return value if isinstance(value, int) else timestamps.parse_timestamp(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SettingText(click.ParamType[str]):
    """The value of a setting; a value that the setting rejects is a usage error."""

    name = "text"

    def __init__(self, attribute: str) -> None:
        """`attribute` is the setting's name in `listings.settings`."""
        self._setting = next(one for one in (*SETTINGS, COPY_TARGET) if one.attribute == attribute)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - click's signature
        try:
            self._setting.parse(value)
        except ValueError as error:
            shown = mask_password(value) if self._setting.secret else value
            self.fail(f"{error}, got {shown!r}", param, ctx)
        return str(value)


def settings_of(context: click.Context, **flags: str | None) -> Settings:
    """Return the settings of a command. Raises Problem("invalid_setting")."""
    return load(os.environ, {**context.obj, **flags})


def given_of(context: click.Context) -> list[ResolvedSetting]:
    """Return the value and source of each setting for a command, invalid ones included."""
    return resolve_all(os.environ, context.obj)


def with_service(
    context: click.Context, use: Callable[[Service], Awaitable[T]], *, events_of: str = Service.__module__
) -> T:
    """Run `use` with a service on the existing database; log events carry the system user's name as operator."""
    settings = settings_of(context)
    configure_logs(settings, of=events_of)

    async def run() -> T:
        async with wiring.open_service(settings) as service:
            return await use(service)

    with logs.bind_operator(_user()):
        return asyncio.run(run())


def configure_logs(settings: Settings, of: str = "", pid: int | None = None) -> bool:
    """Log all events, or those `of` one logger, to standard error; return whether they are JSON.

    For `pid` see `listings.telemetry.logs.configure`.
    """
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    logs.configure(sys.stderr, settings.log_level, as_json=as_json, logger=of, pid=pid)
    return as_json


def _user() -> str:
    """Return the name of the system user, or its number if it has no name, as in many containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
