"""`det completion`: let shells complete commands, options, ids and names."""

from __future__ import annotations

import click

_LINES = {
    "bash": "echo 'eval \"$(det completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(det completion zsh)\"' >> ~/.zshrc",
    "fish": "det completion fish > ~/.config/fish/completions/det.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for shell completion of commands, options, ids and names.

    For bash, put `eval "$(det completion bash)"` into ~/.bashrc; for zsh, the same with zsh into
    ~/.zshrc; for fish, `det completion fish > ~/.config/fish/completions/det.fish`. The next shell
    that you open knows it.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = ctx.find_root().command
    click.echo(found(root, {}, "det", "_DET_COMPLETE").source())
