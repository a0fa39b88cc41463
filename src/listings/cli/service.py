"""Run the service in a command, and configure the command's logs."""

import asyncio
import os
import pwd
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from listings import wiring
from listings.cli.parameters import load_settings
from listings.service import Services
from listings.settings import Settings
from listings.telemetry import logs

T = TypeVar("T")


def with_service(use: Callable[[Services], Awaitable[T]], *, logger_name: str = Services.__module__) -> T:
    """Run `use` with a service on the existing database. Log events name the operator.

    The background tasks are left to the running service, because its settings may be different.
    """
    settings = load_settings()
    configure_logs(settings, logger_name)

    async def run() -> T:
        async with wiring.open_services(settings, background=False) as services:
            return await use(services)

    with logs.bind_operator(get_operator()):
        return asyncio.run(run())


def get_operator() -> str:
    """Return the name of the operator who runs the command: the setting, or the name of the system user."""
    if operator := load_settings().operator:
        return operator
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in many containers
        return str(os.getuid())


def configure_logs(settings: Settings, logger_name: str = "", pid: int | None = None) -> bool:
    """Log all events, or only those of one logger, to standard error. Return whether they are JSON.

    For `pid` see `listings.telemetry.logs.configure`.
    """
    as_json = not sys.stderr.isatty()
    logs.configure(logs.open_stderr(), settings.log_level, as_json=as_json, logger=logger_name, pid=pid)
    return as_json
