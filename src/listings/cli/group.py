"""A group of commands each of which is loaded when it is named."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A start waits for its own command's modules alone: nobody who runs one needs those of all."""

    def __init__(self, *arguments: Any, places: Mapping[str, str], **more: Any) -> None:  # noqa: ANN401 - click's
        """`places` tells where each command is, as "module:name"."""
        super().__init__(*arguments, **more)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of a name; None where there is none."""
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command
