"""Kinds of command line parameters, and the way from a command to the service."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from listings import assemble, dates
from listings.service import Service
from listings.settings import SETTINGS, Settings, load

T = TypeVar("T")


class Date(click.ParamType[int]):
    """`YYYY-MM-DD` or `YYYY-MM-DD HH:MM:SS` in UTC, as seconds since 1970."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's signature
        """The moment that the text names."""
        try:
            return value if isinstance(value, int) else dates.moment_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SettingText(click.ParamType[str]):
    """The text of a setting, refused as wrong usage when the setting's parser refuses it."""

    name = "text"

    def __init__(self, attribute: str) -> None:
        """`attribute` is the setting's name in `listings.settings.SETTINGS`."""
        self._setting = next(setting for setting in SETTINGS if setting.attribute == attribute)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - click's signature
        """The text as it is."""
        try:
            self._setting.parse(value)
        except ValueError as error:
            self.fail(f"{error}, got {value!r}", param, ctx)
        return str(value)


def settings_of(context: click.Context, **flags: str | None) -> Settings:
    """The settings in force for a command. Raises Problem("invalid_setting")."""
    return load(os.environ, {**context.obj, **flags})


def with_service(context: click.Context, use: Callable[[Service], Awaitable[T]]) -> T:
    """Run one use of the service on the database, which must exist."""
    settings = settings_of(context)

    async def run() -> T:
        async with assemble.opened_service(settings) as service:
            return await use(service)

    return asyncio.run(run())
