"""`listings completion`."""

import click
from click.shell_completion import get_completion_class

from listings.cli.group import example

_VARIABLE = "_LISTINGS_COMPLETE"  # the variable that click reads for a program of this name


@click.command(short_help="Print a shell completion script.")
@example("listings completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    For bash, add to ~/.bashrc:   eval "$(listings completion bash)"
    For zsh, add to ~/.zshrc:     eval "$(listings completion zsh)"
    For fish, run once:           listings completion fish > ~/.config/fish/completions/listings.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"The shell {shell} is not supported.")
    click.echo(kind(context.find_root().command, {}, "listings", _VARIABLE).source())
