"""Command groups that import commands when they are used, and suggest a command instead of an unknown one."""

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import cleandoc
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

_REPLACING = "restore"  # `restore` replaces the database, so it is suggested only for what begins like it


class SuggestingGroup(click.Group):
    """A group that knows other names for its commands, and suggests the right one in the error message."""

    def __init__(self, *arguments: Any, synonyms: Mapping[str, str], **more: Any) -> None:
        """`synonyms` maps names that a user might try to names of commands."""
        super().__init__(*arguments, **more)
        self._synonyms = synonyms

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - needed only after an error

            is_replacing = name.startswith(_REPLACING)
            names = [one for one in self.list_commands(ctx) if is_replacing or not one.startswith(_REPLACING)]
            suggestion = self._synonyms.get(name) or next(iter(get_close_matches(name, names, n=1)), None)
            if suggestion is not None:
                ctx.fail(f"No such command {name!r}. Did you mean {suggestion!r}?")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group with short start-up time: it imports only the modules of the command that runs."""

    def __init__(self, *arguments: Any, import_paths: Mapping[str, str], **more: Any) -> None:
        """`import_paths` maps the name of each command to "module:attribute"."""
        super().__init__(*arguments, **more)
        self._import_paths = import_paths

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._import_paths)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._import_paths:
            return None
        module, _, name = self._import_paths[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def example(command_line: str) -> Callable[[C], C]:
    """Add an example to the end of a command's help."""

    def add(command: C) -> C:
        command.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\n\b\nExample: {command_line}"
        return command

    return add
