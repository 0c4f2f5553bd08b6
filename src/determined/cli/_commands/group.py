"""Groups of commands whose modules are imported only when one is called by name."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import keyword
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_HELP = "help"


class OutputClosedError(Exception):
    """Nobody reads our output any more. As a BrokenPipeError, click would make it exit code 1."""


@dataclasses.dataclass(frozen=True)
class Lazy:
    """A command that is listed with its one line of help, and only imported when called."""

    name: str
    module: str
    help: str
    aliases: tuple[str, ...] = ()

    def load(self) -> click.Command:
        """Import the module; the command is its attribute of the same name (`-` reads `_`)."""
        module = importlib.import_module(self.module)
        name = self.name.replace("-", "_")
        command = getattr(module, f"{name}_" if keyword.iskeyword(name) else name)
        assert isinstance(command, click.Command)
        return command


_DESTROYS = ("cancel", "delete", "delete-tb-files", "gc-policy", "kill", "prune", "rm")


class Command(click.Command):
    """A command whose long options may be shortened, as in the original: `--follow`."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, unless it would destroy here what was meant to be somewhere else."""
        root = ctx.find_root()
        source = root.get_parameter_source("master") if "master" in root.params else None
        if self.name in _DESTROYS and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--master {root.params['master']} names another place, but `{ctx.command_path}` "
                "would change what is on this machine. Leave --master out if you mean that."
            )
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        return super().parse_args(ctx, with_whole_options(args, self.get_params(ctx)))


def with_whole_options(args: list[str], params: Iterable[click.Parameter]) -> list[str]:
    """Return the arguments with unique prefixes of long options replaced by the options."""
    options = [param for param in params if isinstance(param, click.Option)]
    takes_value = {
        name: not (option.is_flag or option.count)
        for option in options
        for name in (*option.opts, *option.secondary_opts)
    }
    whole: list[str] = []
    remaining = iter(args)
    for arg in remaining:
        if arg == "--":
            return [*whole, arg, *remaining]
        name, has_value, value = arg.partition("=")
        if name.startswith("--") and name not in takes_value:
            longer = [known for known in takes_value if known.startswith(name)]
            name = longer[0] if len(longer) == 1 else name
        whole.append(f"{name}{has_value}{value}")
        if not has_value and takes_value.get(name):
            whole += [value for value in [next(remaining, None)] if value is not None]
    return whole


class Group(click.Group):
    """A group with lazy members, aliases, a word `help` at each level, and hints for typos."""

    command_class = Command

    def __init__(
        self, *args: Any, lazy: Iterable[Lazy] = (), default: str | None = None, **kwargs: Any
    ) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)
        self._lazy = {command.name: command for command in lazy}
        self._aliases = {alias: c.name for c in self._lazy.values() for alias in c.aliases}
        self._default = default

    def verb(
        self, name: str, *, aliases: Iterable[str] = (), **kwargs: Any
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """Add a command, also under other names: a decorator as `click.command`."""
        self._aliases.update(dict.fromkeys(aliases, name))
        return self.command(name, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; without any, those of the default command."""
        if self._default and not ctx.resilient_parsing:  # a shell completes what is there
            args = args or [self._default]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosedError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of their definition."""
        return [*self._lazy, *(name for name in self.commands if name not in self._lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name or an alias, and import it."""
        name = self._aliases.get(cmd_name, cmd_name)
        if name in self._lazy:
            return self._lazy[name].load()
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; `help` shows what the next ones are for."""
        if args and args[0] == _HELP and _HELP not in self.commands:
            return _HELP, _help_command(self), args[1:]
        is_unknown = bool(args) and self.get_command(ctx, args[0]) is None
        if is_unknown and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(self._unknown(ctx, args[0]), ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What a word may become, without importing lazy commands."""
        from click.shell_completion import CompletionItem

        lines = {name: self._line_of(ctx, name) for name in self.list_commands(ctx)}
        found = [
            CompletionItem(name, help=line)
            for name, line in lines.items()
            if line is not None and name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing lazy ones."""
        shown = [(name, self._line_of(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(self._with_aliases(name), line) for name, line in shown if line is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _line_of(self, ctx: click.Context, name: str) -> str | None:
        if name in self._lazy:
            return self._lazy[name].help
        command = self.commands[name]
        return None if command.hidden else command.get_short_help_str(80)

    def _with_aliases(self, name: str) -> str:
        return ", ".join([name, *(a for a, target in self._aliases.items() if target == name)])

    def _unknown(self, ctx: click.Context, word: str) -> str:
        shown = [name for name in self.list_commands(ctx) if self._line_of(ctx, name) is not None]
        known = [*shown, *self._aliases, _HELP]
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        return f"No such command `{word}`.{hint}"


def _help_command(group: Group) -> click.Command:
    @click.command(_HELP, add_help_option=False)
    @click.argument("words", nargs=-1)
    @click.pass_context
    def show(ctx: click.Context, words: tuple[str, ...]) -> None:
        assert ctx.parent is not None
        inner, command = ctx.parent, group
        for word in words:
            found = command.get_command(inner, word) if isinstance(command, Group) else None
            if found is None:
                raise click.UsageError(group._unknown(inner, word), inner)
            inner, command = click.Context(found, info_name=found.name, parent=inner), found  # type: ignore[assignment]  # a leaf ends the loop
        click.echo(command.get_help(inner))

    return show
